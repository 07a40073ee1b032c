//! Where a run's examples come from: `[data]` of its description, without the partition.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use selvedge_words::{
    Choice,
    choice::{Choosable, Entry, ImplementedBy, Settings, tagged},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use toml::Table;

use crate::idx::{self, Idx};
use crate::well_known::{TEST, TRAIN, WellKnownSet};
use crate::{CsvTables, DataError, Dataset, Inputs, NumpyArrays, Targets, TrainAndTest};

/// Where a run's examples come from. Relative paths start at the folder given to [`Source::load`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "source", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// The built-in excerpt of Fashion-MNIST: 10,000 training and 2,000 test images of 1 × 28 × 28, 10 classes.
    FashionMnistSmall {},
    /// MNIST: 60,000 training and 10,000 test images of 1 × 28 × 28, 10 classes.
    Mnist {
        /// Folder of the four IDX files under their usual names, plain or `.gz`. Default: `datasets/mnist`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// Fashion-MNIST: 60,000 training and 10,000 test images of 1 × 28 × 28, 10 classes.
    FashionMnist {
        /// Folder of the four IDX files under their usual names, plain or `.gz`. Default: `datasets/fashion-mnist`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// IDX files of unsigned bytes, plain or gzipped. Bytes are scaled to 0..1. Images without a dimension for
    /// channels get one channel.
    Idx {
        /// Images to train on.
        train_images: PathBuf,
        /// Their labels.
        train_labels: PathBuf,
        /// Images to evaluate on. Default: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_images: Option<PathBuf>,
        /// Their labels. Given exactly when `test_images` is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_labels: Option<PathBuf>,
        /// The number of classes. Range: 1 or more. Default: the largest training label, plus 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        classes: Option<usize>,
    },
    /// CSV tables.
    Csv(CsvTables),
    /// NumPy arrays.
    Numpy(NumpyArrays),
    /// Examples that the program has, which is more than a command: there is nothing to load.
    Memory {},
    /// A source of a crate outside.
    #[serde(skip)]
    Custom(Choice<dyn DataSource>),
}

/// The sources in the list.
const SOURCES: [&str; 7] = [
    "fashion-mnist-small",
    "mnist",
    "fashion-mnist",
    "idx",
    "csv",
    "numpy",
    "memory",
];

/// Where examples come from, by a crate outside: settings, which are the keys of `[data]`. Once it is in the
/// [`Registry`](selvedge_words::Registry) that a description is read with, `source` can name it by its
/// [`KIND`](selvedge_words::choice::Settings::KIND).
///
/// ```
/// use std::path::Path;
/// use selvedge_data::{DataSource, Dataset, Inputs, Source, Targets, TrainAndTest};
/// use selvedge_words::{Registry, choice::Settings};
/// use serde::{Deserialize, Serialize};
///
/// /// Even and odd numbers.
/// #[derive(Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Parity {
///     examples: u32,
/// }
///
/// impl Settings for Parity {
///     const KIND: &'static str = "parity";
/// }
///
/// impl DataSource for Parity {
///     fn load(&self, _: &Path) -> Result<TrainAndTest, Box<dyn std::error::Error + Send + Sync>> {
///         let inputs = Inputs::Floats((0..self.examples).map(|at| at as f32).collect());
///         let labels = (0..self.examples).map(|at| at % 2).collect();
///         let train = Dataset::new(inputs, vec![1], Targets::Classes { labels, classes: 2 })?;
///         Ok(TrainAndTest::new(train, None)?)
///     }
/// }
///
/// let registry = Registry::new().with::<dyn DataSource, Parity>()?;
/// let source: Source = registry.lend(|| toml::from_str("source = 'parity'\nexamples = 10"))?;
/// assert_eq!(source.load(Path::new(""))?.train.len(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait DataSource: Send + Sync {
    /// Reads the examples; relative paths are relative to `base`.
    ///
    /// # Errors
    /// When they cannot be had; the error says why, and what to do.
    fn load(&self, base: &Path) -> Result<TrainAndTest, Box<dyn Error + Send + Sync>>;

    /// Reads the examples to evaluate on. Without anything said here, all are read and those are kept.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_test(&self, base: &Path) -> Result<Option<Dataset>, Box<dyn Error + Send + Sync>> {
        self.load(base).map(|sets| sets.test)
    }
}

impl Choosable for dyn DataSource {
    const WHAT: &'static str = "source";

    fn built_in() -> Vec<Entry<Self>> {
        Vec::new()
    }

    fn kinds() -> Vec<&'static str> {
        SOURCES.to_vec()
    }
}

impl<S: Settings + DataSource> ImplementedBy<S> for dyn DataSource {
    fn part(settings: &S) -> &Self {
        settings
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let Self::Custom(source) = self else {
            return Self::serialize(self, into);
        };
        let mut keys = Table::try_from(source).map_err(S::Error::custom)?;
        keys.remove("kind");
        keys.insert("source".into(), source.kind().into());
        keys.serialize(into)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (kind, mut keys) = tagged::<dyn DataSource, _>(from, "source")?;
        let is_listed = SOURCES.contains(&kind.as_str());
        let tag = if is_listed { "source" } else { "kind" };
        keys.insert(tag.into(), kind.into());
        let read = match is_listed {
            true => Self::deserialize(keys),
            false => Choice::deserialize(keys).map(Self::Custom),
        };
        read.map_err(|error| D::Error::custom(error.message()))
    }
}

impl Source {
    /// Reads the examples; relative paths are relative to `base`.
    ///
    /// # Errors
    /// When a file is missing, damaged or not what the description says: the file, the place in it, and what to do.
    pub fn load(&self, base: &Path) -> Result<TrainAndTest, DataError> {
        match self {
            #[cfg(feature = "built-in")]
            Self::FashionMnistSmall {} => TrainAndTest::new(crate::built_in::train()?, Some(crate::built_in::test()?)),
            #[cfg(not(feature = "built-in"))]
            Self::FashionMnistSmall {} => Err(DataError::NotBuiltIn),
            Self::Mnist { folder } => load_well_known(WellKnownSet::Mnist, folder.as_deref(), base),
            Self::FashionMnist { folder } => load_well_known(WellKnownSet::FashionMnist, folder.as_deref(), base),
            Self::Idx {
                train_images,
                train_labels,
                classes,
                ..
            } => {
                let train = load_idx(&base.join(train_images), &base.join(train_labels), *classes)?;
                let test = self.load_idx_test(base, Some(train.targets().width()))?;
                TrainAndTest::new(train, test)
            }
            Self::Csv(tables) => tables.load(base),
            Self::Numpy(arrays) => arrays.load(base),
            Self::Memory {} => Err(DataError::InMemory),
            Self::Custom(source) => source.load(base).map_err(|error| outside(source, error)),
        }
    }

    /// Reads the examples to evaluate on, and of the examples to train on no more than is needed to understand them:
    /// a CSV table whose classes, categories or scales are those of the training table needs it too, nothing else
    /// does.
    ///
    /// # Errors
    /// As for [`Source::load`].
    pub fn load_test(&self, base: &Path) -> Result<Option<Dataset>, DataError> {
        match self {
            #[cfg(feature = "built-in")]
            Self::FashionMnistSmall {} => crate::built_in::test().map(Some),
            #[cfg(not(feature = "built-in"))]
            Self::FashionMnistSmall {} => Err(DataError::NotBuiltIn),
            Self::Mnist { folder } => load_part(WellKnownSet::Mnist, folder.as_deref(), base, TEST).map(Some),
            Self::FashionMnist { folder } => {
                load_part(WellKnownSet::FashionMnist, folder.as_deref(), base, TEST).map(Some)
            }
            Self::Idx { classes, .. } => self.load_idx_test(base, *classes),
            Self::Csv(tables) => tables.load_test(base),
            Self::Numpy(arrays) => arrays.load_test(base, arrays.classes),
            Self::Memory {} => Err(DataError::InMemory),
            Self::Custom(source) => source.load_test(base).map_err(|error| outside(source, error)),
        }
    }

    /// Whether the examples mean the same to everybody who loads a table of their own, with rows of their own.
    ///
    /// # Errors
    /// When classes or categories are numbered as this table happens to have them.
    pub fn check_shared(&self) -> Result<(), DataError> {
        match self {
            Self::Csv(tables) => tables.check_shared(),
            _ => Ok(()),
        }
    }

    fn load_idx_test(&self, base: &Path, classes: Option<usize>) -> Result<Option<Dataset>, DataError> {
        let Self::Idx {
            test_images,
            test_labels,
            ..
        } = self
        else {
            return Ok(None);
        };
        let both = both(("test_images", test_images), ("test_labels", test_labels))?;
        both.map(|(images, labels)| load_idx(&base.join(images), &base.join(labels), classes))
            .transpose()
    }
}

fn outside(source: &Choice<dyn DataSource>, error: Box<dyn Error + Send + Sync>) -> DataError {
    DataError::Custom {
        kind: source.kind(),
        error,
    }
}

/// Two settings that are given together, or neither.
pub(crate) fn both<'a, T>(
    first: (&'static str, &'a Option<T>),
    second: (&'static str, &'a Option<T>),
) -> Result<Option<(&'a T, &'a T)>, DataError> {
    let alone = |key| DataError::Setting {
        key,
        value: "alone".into(),
        range: "given together with its partner (inputs or images with targets or labels), or neither",
    };
    match (first.1, second.1) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(alone(first.0)),
        (None, Some(_)) => Err(alone(second.0)),
    }
}

fn load_well_known(set: WellKnownSet, folder: Option<&Path>, base: &Path) -> Result<TrainAndTest, DataError> {
    let train = load_part(set, folder, base, TRAIN)?;
    TrainAndTest::new(train, Some(load_part(set, folder, base, TEST)?))
}

fn load_part(set: WellKnownSet, folder: Option<&Path>, base: &Path, names: [&str; 2]) -> Result<Dataset, DataError> {
    let folder = base.join(folder.map_or_else(|| set.default_folder(), Path::to_path_buf));
    let [images, labels] = set.files(&folder, names)?;
    load_idx(&images, &labels, Some(10))
}

fn load_idx(images: &Path, labels: &Path, classes: Option<usize>) -> Result<Dataset, DataError> {
    // Both files are named by the labels' error: a label or a count that does not fit is found there.
    image_classes(idx::read_file(images)?, idx::read_file(labels)?, classes).map_err(|problem| problem.in_file(labels))
}

/// A data set of images and their class labels.
pub(crate) fn image_classes(images: Idx, labels: Idx, classes: Option<usize>) -> Result<Dataset, DataError> {
    if labels.shape.len() != 1 {
        return Err(DataError::Format(format!(
            "labels have one dimension, not {:?}",
            labels.shape
        )));
    }
    let labels: Vec<u32> = labels.bytes.into_iter().map(u32::from).collect();
    let classes = classes.unwrap_or_else(|| labels.iter().max().map_or(1, |&label| label as usize + 1));
    let mut example_shape = images.shape.get(1..).unwrap_or_default().to_vec();
    if example_shape.len() == 2 {
        example_shape.insert(0, 1);
    }
    Dataset::new(
        Inputs::Bytes(images.bytes),
        example_shape,
        Targets::Classes { labels, classes },
    )
}

#[cfg(test)]
mod tests;
