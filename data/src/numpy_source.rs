//! NumPy arrays as a source.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::categories::Categories;
use crate::npy::{self, Array, Values};
use crate::source::both;
use crate::{DataError, Dataset, Groups, Inputs, TargetKind, Targets, TrainAndTest};

/// NumPy arrays: .npy files, or arrays in .npz archives. The first dimension counts the examples. Inputs of
/// unsigned bytes are scaled to 0..1; others are taken as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumpyArrays {
    /// Inputs to train on.
    pub train_inputs: ArrayFile,
    /// Their targets: integers for classes; a row for each example for multi-label targets and values.
    pub train_targets: ArrayFile,
    /// Inputs to evaluate on. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_inputs: Option<ArrayFile>,
    /// Their targets. Given exactly when `test_inputs` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_targets: Option<ArrayFile>,
    /// What the targets are: `classes`, `multi-label` or `values`. Default: `classes`.
    #[serde(default)]
    pub targets: TargetKind,
    /// The number of classes. Range: 1 to 1048576. Default: the largest training label, plus 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// For each training example an integer that says which group it comes from, for a natural partition.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ArrayFile>,
}

/// Where an array is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a .npy file, or { file, array } for an array in a .npz archive"
)]
pub enum ArrayFile {
    /// A .npy file.
    Npy(PathBuf),
    /// An array in a .npz archive.
    Npz {
        /// The archive.
        file: PathBuf,
        /// The array's name in it.
        array: String,
    },
}

impl ArrayFile {
    fn path(&self, base: &Path) -> PathBuf {
        let (Self::Npy(file) | Self::Npz { file, .. }) = self;
        base.join(file)
    }

    fn read(&self, base: &Path) -> Result<Array, DataError> {
        match self {
            Self::Npy(_) => npy::read_file(&self.path(base)),
            Self::Npz { array, .. } => npy::read_from_archive(&self.path(base), array),
        }
    }
}

impl NumpyArrays {
    pub(crate) fn load(&self, base: &Path) -> Result<TrainAndTest, DataError> {
        let mut train = self.dataset(&self.train_inputs, &self.train_targets, self.classes, base)?;
        if let Some(group) = &self.group {
            let with_groups = || train.with_groups(groups(group.read(base)?)?);
            train = with_groups().map_err(|problem| problem.in_file(&group.path(base)))?;
        }
        let test = self.load_test(base, Some(train.targets().width()))?;
        TrainAndTest::new(train, test)
    }

    pub(crate) fn load_test(&self, base: &Path, classes: Option<usize>) -> Result<Option<Dataset>, DataError> {
        let both = both(("test_inputs", &self.test_inputs), ("test_targets", &self.test_targets))?;
        both.map(|(inputs, targets)| self.dataset(inputs, targets, classes, base))
            .transpose()
    }

    fn dataset(
        &self,
        inputs: &ArrayFile,
        targets: &ArrayFile,
        classes: Option<usize>,
        base: &Path,
    ) -> Result<Dataset, DataError> {
        let inputs_file = inputs.path(base);
        let Array { mut shape, values } = inputs.read(base)?;
        let inputs = match values {
            Values::Bytes(bytes) => Inputs::Bytes(bytes),
            values => Inputs::Floats(floats(values)),
        };
        // One number for each example is an example of one number.
        shape.resize(shape.len().max(2), 1);
        let build = || {
            let array = targets.read(base)?;
            let width = array
                .shape
                .iter()
                .skip(1)
                .try_fold(1usize, |width, side| width.checked_mul(*side))
                .ok_or_else(|| DataError::Format(format!("targets of shape {:?} are too large", array.shape)))?;
            let targets = match self.targets {
                TargetKind::Classes => class_labels(array, classes)?,
                TargetKind::MultiLabel => Targets::MultiLabel {
                    values: floats(array.values),
                    width,
                },
                TargetKind::Values => Targets::Values {
                    values: floats(array.values),
                    width,
                },
            };
            Dataset::new(inputs, shape.split_off(1), targets)
        };
        build().map_err(|problem| match problem {
            DataError::ValueOutsideRange { what: "input", .. } => problem.in_file(&inputs_file),
            _ => problem.in_file(&targets.path(base)),
        })
    }
}

fn integers(values: Values, what: &str) -> Result<Vec<i64>, DataError> {
    match values {
        Values::Integers(integers) => Ok(integers),
        Values::Bytes(bytes) => Ok(bytes.into_iter().map(i64::from).collect()),
        Values::Floats(_) => Err(DataError::Format(format!("{what} are integers, not floats"))),
    }
}

fn floats(values: Values) -> Vec<f32> {
    match values {
        Values::Integers(integers) => integers.into_iter().map(|value| value as f32).collect(),
        Values::Bytes(bytes) => bytes.into_iter().map(f32::from).collect(),
        Values::Floats(floats) => floats,
    }
}

fn class_labels(array: Array, classes: Option<usize>) -> Result<Targets, DataError> {
    let labels = integers(array.values, "class labels")?;
    let most = labels.iter().copied().max().unwrap_or(0).max(0);
    let classes = classes.unwrap_or_else(|| usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1)));
    let label = |(row, label)| u32::try_from(label).map_err(|_| DataError::LabelOutsideClasses { row, label, classes });
    let labels = labels.into_iter().enumerate().map(label).collect::<Result<_, _>>()?;
    Ok(Targets::Classes { labels, classes })
}

fn groups(array: Array) -> Result<Groups, DataError> {
    let mut categories = Categories::default();
    let numbers = integers(array.values, "groups")?;
    let met: Vec<u32> = numbers
        .iter()
        .map(|number| categories.number(&number.to_string()).unwrap_or(0))
        .collect();
    let renumbered = categories.fix();
    let of_example = met.into_iter().map(|group| renumbered[group as usize]).collect();
    Ok(Groups {
        names: categories.names(),
        of_example,
    })
}

#[cfg(test)]
mod tests;
