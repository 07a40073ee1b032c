//! A whole federation in one process: the coordinator's engine and the clients' trainer, with worker threads between
//! them. Clients are virtual: one that is not selected is a range of example indices, and live models are as many as
//! workers (with sub-models, as many for each width).

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, bounded};
use selvedge_client::Trainer;
use selvedge_coordinator::{Clients, Engine, Observer, Outcome, Roster, TakenUp, Trial};
use selvedge_data::{Dataset, Partition};
use selvedge_models::Weights;
use selvedge_protocols::{
    ClientName, Description, LocalError, Purpose, ServerState,
    description::DescriptionError,
    evaluation::{TEST_CHUNK, all_examples},
    sections::packed_bytes,
    update::expected_sections,
};

use crate::{
    driver::{Driver, Limits},
    timed::TimedDriver,
    worker::Worker,
};

/// Bytes of updates that may be there at a time, in training or waiting for those before them; four times as many
/// updates as workers may in any case.
const WAITING: u64 = 1 << 26;

/// The most updates that may wait, however small they are.
const MOST_WAITING: usize = 256;

/// Updates that a simulated coordinator with a clock fetches at a time, however large they are: as many as one over the
/// network.
const LEAST_WAITING: usize = 8;

/// A federation that is about to be simulated.
pub struct Simulation<'a> {
    /// The run.
    pub description: Arc<Description>,
    /// The examples that are dealt to the clients.
    pub train: &'a Dataset,
    /// The coordinator's test set.
    pub test: Option<&'a Dataset>,
    /// What each client trains on.
    pub shares: &'a Partition,
    /// What each client holds out for its own evaluation.
    pub held_out: &'a Partition,
    /// The model's first weights; `None` when they are to be drawn from the run's seed.
    pub initial: Option<Weights>,
    /// Where the run was put down, if it is taken up again: then the first weights do not matter.
    pub resume: Option<TakenUp>,
    /// Whether whoever watches is told where the run is after each round.
    pub snapshots: bool,
    /// How many threads train clients, at least 1; more than there are jobs at a time are not started.
    pub workers: usize,
    /// A message here ends the run; what is under way is abandoned.
    pub stop: Option<Receiver<()>>,
}

/// Why a simulation could not go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The description is not in order, or does not go with the examples.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The partition is not of this federation.
    #[error("the description has {clients} clients, and the partition {dealt}")]
    Partition {
        /// How many the description has.
        clients: usize,
        /// How many there are shares for.
        dealt: usize,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Clients are to report what they have.
    #[error("clients of a simulation have no devices to report on: give each of `sub_models.capacities` a `share`")]
    NoShares,
    /// Nothing more can happen, and the run is not over.
    #[error("nothing more can happen in virtual time, and the run is not over")]
    Stalled,
    /// There are too many workers for this machine.
    #[error("a worker thread cannot be started, fewer workers may help: {0}")]
    Thread(io::Error),
    /// A worker thread ended.
    #[error("a worker thread has ended unexpectedly")]
    WorkerEnded,
}

impl Simulation<'_> {
    /// The data set of a trial, if there is one.
    pub(crate) fn evaluated_on(&self, trial: &Trial) -> Option<&Dataset> {
        match trial {
            Trial::Whole | Trial::SubModel(_) | Trial::Stitched(_) => self.test,
            Trial::OnTraining => Some(self.train),
        }
    }

    /// The examples of a trial.
    pub(crate) fn trial_examples(&self, trial: &Trial) -> Vec<u32> {
        match trial {
            Trial::Whole | Trial::SubModel(_) | Trial::Stitched(_) => self.test.map_or_else(Vec::new, all_examples),
            Trial::OnTraining => {
                let shares = (0..self.shares.clients()).flat_map(|client| self.shares.client(client));
                shares
                    .copied()
                    .take(self.description.evaluation.training_examples)
                    .collect()
            }
        }
    }

    /// Runs the federation from its first weights, and gives the final state and how the run ended.
    ///
    /// # Errors
    /// When the model cannot be built, or a worker thread ends.
    pub fn run(&self, observe: Observer<'_>) -> Result<(ServerState, Outcome), SimulationError> {
        let description = &self.description;
        description.check()?;
        description.check_initial(self.initial.as_ref())?;
        description.check_data(self.train, "the training examples")?;
        if let Some(test) = self.test {
            description.check_data(test, "the test examples")?;
        }
        for dealt in [self.shares.clients(), self.held_out.clients()] {
            let clients = description.clients;
            if dealt != clients {
                return Err(SimulationError::Partition { clients, dealt });
            }
        }
        if description.capacities_are_reported() {
            return Err(SimulationError::NoShares);
        }
        // There are never more jobs at a time than that.
        let chunks = |trial| self.trial_examples(&trial).len().div_ceil(TEST_CHUNK);
        let trials = chunks(Trial::Whole) * (1 + description.widths().len()) + chunks(Trial::OnTraining);
        let jobs = description.cohort_size().max(trials);
        let workers = self.workers.clamp(1, jobs.max(1));
        let abandon = Arc::new(AtomicBool::new(false));
        let parts = description.parts().map_err(LocalError::from)?;
        let initial = match &self.initial {
            Some(initial) => initial.clone(),
            None => Weights::drawn(parts.layout(), &mut description.seed.stream(Purpose::Initialisation)),
        };
        initial.check(parts.layout()).map_err(LocalError::from)?;
        // Without filters: however few bytes travel, whole updates wait.
        let update = packed_bytes(&expected_sections(
            &parts.whole().coordinates,
            &*description.algorithm,
            &[],
        ))
        .unwrap_or(u64::MAX);
        // Half of them may be held by the engine, half by the driver.
        let waiting = usize::try_from(WAITING / 2 / update.max(1)).unwrap_or(usize::MAX);
        // The order in which clients are heard counts where they are asked one by one.
        let is_timed = description.devices.is_some() || description.buffer.is_some();
        let limits = Limits {
            // The next is at hand when one is done, also while updates are folded.
            running: 2 * workers,
            window: match is_timed {
                // What is received when is a matter of time then, and must not depend on the workers.
                true => waiting.clamp(LEAST_WAITING, MOST_WAITING),
                false => waiting.min(MOST_WAITING).max(2 * workers),
            },
        };
        let roster = match &description.devices {
            Some(devices) if devices.come_and_go() => {
                Roster::Joined((0..description.clients).map(ClientName::numbered).collect())
            }
            _ => Roster::Numbered(description.clients),
        };
        let engine = Engine::new(description.clone(), Arc::new(parts), initial, roster, limits.window);
        let (mut engine, mut kept) = (engine, BTreeMap::new());
        if let Some(put_down) = &self.resume {
            engine = engine.resumed(&put_down.snapshot).map_err(LocalError::from)?;
            if let Clients::Simulated(memory) = &put_down.clients {
                kept.clone_from(memory);
            }
        }
        if self.snapshots {
            engine = engine.with_snapshots();
        }

        thread::scope(|scope| {
            let (jobs, queue) = bounded(limits.running);
            let (results, done) = bounded(limits.running);
            for _ in 0..workers {
                let (queue, results) = (queue.clone(), results.clone());
                let worker = Worker {
                    simulation: self,
                    trainer: Trainer::new(abandon.clone()),
                };
                thread::Builder::new()
                    .spawn_scoped(scope, move || worker.work(&queue, &results))
                    .map_err(SimulationError::Thread)?;
            }
            drop((queue, results));
            let ended = match is_timed {
                true => TimedDriver::new(self, engine, limits, jobs, done).run(observe),
                false => Driver::new(self, engine, kept, limits, jobs, done).run(observe),
            };
            // What is under way does not count any more.
            abandon.store(true, Ordering::Relaxed);
            ended
        })
    }
}
