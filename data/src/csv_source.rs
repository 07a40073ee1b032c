//! CSV tables as a source: what each column is.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::csv_table::{Columns, Rows};
use crate::{DataError, Dataset, Groups, Inputs, TargetKind, Targets, TrainAndTest, compression};

/// CSV tables, plain or gzipped. Each column is a number unless it is named here as something else; the inputs
/// are the columns in their order, categorical ones one-hot. An empty cell is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvTables {
    /// Table to train on.
    pub train: PathBuf,
    /// Table to evaluate on, with the same columns. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// The column of targets, by name or by index from 0; a list of them for multi-label targets and values.
    pub label: OneOrMore,
    /// What the targets are: `classes`, `multi-label` or `values`. Default: `classes`.
    #[serde(default)]
    pub targets: TargetKind,
    /// The classes: their number (labels are then 0, 1, …), or the list of their names, in order. Give them when
    /// clients load tables of their own, which may lack some. Default: the labels in the training table, sorted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassNames>,
    /// Columns of categories, each by name or index, or as `{ column, categories }` with the list of them. A
    /// column becomes as many inputs as it has categories. Range: at most 1024 categories in a column. Default:
    /// no column; the categories in the training table, sorted. A category that is not among them is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categorical: Vec<Categorical>,
    /// Columns to leave out, by name or index. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Column>,
    /// The column that says which group an example comes from, for a natural partition. It is no input.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Column>,
    /// Whether the first line holds the columns' names. Default: true.
    #[serde(default = "yes")]
    pub header: bool,
    /// The character between cells. Range: one ASCII character. Default: a comma.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// Whether to bring each numeric column to mean 0 and standard deviation 1, as measured on the training
    /// table. Default: false.
    #[serde(default)]
    pub standardise: bool,
}

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

/// A column, by index from 0 or by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column: its name, or its index from 0")]
pub enum Column {
    /// By index, counted from 0.
    Index(usize),
    /// By name, as in the header.
    Name(String),
}

/// One column, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a column (its name, or its index from 0), or a list of columns"
)]
pub enum OneOrMore {
    /// One column.
    One(Column),
    /// Several columns; their targets are in the order of the table.
    More(Vec<Column>),
}

impl OneOrMore {
    pub(crate) fn columns(&self) -> &[Column] {
        match self {
            Self::One(column) => std::slice::from_ref(column),
            Self::More(columns) => columns,
        }
    }
}

/// The classes that labels are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the number of classes, or the list of their names")]
pub enum ClassNames {
    /// Labels are 0, 1, … below this number.
    Count(usize),
    /// Labels are these, numbered in this order.
    Names(Vec<String>),
}

/// A column of categories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a column (its name, or its index from 0), or { column, categories }"
)]
pub enum Categorical {
    /// The categories are those in the training table, sorted.
    Learned(Column),
    /// The categories are given.
    Given {
        /// The column.
        column: Column,
        /// Its categories; the inputs are in this order.
        categories: Vec<String>,
    },
}

impl CsvTables {
    pub(crate) fn load(&self, base: &Path) -> Result<TrainAndTest, DataError> {
        let train_file = base.join(&self.train);
        let read_train = || {
            let (mut columns, mut rows) = Columns::read(compression::open(&train_file)?.bounded(), self)?;
            columns.fix(&mut rows);
            let scales = if self.standardise {
                columns.scales(&rows)
            } else {
                Vec::new()
            };
            let groups = columns.groups().map(|names| Groups {
                names,
                of_example: std::mem::take(&mut rows.groups),
            });
            let train = self.dataset(&columns, rows, &scales)?;
            let train = match groups {
                Some(groups) => train.with_groups(groups)?,
                None => train,
            };
            Ok((columns, scales, train))
        };
        let (mut columns, scales, train) = read_train().map_err(|problem: DataError| problem.in_file(&train_file))?;
        let test = self.test.as_ref().map(|test| {
            let file = base.join(test);
            let mut read_test = || {
                let rows = columns.read_more(compression::open(&file)?.bounded(), self)?;
                self.dataset(&columns, rows, &scales)
            };
            read_test().map_err(|problem| problem.in_file(&file))
        });
        TrainAndTest::new(train, test.transpose()?)
    }

    pub(crate) fn load_test(&self, base: &Path) -> Result<Option<Dataset>, DataError> {
        let Some(test) = &self.test else {
            return Ok(None);
        };
        if self.learns() {
            return Ok(self.load(base)?.test);
        }
        let file = base.join(test);
        let read = || {
            let (mut columns, mut rows) = Columns::read(compression::open(&file)?.bounded(), self)?;
            columns.fix(&mut rows);
            self.dataset(&columns, rows, &[])
        };
        read().map(Some).map_err(|problem: DataError| problem.in_file(&file))
    }

    /// Whether the training table says what the columns mean.
    fn learns(&self) -> bool {
        self.check_shared().is_err()
    }

    /// Whether the cells mean the same in every table: classes and categories numbered alike, and no scales of its own.
    pub(crate) fn check_shared(&self) -> Result<(), DataError> {
        let left_out = |key, range| DataError::Setting {
            key,
            value: "left to each table".into(),
            range,
        };
        if self.targets == TargetKind::Classes && self.classes.is_none() {
            let range = "their number, or the list of their names, the same for all clients and the coordinator";
            return Err(left_out("classes", range));
        }
        if self.standardise {
            let range = "false: each client would scale by its own table";
            return Err(left_out("standardise", range));
        }
        let learns = |column: &Categorical| matches!(column, Categorical::Learned(_));
        if self.categorical.iter().any(learns) {
            let range = "a list of { column, categories }, the same for all clients and the coordinator";
            return Err(left_out("categorical", range));
        }
        Ok(())
    }

    fn dataset(&self, columns: &Columns, rows: Rows, scales: &[(f64, f64)]) -> Result<Dataset, DataError> {
        let (inputs, width) = columns.inputs(&rows, scales);
        let targets = match self.targets {
            TargetKind::Classes => Targets::Classes {
                labels: rows.labels,
                classes: columns.classes().max(1),
            },
            TargetKind::MultiLabel => Targets::MultiLabel {
                values: rows.values,
                width: self.label.columns().len(),
            },
            TargetKind::Values => Targets::Values {
                values: rows.values,
                width: self.label.columns().len(),
            },
        };
        Dataset::new(Inputs::Floats(inputs), vec![width], targets)
    }
}

#[cfg(test)]
mod tests;
