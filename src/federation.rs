//! A federation in this process, on data that the program has.

use std::{num::NonZeroUsize, ops::ControlFlow, sync::Arc, thread};

use crossbeam_channel::bounded;
use selvedge_coordinator::{Outcome, Progress, RoundRecord};
use selvedge_data::{DataError, Dataset, Partition};
use selvedge_models::Weights;
use selvedge_protocols::{Description, description::DescriptionError};
use selvedge_simulations::{Simulation, SimulationError};

/// A federation that is about to be simulated.
pub struct Federation {
    description: Description,
    train: Dataset,
    test: Option<Dataset>,
    partition: Option<Partition>,
    initial: Option<Weights>,
    workers: usize,
}

/// What a run has come to.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// The final model.
    pub weights: Arc<Weights>,
    /// What was written down of each round.
    pub records: Vec<RoundRecord>,
}

/// Why a federation could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description is not in order.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The examples are not in order, or cannot be dealt as described.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The simulation could not go on.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

impl Federation {
    /// A federation whose clients hold these examples, dealt as the description says, with as many workers as there are
    /// processors.
    pub fn new(description: Description, train: Dataset) -> Self {
        Self {
            description,
            train,
            test: None,
            partition: None,
            initial: None,
            workers: thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }

    /// With examples on which the coordinator tests the model.
    #[must_use]
    pub fn tested_on(self, test: Dataset) -> Self {
        let test = Some(test);
        Self { test, ..self }
    }

    /// With a partition of one's own, of as many clients as the description has.
    #[must_use]
    pub fn dealt(self, partition: Partition) -> Self {
        let partition = Some(partition);
        Self { partition, ..self }
    }

    /// With a model's weights to begin with, instead of drawn ones.
    #[must_use]
    pub fn beginning_with(self, initial: Weights) -> Self {
        let initial = Some(initial);
        Self { initial, ..self }
    }

    /// With so many threads that train clients, at least 1. The result does not depend on it.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Runs it. After each round `on_round` is told what came of it, and can end the run.
    ///
    /// # Errors
    /// When the description, the examples, the partition or the weights are not in order or do not go together.
    pub fn run(self, mut on_round: impl FnMut(&RoundRecord) -> ControlFlow<()>) -> Result<Finished, Error> {
        let description = Arc::new(self.description);
        description.check()?;
        let dealt = match self.partition {
            Some(partition) => description.hold_out(partition)?,
            None => description.deal(&self.train)?,
        };
        let (end, stop) = bounded(1);
        let simulation = Simulation {
            description,
            train: &self.train,
            test: self.test.as_ref(),
            shares: &dealt.shares,
            held_out: &dealt.held_out,
            initial: self.initial,
            resume: None,
            snapshots: false,
            workers: self.workers,
            stop: Some(stop),
        };
        let mut records = Vec::new();
        let (state, outcome) = simulation.run(&mut |progress| {
            if let Progress::Record { record, .. } = progress {
                if on_round(record).is_break() {
                    // Full means that the end was asked for already.
                    let _ = end.try_send(());
                }
                records.push(record.clone());
            }
        })?;
        Ok(Finished {
            outcome,
            weights: state.weights,
            records,
        })
    }
}
