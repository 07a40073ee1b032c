//! Reading and writing descriptions.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use selvedge_words::{
    Registry,
    choice::{INSIDE, misplaced_kind},
};
use toml::{Table, Value};

use super::{Description, Problem};

/// What is wrong with a description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The text is not TOML.
    #[error("{origin}: not valid TOML: {error}")]
    NotToml {
        /// The file, or where else the text came from.
        origin: String,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// A key is unknown, missing, or has a value of the wrong kind.
    #[error("{origin}: {at}{message}")]
    Key {
        /// The file, or where else the text came from.
        origin: String,
        /// The key and a colon, or nothing for the description as a whole.
        at: String,
        /// What is wrong.
        message: String,
    },
    /// Values are out of range or do not go together.
    #[error("{origin}: {}", list(problems))]
    Problems {
        /// The file, or where else the text came from.
        origin: String,
        /// All of them.
        problems: Vec<Problem>,
    },
    /// An override is not of the form `key=value`, or its key leads through a value.
    #[error("--set {text}: {reason}")]
    Override {
        /// The override as given.
        text: String,
        /// What is wrong.
        reason: String,
    },
}

impl DescriptionError {
    /// A short, stable name for the kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "E-RUN-FILE",
            Self::NotToml { .. } => "E-RUN-TOML",
            Self::Key { .. } => "E-RUN-KEY",
            Self::Problems { .. } => "E-RUN-RANGE",
            Self::Override { .. } => "E-RUN-SET",
        }
    }
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.key, problem.message))
        .collect();
    lines.join("\n  ")
}

/// One `--set a.b=c`.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    path: Vec<String>,
    value: Value,
}

impl FromStr for Override {
    type Err = DescriptionError;

    /// Reads `key.path=value`. The value is read as TOML, and as plain text when it is none: `algorithm.kind=fedprox`.
    fn from_str(text: &str) -> Result<Self, DescriptionError> {
        let error = |reason: &str| DescriptionError::Override {
            text: text.into(),
            reason: reason.into(),
        };
        let (path, value) = text
            .split_once('=')
            .ok_or_else(|| error("write key=value, such as rounds=5"))?;
        let path: Vec<String> = path.trim().split('.').map(|key| key.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(error("the key is empty; write key=value, such as cohort.size=5"));
        }
        let parsed = format!("value = {value}")
            .parse::<Table>()
            .ok()
            .and_then(|mut table| match table.len() {
                1 => table.remove("value"),
                _ => None,
            });
        Ok(Self {
            path,
            value: parsed.unwrap_or_else(|| Value::String(value.trim().into())),
        })
    }
}

/// Keys that are set instead of another of the same table.
const INSTEAD: [(&str, &str); 3] = [("preset", "layers"), ("epochs", "steps"), ("steps", "epochs")];

/// Keys that say what the other keys of their table can be.
const KINDS: [&str; 2] = ["kind", "source"];

impl Override {
    fn apply(&self, table: &mut Table) -> Result<(), DescriptionError> {
        let [path @ .., last] = self.path.as_slice() else {
            return Ok(());
        };
        let mut at = table;
        for key in path {
            let next = at.entry(key.as_str()).or_insert_with(|| Value::Table(Table::new()));
            at = next.as_table_mut().ok_or_else(|| DescriptionError::Override {
                text: format!("{}=…", self.path.join(".")),
                reason: format!("`{key}` is a value, not a table"),
            })?;
        }
        if let Some((_, instead)) = INSTEAD.iter().find(|(key, _)| key == last) {
            at.remove(*instead);
        }
        at.insert(last.clone(), self.value.clone());
        Ok(())
    }

    /// Whether it gives the table at `path` another kind.
    fn is_kind_of(&self, path: &str) -> bool {
        let [table @ .., last] = self.path.as_slice() else {
            return false;
        };
        KINDS.contains(&last.as_str()) && table.join(".") == path
    }

    fn is_at(&self, path: &str, key: &str) -> bool {
        self.path.join(".") == format!("{path}.{key}")
    }
}

impl Description {
    /// Reads a description's file, applies `overrides`, and checks the result.
    ///
    /// # Errors
    /// When the file cannot be read or is no description; the error names the file and the key.
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self, DescriptionError> {
        let text = read_bounded(path).map_err(|error| DescriptionError::Unreadable {
            path: path.into(),
            error,
        })?;
        Self::parse(&text, &path.display().to_string(), overrides)
    }

    /// Reads a description from text; `origin` says in errors where it came from.
    ///
    /// # Errors
    /// When the text is no description; the error names the key.
    pub fn parse(text: &str, origin: &str, overrides: &[Override]) -> Result<Self, DescriptionError> {
        Self::parse_with(&Registry::new(), text, origin, overrides)
    }

    /// [`parse`](Self::parse) of a description that may choose what is registered, too.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_with(
        registry: &Registry,
        text: &str,
        origin: &str,
        overrides: &[Override],
    ) -> Result<Self, DescriptionError> {
        let mut table: Table = text.parse().map_err(|error| DescriptionError::NotToml {
            origin: origin.into(),
            error: Box::new(error),
        })?;
        for change in overrides {
            change.apply(&mut table)?;
        }
        let description: Self = loop {
            let read = || serde_path_to_error::deserialize(Value::Table(table.clone()));
            let error = match registry.lend(read) {
                Ok(description) => break description,
                Err(error) => error,
            };
            let (path, message) = inside(error.path().to_string(), error.into_inner().message());
            // Where another kind was set, the keys that only the old one knows go; those that were set stay, and are
            // errors.
            let unknown = message
                .strip_prefix("unknown field `")
                .and_then(|rest| rest.split('`').next());
            let leftover = unknown.filter(|key| {
                overrides.iter().any(|change| change.is_kind_of(&path))
                    && !overrides.iter().any(|change| change.is_at(&path, key))
            });
            if leftover.is_none_or(|key| remove(&mut table, &path, key).is_none()) {
                let at = match path.as_str() {
                    "." => String::new(),
                    path => format!("{path}: "),
                };
                return Err(DescriptionError::Key {
                    origin: origin.into(),
                    at,
                    message: explained(&message),
                });
            }
        };
        let problems = description.problems();
        match problems.is_empty() {
            true => Ok(description),
            false => Err(DescriptionError::Problems {
                origin: origin.into(),
                problems,
            }),
        }
    }

    /// The description as TOML, with every default written out.
    pub fn to_toml(&self) -> String {
        // What TOML cannot hold is found when the description is checked.
        toml::to_string(self).unwrap_or_default()
    }
}

/// The path and the message of an error, which for one inside the settings of a choice holds the rest of the path.
fn inside(path: String, message: &str) -> (String, String) {
    let (mut path, mut message) = (path, message);
    while let Some((rest, said)) = message.split_once(INSIDE) {
        path = match path.as_str() {
            "." => rest.into(),
            path => format!("{path}.{rest}"),
        };
        message = said;
    }
    (path, message.into())
}

/// Removes a key from the table at a dotted path.
fn remove(table: &mut Table, path: &str, key: &str) -> Option<Value> {
    let table = path
        .split('.')
        .try_fold(table, |table, key| table.get_mut(key)?.as_table_mut());
    table?.remove(key)
}

/// The most bytes of a description's file.
const LONGEST_FILE: u64 = 1 << 20;

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
    match read as u64 > LONGEST_FILE {
        true => Err(io::Error::other(format!("longer than {LONGEST_FILE} bytes"))),
        false => Ok(text),
    }
}

/// Puts serde's words into those of a description; adds to "unknown field `x`, expected one of `a`, `b`" the known name
/// nearest to `x`, and to a kind that stands where its table is wanted how it is written.
fn explained(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("invalid type: string \"")
        && let Some((kind, rest)) = rest.split_once('"')
        && rest.contains("internally tagged enum")
    {
        return misplaced_kind(kind);
    }
    let message = message
        .replace("unknown field", "unknown key")
        .replace("missing field", "missing key");
    let is_unknown = message.starts_with("unknown key") || message.starts_with("unknown variant");
    let mut quoted = message.split('`').skip(1).step_by(2);
    let (true, Some(unknown)) = (is_unknown, quoted.next()) else {
        return message;
    };
    let nearest = quoted
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .min()
        .filter(|&(distance, known)| distance <= 3.max(known.len() / 2));
    match nearest {
        Some((_, known)) => format!("{message}; did you mean `{known}`?"),
        None => message,
    }
}
