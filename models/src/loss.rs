//! Losses: how far outputs are from their targets, and which way is down.

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// A loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Softmax cross-entropy of `[..., classes]` logits with one class for each row. Correct is a row whose largest
    /// logit (the first of equals) is its class.
    #[default]
    CrossEntropy,
    /// For several labels at once: sigmoid cross-entropy of `[examples, labels]` logits with a 0 or 1 (or a share) for
    /// each, averaged over an example's labels. Correct is an example with every label on its side of one half.
    BinaryCrossEntropy,
    /// The squared difference, averaged over an example's values. Nothing counts as correct.
    MeanSquaredError,
}

/// What the outputs should have been.
#[derive(Clone, Copy, Debug)]
pub enum BatchTargets<'a> {
    /// A class for each example.
    Classes(&'a [u32]),
    /// As many values for each example as there are outputs.
    Values(&'a [f32]),
}

/// A batch's loss, counted so that batches can be pooled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Score {
    /// The sum of the examples' losses.
    pub sum: f64,
    /// Examples.
    pub examples: usize,
    /// Examples that were right.
    pub correct: usize,
}

/// A batch's loss and its gradient.
#[derive(Clone, Debug)]
pub struct LossValue {
    /// The sum of the examples' losses.
    pub sum: f64,
    /// Examples.
    pub examples: usize,
    /// Examples that were right.
    pub correct: usize,
    /// The gradient of the mean over the batch, shaped like the outputs.
    pub gradient: Tensor,
}

impl Loss {
    /// Whether outputs are right or wrong by it, so that there is an accuracy.
    pub fn has_accuracy(&self) -> bool {
        !matches!(self, Self::MeanSquaredError)
    }

    /// The loss of a batch and its gradient at the outputs.
    ///
    /// # Errors
    /// When targets and outputs do not go together, or the batch is empty.
    pub fn evaluate(&self, outputs: &Tensor, targets: BatchTargets<'_>) -> Result<LossValue, ModelError> {
        let mut values = read(outputs)?;
        let Score { sum, examples, correct } = self.run(outputs.dims(), &mut values, targets)?;
        let gradient = Tensor::from_vec(values, outputs.shape(), outputs.device())?;
        Ok(LossValue {
            sum,
            examples,
            correct,
            gradient,
        })
    }

    /// The loss of a batch without its gradient.
    ///
    /// # Errors
    /// As for [`evaluate`](Self::evaluate).
    pub fn score(&self, outputs: &Tensor, targets: BatchTargets<'_>) -> Result<Score, ModelError> {
        self.run(outputs.dims(), &mut read(outputs)?, targets)
    }

    /// Turns the outputs in `values` into the gradient.
    fn run(&self, shape: &[usize], values: &mut [f32], targets: BatchTargets<'_>) -> Result<Score, ModelError> {
        if values.is_empty() {
            return Err(ModelError::EmptyBatch);
        }
        match (self, targets) {
            (Self::CrossEntropy, BatchTargets::Classes(classes)) => {
                let outputs = shape.last().copied().unwrap_or(1);
                fits(
                    "one class for each row of outputs",
                    classes.len(),
                    values.len() / outputs,
                )?;
                cross_entropy(values, classes)
            }
            (Self::CrossEntropy, BatchTargets::Values(_)) => wrong("cross-entropy needs classes"),
            (_, BatchTargets::Classes(_)) => wrong("this loss needs values, not classes"),
            (_, BatchTargets::Values(targets)) => {
                fits("one value for each output", targets.len(), values.len())?;
                let examples = shape.first().copied().unwrap_or(1);
                let point = match self {
                    Self::BinaryCrossEntropy => binary_cross_entropy,
                    _ => squared_error,
                };
                Ok(by_value(values, targets, examples, point))
            }
        }
    }
}

fn wrong<T>(text: &str) -> Result<T, ModelError> {
    Err(ModelError::Targets(text.to_string()))
}

fn fits(what: &str, given: usize, expected: usize) -> Result<(), ModelError> {
    if given != expected {
        return wrong(&format!("{what} are needed: {expected}, but there are {given}"));
    }
    Ok(())
}

fn read(outputs: &Tensor) -> Result<Vec<f32>, ModelError> {
    Ok(outputs.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
}

fn cross_entropy(values: &mut [f32], classes: &[u32]) -> Result<Score, ModelError> {
    let examples = classes.len();
    let share = 1.0 / examples as f32;
    let outputs = values.len() / examples;
    let mut score = Score {
        examples,
        ..Score::default()
    };
    for (row, class) in values.chunks_exact_mut(outputs).zip(classes) {
        let class = *class as usize;
        if class >= outputs {
            return wrong(&format!("class {class} is beyond the model's {outputs} outputs"));
        }
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let winner = row.iter().position(|value| *value == largest);
        let finite = row.iter().all(|value| value.is_finite());
        score.correct += usize::from(finite && winner == Some(class));
        let shifted = row[class] - largest;
        let mut total = 0.0;
        for value in row.iter_mut() {
            *value = (*value - largest).exp();
            total += *value;
        }
        score.sum += f64::from(total.ln() - shifted);
        let scale = share / total;
        for value in row.iter_mut() {
            *value *= scale;
        }
        row[class] -= share;
    }
    Ok(score)
}

/// What one output and its target come to.
struct Point {
    loss: f32,
    slope: f32,
    right: bool,
}

fn by_value(values: &mut [f32], targets: &[f32], examples: usize, point: fn(f32, f32) -> Point) -> Score {
    let mut score = Score {
        examples,
        ..Score::default()
    };
    let each = values.len() / examples;
    let share = 1.0 / values.len() as f32;
    for (row, targets) in values.chunks_exact_mut(each).zip(targets.chunks_exact(each)) {
        let (mut sum, mut right) = (0.0, true);
        for (value, target) in row.iter_mut().zip(targets) {
            let point = point(*value, *target);
            sum += f64::from(point.loss);
            right &= point.right;
            *value = share * point.slope;
        }
        score.sum += sum / each as f64;
        score.correct += usize::from(right);
    }
    score
}

fn binary_cross_entropy(logit: f32, target: f32) -> Point {
    Point {
        loss: logit.max(0.0) - logit * target + (-logit.abs()).exp().ln_1p(),
        slope: 1.0 / (1.0 + (-logit).exp()) - target,
        right: (logit > 0.0) == (target > 0.5),
    }
}

fn squared_error(output: f32, target: f32) -> Point {
    let difference = output - target;
    Point {
        loss: difference * difference,
        slope: 2.0 * difference,
        right: false,
    }
}
