//! Evaluation of a model on examples.

use candle_core::{Device, Tensor};
use selvedge_data::{Dataset, Targets};
use selvedge_models::{self as models, Loss, Mode, ModelError, Network};

use crate::{algorithm::LocalError, message::Evaluation};

/// Examples in one forward pass: few enough for what lies between two layers to stay in a cache.
const BATCH: usize = 20;
/// Examples that the coordinator evaluates as one. Fixed: sums are taken within chunks and then over chunks, in order, so that
/// they do not depend on how many threads share the work.
pub const TEST_CHUNK: usize = 500;

/// A batch of examples, as a network takes them.
#[derive(Default)]
pub struct Batch {
    inputs: Vec<f32>,
    classes: Vec<u32>,
    values: Vec<f32>,
}

impl Batch {
    /// Gathers examples; gives their inputs as a tensor, batch first.
    ///
    /// # Errors
    /// When the tensor cannot be made.
    pub fn gather(&mut self, dataset: &Dataset, examples: &[u32]) -> Result<Tensor, LocalError> {
        dataset.gather_inputs(examples, &mut self.inputs);
        match dataset.targets() {
            Targets::Classes { .. } => dataset.gather_classes(examples, &mut self.classes)?,
            Targets::MultiLabel { .. } | Targets::Values { .. } => dataset.gather_values(examples, &mut self.values)?,
        }
        let shape: Vec<usize> = [&[examples.len()], dataset.example_shape()].concat();
        Ok(Tensor::from_slice(&self.inputs, shape, &Device::Cpu).map_err(ModelError::from)?)
    }

    /// The targets of the examples gathered last.
    pub fn targets(&self, dataset: &Dataset) -> models::Targets<'_> {
        match dataset.targets() {
            Targets::Classes { .. } => models::Targets::Classes(&self.classes),
            Targets::MultiLabel { .. } | Targets::Values { .. } => models::Targets::Values(&self.values),
        }
    }
}

/// Evaluates `network` on the examples with these indices. Sums go over the examples in the order given.
///
/// # Errors
/// When the network cannot take the examples.
pub fn evaluate(
    network: &mut Network,
    loss: Loss,
    dataset: &Dataset,
    examples: &[u32],
) -> Result<Evaluation, LocalError> {
    let mut batch = Batch::default();
    let mut evaluation = Evaluation::default();
    for examples in examples.chunks(BATCH) {
        let inputs = batch.gather(dataset, examples)?;
        let outputs = network.forward(&inputs, &mut Mode::Evaluate)?;
        let score = loss.score(&outputs, batch.targets(dataset))?;
        evaluation.add(Evaluation {
            examples: examples.len() as u64,
            correct: score.correct as u64,
            loss: score.sum,
        });
    }
    Ok(evaluation)
}

/// All examples of a data set, as indices.
pub fn all_examples(dataset: &Dataset) -> Vec<u32> {
    (0..dataset.len() as u32).collect()
}
