//! What worker threads do: one client or one part of the test set after another, with live models of their own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crossbeam_channel::{Receiver, Sender};
use selvedge_client::{Examples, Front, Said, Trainer};
use selvedge_coordinator::{GlobalModel, Trial};
use selvedge_data::Partition;
use selvedge_protocols::{
    Card, ClientName, LocalError, Memory, evaluation::Tested, message::Evaluation, split::FromServer,
    update::SealedUpdate,
};

use crate::Simulation;

/// What one worker is to do next.
pub(crate) enum Job {
    /// Train as a client.
    Train {
        client: ClientName,
        round: u32,
        card: Card,
        model: Arc<GlobalModel>,
        /// What the client keeps from round to round.
        kept: Arc<Memory>,
    },
    /// Begin as a client whose model is cut.
    Enter {
        client: ClientName,
        round: u32,
        card: Card,
        model: Arc<GlobalModel>,
        /// What the client keeps from round to round.
        kept: Arc<Memory>,
    },
    /// Go on with the steps of such a client.
    Step {
        client: ClientName,
        round: u32,
        front: Box<Front>,
        message: FromServer,
        payload: Vec<u8>,
    },
    /// Calibrate as a client.
    Calibrate {
        client: ClientName,
        round: u32,
        card: Card,
        model: Arc<GlobalModel>,
    },
    /// Evaluate as a client, on the examples it holds out.
    Evaluate {
        client: ClientName,
        round: u32,
        card: Card,
        model: Arc<GlobalModel>,
        /// What the client keeps from round to round.
        kept: Arc<Memory>,
    },
    /// Evaluate on one chunk of the examples of a trial.
    Test {
        round: u32,
        trial: Trial,
        /// Which sub-model, `None` for the whole model.
        card: Option<Card>,
        chunk: usize,
        indices: Vec<u32>,
        model: Arc<GlobalModel>,
    },
}

impl Job {
    /// How many examples it goes through; only which of two jobs is longer counts.
    pub(crate) fn length(&self, simulation: &Simulation<'_>) -> usize {
        match self {
            Self::Train { client, .. } => {
                let examples = examples(simulation, simulation.shares, client).indices.len();
                let training = &simulation.description.training;
                let of_steps = |steps: u32| (steps as usize).saturating_mul(examples.min(training.batch_size));
                training.steps.map_or(examples, of_steps)
            }
            // They are never chosen among others.
            Self::Enter { .. } | Self::Step { .. } => 0,
            Self::Calibrate { client, .. } => examples(simulation, simulation.shares, client).indices.len(),
            Self::Evaluate { client, .. } => examples(simulation, simulation.held_out, client).indices.len(),
            Self::Test { indices, .. } => indices.len(),
        }
    }
}

/// What came of it.
pub(crate) enum Done {
    Trained {
        client: ClientName,
        round: u32,
        result: Result<(SealedUpdate, Memory), LocalError>,
    },
    /// A client whose model is cut has come to where it has something to say.
    Stepped {
        client: ClientName,
        round: u32,
        result: Result<(Box<Front>, Said), LocalError>,
    },
    Calibrated {
        client: ClientName,
        round: u32,
        result: Result<SealedUpdate, LocalError>,
    },
    Evaluated {
        client: ClientName,
        round: u32,
        result: Result<Evaluation, LocalError>,
    },
    Tested {
        round: u32,
        trial: Trial,
        chunk: usize,
        result: Result<Tested, LocalError>,
    },
    /// A defect: the worker is no longer to be relied on.
    Panicked,
}

/// A worker.
pub(crate) struct Worker<'a> {
    pub(crate) simulation: &'a Simulation<'a>,
    pub(crate) trainer: Trainer,
}

impl Worker<'_> {
    /// Does one job after another, until there are no more or nobody wants to know.
    pub(crate) fn work(mut self, jobs: &Receiver<Job>, done: &Sender<Done>) {
        for job in jobs {
            // Others wait for what comes of the job, so they must hear of it whatever happens.
            let result = catch_unwind(AssertUnwindSafe(|| self.do_one(job)));
            let panicked = result.is_err();
            if done.send(result.unwrap_or(Done::Panicked)).is_err() || panicked {
                return;
            }
        }
    }

    fn do_one(&mut self, job: Job) -> Done {
        let Self { simulation, trainer } = self;
        let simulation = *simulation;
        let description = &simulation.description;
        match job {
            Job::Train {
                client,
                round,
                card,
                model,
                kept,
            } => {
                let examples = examples(simulation, simulation.shares, &client);
                let result = model.part(Some(&card)).map_err(LocalError::from).and_then(|part| {
                    let broadcast = model.broadcast(&part);
                    let mut kept = Memory::clone(&kept);
                    let update = trainer.train(description, &part, &client, round, &broadcast, examples, &mut kept)?;
                    Ok((update, kept))
                });
                Done::Trained { client, round, result }
            }
            Job::Enter {
                client,
                round,
                card,
                model,
                kept,
            } => {
                let examples = examples(simulation, simulation.shares, &client);
                let result = model.part(Some(&card)).map_err(LocalError::from).and_then(|part| {
                    let broadcast = model.broadcast(&part);
                    let front = Front::new(description, &part, &client, round, &broadcast, examples, &kept)?;
                    let said = front.enter();
                    Ok((Box::new(front), said))
                });
                Done::Stepped { client, round, result }
            }
            Job::Step {
                client,
                round,
                mut front,
                message,
                payload,
            } => {
                let examples = examples(simulation, simulation.shares, &client);
                let result = front.hear(examples, message, &payload).map(|said| (front, said));
                Done::Stepped { client, round, result }
            }
            Job::Calibrate {
                client,
                round,
                card,
                model,
            } => {
                let examples = examples(simulation, simulation.shares, &client);
                let result = model.part(Some(&card)).map_err(LocalError::from);
                let result = result.and_then(|part| trainer.calibration(&part, &model.broadcast(&part), examples));
                Done::Calibrated { client, round, result }
            }
            Job::Evaluate {
                client,
                round,
                card,
                model,
                kept,
            } => {
                let of = |partition| examples(simulation, partition, &client);
                let (calibration, examples) = (of(simulation.shares), of(simulation.held_out));
                let result = model.part(Some(&card)).map_err(LocalError::from).and_then(|part| {
                    let broadcast = model.broadcast(&part);
                    let broadcast = Trainer::personalised(description, &part, &client, round, &broadcast, &kept);
                    Ok(trainer
                        .evaluate(description, &part, &broadcast, calibration, examples, false)?
                        .all)
                });
                Done::Evaluated { client, round, result }
            }
            Job::Test {
                round,
                trial,
                card,
                chunk,
                indices,
                model,
            } => {
                let result = simulation
                    .evaluated_on(&trial)
                    .map_or(Ok(Tested::default()), |dataset| {
                        let part = model.part(card.as_ref())?;
                        let broadcast = model.evaluated(&part, &trial);
                        let indices = &indices;
                        let examples = Examples { dataset, indices };
                        let by_class = trial.is_by_class();
                        trainer.evaluate(description, &part, &broadcast, examples, examples, by_class)
                    });
                Done::Tested {
                    round,
                    trial,
                    chunk,
                    result,
                }
            }
        }
    }
}

/// A client's part of `partition`; empty for one that the federation does not have.
pub(crate) fn examples<'a>(simulation: &Simulation<'a>, partition: &'a Partition, client: &ClientName) -> Examples<'a> {
    let number = client.number().filter(|&number| number < partition.clients());
    Examples {
        dataset: simulation.train,
        indices: number.map_or(&[], |number| partition.client(number)),
    }
}
