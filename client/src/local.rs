//! The local steps of one client in one round.

use std::sync::atomic::Ordering;

use candle_core::Tensor;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use selvedge_data::Targets;
use selvedge_models::{LossValue, Mode, ModelError, Network, Optimiser, Weights};
use selvedge_protocols::{
    ClientName, Description, LocalError, LocalSteps, Part, Purpose, Trained,
    description::{SubModels, Training},
    evaluation::Batch,
    local::Correction,
};

use crate::{Examples, Trainer, batches::Batches};

/// The local steps of one client in one round.
pub(crate) struct Local<'a> {
    trainer: &'a mut Trainer,
    training: &'a Training,
    part: &'a Part,
    examples: Examples<'a>,
    random: ChaCha8Rng,
    /// What dropout draws from in each step.
    dropout: Box<dyn Fn(u64) -> ChaCha8Rng + 'a>,
    /// The norm within which the parameters are kept.
    radius: Option<f64>,
    /// 1 for each class of which the client has examples, 0 for the others, where the loss leaves those out.
    mask: Option<Tensor>,
}

impl<'a> Local<'a> {
    pub(crate) fn new(
        trainer: &'a mut Trainer,
        description: &'a Description,
        part: &'a Part,
        client: &'a ClientName,
        round: u32,
        examples: Examples<'a>,
    ) -> Result<Self, LocalError> {
        let seed = description.seed;
        let sub_models = description.sub_models.as_ref();
        let is_masked = sub_models.is_some_and(|sub_models| sub_models.masked_loss);
        let mask = match is_masked {
            true => mask(part, examples)?,
            false => None,
        };
        Ok(Self {
            trainer,
            training: &description.training,
            part,
            examples,
            random: seed.client_stream(Purpose::Training, round, client),
            dropout: Box::new(move |step| seed.step_stream(Purpose::Dropout, round, client, step)),
            radius: sub_models.and_then(|sub_models: &SubModels| sub_models.radius),
            mask,
        })
    }

    /// One step of the whole part on one batch; the sum of its examples' losses.
    fn step(
        &mut self,
        batch: &[u32],
        step: u64,
        optimiser: &mut Optimiser,
        correction: &mut Option<Correction<'_>>,
    ) -> Result<f64, LocalError> {
        let dropout = (self.dropout)(step);
        let network = self.trainer.networks.of(&self.part.model)?;
        let pass = Pass {
            training: self.training,
            mask: self.mask.as_ref(),
            examples: self.examples,
        };
        let loss = pass.forward(network, &mut self.trainer.batch, batch, &dropout)?;
        match (correction, optimiser.plain_rate()) {
            (None, Some(rate)) => network.descend(&loss.gradient, rate)?,
            (correction, _) => {
                network.zero_gradient();
                network.backward(&loss.gradient)?;
                network.update(|parameters, gradient| {
                    if let Some(correct) = correction {
                        correct(parameters, gradient);
                    }
                    optimiser.step(parameters, gradient);
                });
            }
        }
        if let Some(radius) = self.radius {
            network.update(|parameters, _| project(parameters, radius));
        }
        Ok(loss.sum)
    }

    /// One step of one of the part's nested sub-models, drawn from all of them alike: the others' coordinates have no
    /// gradient.
    fn step_of_nested(
        &mut self,
        batch: &[u32],
        step: u64,
        weights: &mut Weights,
        optimiser: &mut Optimiser,
        correction: &mut Option<Correction<'_>>,
    ) -> Result<f64, LocalError> {
        let dropout = (self.dropout)(step);
        let nested = &self.part.nested[self.random.random_range(0..self.part.nested.len())];
        let network = self.trainer.networks.of(&nested.model)?;
        network.start_from(&nested.coordinates.extract(weights))?;
        let pass = Pass {
            training: self.training,
            mask: self.mask.as_ref(),
            examples: self.examples,
        };
        let loss = pass.forward(network, &mut self.trainer.batch, batch, &dropout)?;
        network.zero_gradient();
        network.backward(&loss.gradient)?;
        let mut gradient = vec![0.0; weights.parameters.len()];
        network.update(|_, of_nested| nested.coordinates.parameters.merge(of_nested, &mut gradient));
        if !weights.buffers.is_empty() {
            let into = &mut weights.buffers;
            nested.coordinates.buffers.merge(network.buffers(), into);
        }
        if let Some(correct) = correction {
            correct(&weights.parameters, &mut gradient);
        }
        optimiser.step(&mut weights.parameters, &gradient);
        if let Some(radius) = self.radius {
            project(&mut weights.parameters, radius);
        }
        Ok(loss.sum)
    }
}

impl LocalSteps for Local<'_> {
    fn train(&mut self, start: &Weights, mut correction: Option<Correction<'_>>) -> Result<Trained, LocalError> {
        let is_nested = !self.part.nested.is_empty();
        let mut weights = if is_nested { start.clone() } else { Weights::default() };
        let network = self.trainer.networks.of(&self.part.model)?;
        let has_statistics = !start.buffers.is_empty();
        network.start_from(start)?;
        let mut optimiser = Optimiser::new(&self.training.optimiser, start.parameters.len())?;
        let mut batches = Batches::new(self.training, self.examples.indices);
        let (mut steps, mut seen, mut loss) = (0, 0usize, 0.0);
        while let Some(batch) = batches.next(None, &mut self.random) {
            if self.trainer.abandon.load(Ordering::Relaxed) {
                return Err(LocalError::Abandoned);
            }
            steps += 1;
            loss += match is_nested {
                true => self.step_of_nested(batch, steps, &mut weights, &mut optimiser, &mut correction)?,
                false => self.step(batch, steps, &mut optimiser, &mut correction)?,
            };
            seen += batch.len();
        }
        if !is_nested {
            weights = self.trainer.networks.of(&self.part.model)?.weights();
        }
        if !has_statistics {
            weights.buffers.clear();
        }
        Ok(Trained {
            weights,
            examples: self.examples.indices.len() as u64,
            steps,
            loss: (seen > 0).then(|| loss / seen as f64),
        })
    }

    fn learning_rate(&self) -> f64 {
        self.training.optimiser.learning_rate()
    }
}

/// What a forward pass needs beside the model.
struct Pass<'a> {
    training: &'a Training,
    mask: Option<&'a Tensor>,
    examples: Examples<'a>,
}

impl Pass<'_> {
    /// The loss of a batch, and its gradient at the model's outputs.
    fn forward(
        &self,
        network: &mut Network,
        gathered: &mut Batch,
        batch: &[u32],
        dropout: &ChaCha8Rng,
    ) -> Result<LossValue, LocalError> {
        let dataset = self.examples.dataset;
        let inputs = gathered.gather(dataset, batch)?;
        let mut outputs = network.forward(&inputs, &mut Mode::Train(dropout))?;
        let masked = |values: &Tensor, mask: &Tensor| values.broadcast_mul(mask).map_err(ModelError::from);
        if let Some(mask) = self.mask {
            outputs = masked(&outputs, mask)?;
        }
        let mut loss = self.training.loss.evaluate(&outputs, gathered.targets(dataset))?;
        if let Some(mask) = self.mask {
            loss.gradient = masked(&loss.gradient, mask)?;
        }
        Ok(loss)
    }
}

/// 1 for each output of the model whose class is among the examples, 0 for the others.
fn mask(part: &Part, examples: Examples<'_>) -> Result<Option<Tensor>, LocalError> {
    let outputs = part.model.output()?.iter().product();
    if !matches!(examples.dataset.targets(), Targets::Classes { .. }) {
        return Ok(None);
    }
    let mut classes = Vec::new();
    examples.dataset.gather_classes(examples.indices, &mut classes)?;
    let mut mask: Vec<f32> = vec![0.0; outputs];
    for class in classes {
        if let Some(present) = mask.get_mut(class as usize) {
            *present = 1.0;
        }
    }
    let mask = Tensor::from_vec(mask, outputs, &candle_core::Device::Cpu);
    Ok(Some(mask.map_err(ModelError::from)?))
}

/// The projection on the ball of this radius about 0.
fn project(parameters: &mut [f32], radius: f64) {
    let norm = parameters
        .iter()
        .map(|value| f64::from(*value).powi(2))
        .sum::<f64>()
        .sqrt();
    if norm > radius {
        let scale = (radius / norm) as f32;
        parameters.iter_mut().for_each(|value| *value *= scale);
    }
}
