//! What can be wrong with data, said so that a person can mend it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a data set could not be loaded, dealt, or fetched.
///
/// Readers of a format know no file name; whoever opened the file adds it with [`DataError::InFile`], so a
/// message reads `train-labels.gz: the header declares 60008 bytes, but the file ends after 60000`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// Something is wrong in the named file.
    #[error("{}: {problem}", file.display())]
    InFile {
        /// The file.
        file: PathBuf,
        /// What is wrong in it.
        #[source]
        problem: Box<DataError>,
    },
    /// The operating system could not open, read or write.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Files of a well-known set are not where they should be.
    #[error("{} is missing; run `selvedge data fetch {set} --into {}`, or point `folder` at a folder that holds the set", file.display(), file.parent().unwrap_or(std::path::Path::new(".")).display())]
    SetMissing {
        /// The file that was looked for.
        file: PathBuf,
        /// The set's name for `selvedge data fetch`.
        set: &'static str,
    },
    /// The built-in set was asked for in a build that does not carry it.
    #[error(
        "this build does not carry the built-in data set `fashion-mnist-small`; use the `selvedge` command, build \
         with the feature `built-in`, or choose another source under [data]"
    )]
    NotBuiltIn,
    /// The examples are not in files.
    #[error(
        "the source `memory` stands for examples that a program holds: a program of its own can run this description \
         (see the `selvedge` library), a command needs another source under [data]"
    )]
    InMemory,
    /// A source of a crate outside cannot be read.
    #[error("the source `{kind}` cannot be read: {error}")]
    Custom {
        /// Its kind.
        kind: &'static str,
        /// Its own reason.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A client of a partition is to hold an example that there is not.
    #[error("client {client} is to hold example {example} of {examples}")]
    NoSuchExample {
        /// The client's position.
        client: usize,
        /// The example.
        example: u32,
        /// How many examples there are.
        examples: usize,
    },
    /// A file ends before what its header declares.
    #[error("truncated: {expected} bytes expected, but the data ends after {found}")]
    Truncated {
        /// Bytes that the header declares, header included.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A file goes on after what its header declares.
    #[error("oversized: {expected} bytes expected, but there are at least {found}")]
    Oversized {
        /// Bytes that the header declares, header included.
        expected: u64,
        /// Bytes there are, at least (what follows is not read).
        found: u64,
    },
    /// The file is not of its format, or of a variant that is not supported.
    #[error("{0}")]
    Format(String),
    /// A data set may hold at most `u32::MAX` examples.
    #[error("{found} examples: more than the supported 4294967295")]
    TooManyExamples {
        /// Examples there are.
        found: u64,
    },
    /// Inputs and targets (or groups) are not of one length.
    #[error("{what} for {found} examples, but inputs for {inputs}")]
    LengthsDiffer {
        /// What was counted beside the inputs.
        what: &'static str,
        /// How many of them.
        found: usize,
        /// How many inputs.
        inputs: usize,
    },
    /// The number of values is not a multiple of the size of an example.
    #[error("{values} values cannot be examples of {size} values each")]
    NotWholeExamples {
        /// Values there are.
        values: usize,
        /// Values in one example.
        size: usize,
    },
    /// A class label is not below the number of classes.
    #[error("example {row} (counted from 0) has label {label}, but there are {classes} classes, 0 to {}", classes.saturating_sub(1))]
    LabelOutsideClasses {
        /// The example, counted from 0.
        row: usize,
        /// Its label.
        label: i64,
        /// The number of classes.
        classes: usize,
    },
    /// A value is NaN or infinite, or a multi-label target is outside 0 to 1.
    #[error("example {row} (counted from 0) has {what} {value}; {wanted}")]
    ValueOutsideRange {
        /// The example, counted from 0.
        row: usize,
        /// `input` or `target`.
        what: &'static str,
        /// The value.
        value: f32,
        /// What would be right.
        wanted: &'static str,
    },
    /// Training and test examples do not fit together.
    #[error("training and test examples differ: {what} {train} against {test}")]
    SplitDiffers {
        /// What differs.
        what: &'static str,
        /// In the training examples.
        train: String,
        /// In the test examples.
        test: String,
    },
    /// A cell of a table cannot be used.
    #[error("line {line}, column `{column}`: {problem}")]
    Cell {
        /// The line in the file, counted from 1.
        line: u64,
        /// The column's name, or its index from 0 where there is no header.
        column: String,
        /// What is wrong with the cell.
        problem: String,
    },
    /// A column that the description names is not in the table.
    #[error("no column {column}; there are: {columns}")]
    NoSuchColumn {
        /// The column asked for.
        column: String,
        /// The columns there are (the first of them, if many).
        columns: String,
    },
    /// The data set's targets are of another kind than needed.
    #[error("{what} needs {needed}, but the data set's targets are {held}")]
    TargetsDiffer {
        /// What needs them.
        what: &'static str,
        /// The kind of targets needed.
        needed: &'static str,
        /// The kind of targets held.
        held: &'static str,
    },
    /// A setting is out of its range.
    #[error("`{key}` is {value}, but must be {range}")]
    Setting {
        /// The key in the description.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// A natural partition without a column of groups.
    #[error("a natural partition needs a column of groups: name it as `group` under [data]")]
    NoGroups,
    /// A natural partition over another number of clients than there are groups.
    #[error(
        "a natural partition makes one client of each group: there are {groups} groups, but {clients} clients; set `clients = {groups}`"
    )]
    GroupsDiffer {
        /// Groups in the data.
        groups: usize,
        /// Clients in the description.
        clients: usize,
    },
    /// No place gave a file that was to be fetched.
    #[error(
        "{file} could not be fetched:\n  {}\nGet the set's four files elsewhere (train-images-idx3-ubyte, \
         train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; each may be .gz), then run \
         `selvedge data fetch {set} --from FOLDER-OR-URL`, or put them into {}",
        failures.join("\n  "), into.display()
    )]
    NotFetched {
        /// The file's usual name.
        file: &'static str,
        /// The set's name.
        set: &'static str,
        /// Where it should have gone.
        into: PathBuf,
        /// Each place that was tried, and what was wrong there.
        failures: Vec<String>,
    },
}

impl DataError {
    /// A short, stable name for the kind of error; the book has a line on each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InFile { problem, .. } => problem.code(),
            Self::Io(_) => "E-DATA-FILE",
            Self::SetMissing { .. } => "E-DATA-MISSING",
            Self::NotBuiltIn => "E-DATA-NOT-BUILT-IN",
            Self::InMemory => "E-DATA-IN-MEMORY",
            Self::NoSuchExample { .. } => "E-DATA-COUNT",
            Self::Truncated { .. } => "E-DATA-TRUNCATED",
            Self::Oversized { .. } => "E-DATA-OVERSIZED",
            Self::Format(_) => "E-DATA-FORMAT",
            Self::TooManyExamples { .. } | Self::LengthsDiffer { .. } | Self::NotWholeExamples { .. } => "E-DATA-COUNT",
            Self::LabelOutsideClasses { .. } => "E-DATA-LABEL",
            Self::ValueOutsideRange { .. } => "E-DATA-VALUE",
            Self::SplitDiffers { .. } => "E-DATA-SPLIT",
            Self::Cell { .. } => "E-DATA-CELL",
            Self::NoSuchColumn { .. } => "E-DATA-COLUMN",
            Self::TargetsDiffer { .. } => "E-DATA-TARGETS",
            Self::Setting { .. } => "E-DATA-SETTING",
            Self::NoGroups | Self::GroupsDiffer { .. } => "E-DATA-GROUPS",
            Self::Custom { .. } => "E-DATA-CUSTOM",
            Self::NotFetched { .. } => "E-DATA-NOT-FETCHED",
        }
    }

    /// Adds the file's name, unless it is already there.
    pub fn in_file(self, file: &Path) -> Self {
        match self {
            named @ (Self::InFile { .. } | Self::SetMissing { .. }) => named,
            problem => Self::InFile {
                file: file.to_path_buf(),
                problem: Box::new(problem),
            },
        }
    }
}
