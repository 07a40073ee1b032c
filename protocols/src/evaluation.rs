//! Evaluation of a model on examples.

use candle_core::{Device, Tensor};
use selvedge_data::{Dataset, Targets};
use selvedge_learning::local::LocalError;
use selvedge_models::{self as models, Loss, Mode, ModelError, Network};

use crate::message::Evaluation;

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
    pub fn targets(&self, dataset: &Dataset) -> models::BatchTargets<'_> {
        match dataset.targets() {
            Targets::Classes { .. } => models::BatchTargets::Classes(&self.classes),
            Targets::MultiLabel { .. } | Targets::Values { .. } => models::BatchTargets::Values(&self.values),
        }
    }
}

/// What an evaluation gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tested {
    /// Over all examples.
    pub all: Evaluation,
    /// Class by class, where that was asked for.
    pub by_class: ByClass,
}

impl Tested {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.all.add(other.all);
        self.by_class.add(&other.by_class);
    }
}

/// Evaluates `network` on the examples with these indices, `by_class` too if that is wanted. Sums go over the examples in
/// the order given.
///
/// # Errors
/// When the network cannot take the examples.
pub fn evaluate(
    network: &mut Network,
    loss: Loss,
    dataset: &Dataset,
    examples: &[u32],
    by_class: bool,
) -> Result<Tested, LocalError> {
    let mut batch = Batch::default();
    let mut tested = Tested::default();
    for examples in examples.chunks(BATCH) {
        let inputs = batch.gather(dataset, examples)?;
        let outputs = network.forward(&inputs, &mut Mode::Evaluate)?;
        let targets = batch.targets(dataset);
        let score = loss.score(&outputs, targets)?;
        tested.all.add(Evaluation {
            examples: examples.len() as u64,
            correct: score.correct as u64,
            loss: score.sum,
        });
        if let (true, models::BatchTargets::Classes(classes)) = (by_class, targets) {
            for (at, class) in classes.iter().enumerate() {
                let row = outputs.narrow(0, at, 1).map_err(ModelError::from)?;
                let score = loss.score(&row, models::BatchTargets::Classes(&classes[at..=at]))?;
                tested.by_class.count(*class as usize, score.correct == 1);
            }
        }
    }
    Ok(tested)
}

/// For each class, on how many of its examples a model was right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByClass(Vec<ClassCount>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassCount {
    examples: u64,
    correct: u64,
}

impl ByClass {
    fn count(&mut self, class: usize, is_correct: bool) {
        if self.0.len() <= class {
            self.0.resize(class + 1, ClassCount::default());
        }
        self.0[class].examples += 1;
        self.0[class].correct += u64::from(is_correct);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), ClassCount::default());
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.examples += other.examples;
            own.correct += other.correct;
        }
    }

    /// The accuracy that it comes to where classes are as frequent as these counts; `None` where no class is among both.
    pub fn accuracy_for(&self, frequencies: &[u64]) -> Option<f64> {
        let (mut sum, mut all) = (0.0, 0.0);
        for (count, frequency) in self.0.iter().zip(frequencies).filter(|(count, _)| count.examples > 0) {
            sum += *frequency as f64 * count.correct as f64 / count.examples as f64;
            all += *frequency as f64;
        }
        (all > 0.0).then(|| sum / all)
    }

    /// The mean of the classes' accuracies; `None` without examples.
    pub fn balanced_accuracy(&self) -> Option<f64> {
        self.accuracy_for(&vec![1; self.0.len()])
    }
}

/// All examples of a data set, as indices.
pub fn all_examples(dataset: &Dataset) -> Vec<u32> {
    (0..dataset.len() as u32).collect()
}
