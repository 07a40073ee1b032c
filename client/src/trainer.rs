//! Local training: what a client does with a model and its own examples.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use selvedge_data::Dataset;
use selvedge_models::{Mode, Network, Optimiser, Weights};
use selvedge_protocols::{
    Broadcast, ClientName, Description, LocalError, LocalSteps, Purpose, Trained, Vectors,
    algorithm::Correction,
    description::Training,
    evaluation::{Batch, evaluate},
    message::Evaluation,
    update::SealedUpdate,
};

/// A live model and what is needed to train it: one for each thread that trains, however many clients it stands for.
pub struct Trainer {
    network: Network,
    batch: Batch,
    abandon: Arc<AtomicBool>,
}

/// The examples that a client trains or evaluates on: some of a data set.
#[derive(Clone, Copy)]
pub struct Examples<'a> {
    /// The data set.
    pub dataset: &'a Dataset,
    /// Which of its examples.
    pub indices: &'a [u32],
}

impl Trainer {
    /// A trainer around a live model. Once `abandon` is true, local training ends at its next step, with
    /// [`LocalError::Abandoned`].
    pub fn new(network: Network, abandon: Arc<AtomicBool>) -> Self {
        Self {
            network,
            batch: Batch::default(),
            abandon,
        }
    }

    /// The client's part of a round: trains what was broadcast by the description's algorithm, and seals the update.
    /// `kept` is what the algorithm keeps on this client from round to round.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    pub fn train(
        &mut self,
        description: &Description,
        client: &ClientName,
        round: u32,
        broadcast: &Broadcast,
        examples: Examples<'_>,
        kept: &mut Vectors,
    ) -> Result<SealedUpdate, LocalError> {
        let random = description.seed.client_stream(Purpose::Training, round, client);
        let mut local = Local {
            trainer: self,
            training: &description.training,
            examples,
            random,
        };
        let update = description.algorithm.client(broadcast, kept, &mut local)?;
        let mut random = description.seed.client_stream(Purpose::Filters, round, client);
        Ok(SealedUpdate::seal(
            update,
            &description.filters,
            &broadcast.weights,
            &mut random,
        ))
    }

    /// Evaluates a model.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    pub fn evaluate(
        &mut self,
        description: &Description,
        weights: &Weights,
        examples: Examples<'_>,
    ) -> Result<Evaluation, LocalError> {
        self.network.load(weights)?;
        evaluate(
            &mut self.network,
            description.training.loss,
            examples.dataset,
            examples.indices,
        )
    }
}

/// The local steps of one client in one round.
struct Local<'a> {
    trainer: &'a mut Trainer,
    training: &'a Training,
    examples: Examples<'a>,
    random: ChaCha8Rng,
}

impl Local<'_> {
    /// How many steps the description asks for, on this many examples.
    fn steps(&self) -> u64 {
        let pass = self.examples.indices.len().div_ceil(self.training.batch_size) as u64;
        match (self.training.steps, self.training.epochs) {
            _ if pass == 0 => 0,
            (Some(steps), _) => u64::from(steps),
            (None, epochs) => u64::from(epochs.unwrap_or(1)) * pass,
        }
    }

    /// One step on one batch; the sum of its examples' losses.
    fn step(
        &mut self,
        batch: &[u32],
        optimiser: &mut Optimiser,
        correction: &mut Option<Correction<'_>>,
    ) -> Result<f64, LocalError> {
        let Trainer {
            network,
            batch: gathered,
            abandon,
        } = &mut *self.trainer;
        if abandon.load(Ordering::Relaxed) {
            return Err(LocalError::Abandoned);
        }
        let dataset = self.examples.dataset;
        let inputs = gathered.gather(dataset, batch)?;
        let outputs = network.forward(&inputs, &mut Mode::Train(&mut self.random))?;
        let loss = self.training.loss.evaluate(&outputs, gathered.targets(dataset))?;
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
        Ok(loss.sum)
    }
}

impl LocalSteps for Local<'_> {
    fn train(&mut self, start: &Weights, mut correction: Option<Correction<'_>>) -> Result<Trained, LocalError> {
        self.trainer.network.load(start)?;
        let mut optimiser = Optimiser::new(&self.training.optimiser, start.parameters.len())?;
        let mut order = self.examples.indices.to_vec();
        let (mut steps, mut seen, mut loss) = (0, 0usize, 0.0);
        while steps < self.steps() {
            order.shuffle(&mut self.random);
            let left = usize::try_from(self.steps() - steps).unwrap_or(usize::MAX);
            for batch in order.chunks(self.training.batch_size).take(left) {
                loss += self.step(batch, &mut optimiser, &mut correction)?;
                seen += batch.len();
                steps += 1;
            }
        }
        Ok(Trained {
            weights: self.trainer.network.weights(),
            examples: self.examples.indices.len() as u64,
            steps,
            loss: (seen > 0).then(|| loss / seen as f64),
        })
    }

    fn learning_rate(&self) -> f64 {
        self.training.optimiser.learning_rate()
    }
}
