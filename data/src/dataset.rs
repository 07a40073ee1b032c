//! A data set: inputs and targets of examples, held once, gathered by index.

use crate::DataError;

/// Input values of all examples, row-major, one example after the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Inputs {
    /// Bytes, kept as such and scaled to 0..1 (divided by 255) when they are gathered: a quarter of the memory.
    Bytes(Vec<u8>),
    /// Floating-point values, gathered unchanged.
    Floats(Vec<f32>),
}

impl Inputs {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Floats(values) => values.len(),
        }
    }
}

/// What a model is to predict for each example.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// One class each.
    Classes {
        /// A label for each example, each below `classes`.
        labels: Vec<u32>,
        /// The number of classes.
        classes: usize,
    },
    /// Any number of `width` labels each, for binary cross-entropy.
    MultiLabel {
        /// `width` values between 0 and 1 for each example, row-major.
        values: Vec<f32>,
        /// Labels per example.
        width: usize,
    },
    /// `width` real values each, for regression.
    Values {
        /// `width` values for each example, row-major.
        values: Vec<f32>,
        /// Values per example.
        width: usize,
    },
}

impl Targets {
    /// `classes`, `multi-label` or `values`: the word that a description uses.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Classes { .. } => "classes",
            Self::MultiLabel { .. } => "multi-label",
            Self::Values { .. } => "values",
        }
    }

    /// What a model has to put out for one example: the number of classes, labels or values.
    pub fn width(&self) -> usize {
        match *self {
            Self::Classes { classes, .. } => classes,
            Self::MultiLabel { width, .. } | Self::Values { width, .. } => width,
        }
    }

    fn check(&self, examples: usize) -> Result<(), DataError> {
        let count = match self {
            Self::Classes { labels, classes } => {
                if !(1..=MOST_CLASSES).contains(classes) {
                    let range = "between 1 and 1048576";
                    return Err(DataError::Setting {
                        key: "classes",
                        value: classes.to_string(),
                        range,
                    });
                }
                if let Some((row, &label)) = labels
                    .iter()
                    .enumerate()
                    .find(|&(_, &label)| label as usize >= *classes)
                {
                    return Err(DataError::LabelOutsideClasses {
                        row,
                        label: label.into(),
                        classes: *classes,
                    });
                }
                labels.len()
            }
            Self::MultiLabel { values, width } => {
                let range = |value: f32| (0.0..=1.0).contains(&value);
                check_values(values, *width, "target", "a label is between 0 and 1", range)?
            }
            Self::Values { values, width } => check_values(values, *width, "target", FINITE, f32::is_finite)?,
        };
        if count != examples {
            return Err(DataError::LengthsDiffer {
                what: "targets",
                found: count,
                inputs: examples,
            });
        }
        Ok(())
    }
}

/// Which group (a writer, a device, a hospital) each example comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    /// The groups' names, sorted.
    pub names: Vec<String>,
    /// For each example, the index of its group in `names`.
    pub of_example: Vec<u32>,
}

impl Groups {
    /// Groups from each example's group name.
    pub fn from_names(of_example: &[String]) -> Self {
        let mut names = of_example.to_vec();
        names.sort_unstable();
        names.dedup();
        let index = |name: &String| names.partition_point(|other| other < name) as u32;
        let of_example = of_example.iter().map(index).collect();
        Self { names, of_example }
    }
}

/// Examples, held once; clients hold lists of indices into them.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    inputs: Inputs,
    example_shape: Vec<usize>,
    targets: Targets,
    groups: Option<Groups>,
    len: usize,
}

/// The most classes there may be: counts are kept for each of them, for each client.
pub(crate) const MOST_CLASSES: usize = 1 << 20;

const FINITE: &str = "NaN and infinity cannot be learned from";

impl Dataset {
    /// A data set of `inputs`, each example of `example_shape` (images: channels, height, width), and `targets`.
    ///
    /// # Errors
    /// When the lengths do not fit together, a label is not below the number of classes, a value is NaN or
    /// infinite, a multi-label target is outside 0..1, or there are more than `u32::MAX` examples.
    pub fn new(inputs: Inputs, example_shape: Vec<usize>, targets: Targets) -> Result<Self, DataError> {
        let size = example_shape
            .iter()
            .try_fold(1_usize, |product, &dimension| product.checked_mul(dimension));
        let size = size.unwrap_or(0);
        if size == 0 || !inputs.len().is_multiple_of(size) {
            return Err(DataError::NotWholeExamples {
                values: inputs.len(),
                size,
            });
        }
        let len = inputs.len() / size;
        if len > u32::MAX as usize {
            return Err(DataError::TooManyExamples { found: len as u64 });
        }
        if let Inputs::Floats(values) = &inputs {
            check_values(values, size, "input", FINITE, f32::is_finite)?;
        }
        targets.check(len)?;
        Ok(Self {
            inputs,
            example_shape,
            targets,
            groups: None,
            len,
        })
    }

    /// The same data set with the group that each example comes from.
    ///
    /// # Errors
    /// When there is not exactly one group for each example.
    pub fn with_groups(mut self, groups: Groups) -> Result<Self, DataError> {
        let found = groups.of_example.len();
        if found != self.len {
            return Err(DataError::LengthsDiffer {
                what: "groups",
                found,
                inputs: self.len,
            });
        }
        if let Some(row) = groups
            .of_example
            .iter()
            .position(|&group| group as usize >= groups.names.len())
        {
            let (label, classes) = (groups.of_example[row].into(), groups.names.len());
            return Err(DataError::LabelOutsideClasses { row, label, classes });
        }
        self.groups = Some(groups);
        Ok(self)
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The shape of one example's input; images are channels, height, width.
    pub fn example_shape(&self) -> &[usize] {
        &self.example_shape
    }

    /// The number of input values of one example.
    pub fn example_size(&self) -> usize {
        self.example_shape.iter().product()
    }

    /// The targets of all examples.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The group of each example, if the data says.
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// Fills `into` with the inputs of the examples at `indices`, in their order: batch first, row-major.
    ///
    /// # Panics
    /// When an index is not below [`Dataset::len`].
    pub fn gather_inputs(&self, indices: &[u32], into: &mut Vec<f32>) {
        let size = self.example_size();
        into.clear();
        into.reserve(indices.len() * size);
        match &self.inputs {
            Inputs::Bytes(bytes) => {
                for example in rows(bytes, size, indices) {
                    into.extend(example.iter().map(|&byte| f32::from(byte) / 255.0));
                }
            }
            Inputs::Floats(values) => rows(values, size, indices).for_each(|example| into.extend_from_slice(example)),
        }
    }

    /// Fills `into` with the labels of the examples at `indices`, in their order.
    ///
    /// # Errors
    /// When the targets are not classes.
    ///
    /// # Panics
    /// When an index is not below [`Dataset::len`].
    pub fn gather_classes(&self, indices: &[u32], into: &mut Vec<u32>) -> Result<(), DataError> {
        let labels = self.labels("this loss")?.0;
        into.clear();
        into.extend(indices.iter().map(|&index| labels[index as usize]));
        Ok(())
    }

    /// Fills `into` with the multi-label or real targets of the examples at `indices`: batch first, row-major.
    ///
    /// # Errors
    /// When the targets are classes.
    ///
    /// # Panics
    /// When an index is not below [`Dataset::len`].
    pub fn gather_values(&self, indices: &[u32], into: &mut Vec<f32>) -> Result<(), DataError> {
        let (Targets::MultiLabel { values, width } | Targets::Values { values, width }) = &self.targets else {
            let (needed, held) = ("multi-label or values", self.targets.kind());
            return Err(DataError::TargetsDiffer {
                what: "this loss",
                needed,
                held,
            });
        };
        into.clear();
        rows(values, *width, indices).for_each(|target| into.extend_from_slice(target));
        Ok(())
    }

    /// Labels and number of classes, or an error that says `what` needs them.
    pub(crate) fn labels(&self, what: &'static str) -> Result<(&[u32], usize), DataError> {
        match &self.targets {
            Targets::Classes { labels, classes } => Ok((labels, *classes)),
            other => Err(DataError::TargetsDiffer {
                what,
                needed: "classes",
                held: other.kind(),
            }),
        }
    }
}

/// Training examples, and test examples where there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainAndTest {
    /// What clients train on.
    pub train: Dataset,
    /// What the model is evaluated on.
    pub test: Option<Dataset>,
}

impl TrainAndTest {
    /// Joins training and test examples.
    ///
    /// # Errors
    /// When they differ in the shape of an example or in the kind or width of targets.
    pub fn new(train: Dataset, test: Option<Dataset>) -> Result<Self, DataError> {
        if let Some(test) = &test {
            let differs = |what, train: String, test: String| Err(DataError::SplitDiffers { what, train, test });
            let shapes = (train.example_shape(), test.example_shape());
            if shapes.0 != shapes.1 {
                return differs(
                    "shape of an example",
                    format!("{:?}", shapes.0),
                    format!("{:?}", shapes.1),
                );
            }
            let kinds = (train.targets(), test.targets());
            if kinds.0.kind() != kinds.1.kind() {
                return differs("targets", kinds.0.kind().into(), kinds.1.kind().into());
            }
            if kinds.0.width() != kinds.1.width() {
                return differs(
                    "width of targets",
                    kinds.0.width().to_string(),
                    kinds.1.width().to_string(),
                );
            }
        }
        Ok(Self { train, test })
    }
}

/// The rows of a row-major matrix at `indices`.
fn rows<'a, T>(matrix: &'a [T], width: usize, indices: &'a [u32]) -> impl Iterator<Item = &'a [T]> {
    indices
        .iter()
        .map(move |&index| &matrix[index as usize * width..][..width])
}

/// Checks every value, and gives the number of rows.
fn check_values(
    values: &[f32],
    width: usize,
    what: &'static str,
    wanted: &'static str,
    allowed: impl Fn(f32) -> bool,
) -> Result<usize, DataError> {
    if width == 0 || !values.len().is_multiple_of(width) {
        return Err(DataError::NotWholeExamples {
            values: values.len(),
            size: width,
        });
    }
    match values.iter().position(|&value| !allowed(value)) {
        Some(at) => Err(DataError::ValueOutsideRange {
            row: at / width,
            what,
            value: values[at],
            wanted,
        }),
        None => Ok(values.len() / width),
    }
}

#[cfg(test)]
mod tests;
