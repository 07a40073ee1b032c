//! A whole federation in one process: the coordinator's engine and the clients' trainer, with worker threads between
//! them. Clients are virtual: one that is not selected is a range of example indices, and the number of live models is
//! the number of workers.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use selvedge_client::{Examples, Trainer};
use selvedge_coordinator::{Action, Engine, Event, Observer, Outcome, Progress, Roster};
use selvedge_data::{Dataset, Partition};
use selvedge_models::{Layout, ModelError, Network, Weights};
use selvedge_protocols::{
    Broadcast, ClientName, Description, LocalError, Purpose, ServerState, Vectors,
    evaluation::{test_chunk, test_chunks},
    message::{Evaluation, Task},
    update::{Rejection, SealedUpdate},
};

/// The engine's clock stands still: how long this machine takes to train a virtual client says nothing about the
/// client, so no deadline can pass.
const NOW: Duration = Duration::ZERO;

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
    /// How many threads train clients, at least 1.
    pub workers: usize,
    /// A message here ends the run after what is under way.
    pub stop: Option<Receiver<()>>,
}

/// Why a simulation could not go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The model cannot be built, or cannot be evaluated on the test set.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// What is written during the run could not be.
    #[error("the results cannot be written: {0}")]
    Results(#[from] io::Error),
    /// A worker thread ended.
    #[error("a worker thread has ended unexpectedly")]
    WorkerEnded,
}

/// What one worker is to do next.
enum Job {
    Client {
        client: ClientName,
        round: u32,
        task: Task,
        broadcast: Arc<Broadcast>,
        kept: Vectors,
    },
    Test {
        round: u32,
        chunk: usize,
        broadcast: Arc<Broadcast>,
    },
}

/// What came of it.
enum Done {
    Trained {
        client: ClientName,
        round: u32,
        result: Result<(SealedUpdate, Vectors), LocalError>,
    },
    Evaluated {
        client: ClientName,
        round: u32,
        result: Result<Evaluation, LocalError>,
    },
    Tested {
        round: u32,
        chunk: usize,
        result: Result<Evaluation, LocalError>,
    },
}

impl Simulation<'_> {
    /// Runs the federation from its first weights, and gives the final state and how the run ended.
    ///
    /// # Errors
    /// When the model cannot be built or evaluated, or `observe` fails.
    pub fn run(&self, observe: Observer<'_>) -> Result<(ServerState, Outcome), SimulationError> {
        let description = &self.description;
        let workers = self.workers.max(1);
        // Twice as many jobs as workers keep each of them busy while its last result waits its turn.
        let window = 2 * workers;
        let (initial, layout, trainers) = self.build(workers).map_err(LocalError::from)?;
        let engine = Engine::new(
            description.clone(),
            &layout,
            initial,
            Roster::Numbered(description.clients),
            window,
        );

        thread::scope(|scope| {
            let (jobs, queue) = bounded(window);
            let (results, done) = bounded(window);
            for trainer in trainers {
                let (queue, results) = (queue.clone(), results.clone());
                scope.spawn(move || self.work(trainer, &queue, &results));
            }
            drop((queue, results));
            Driver::new(self, engine, window, jobs, done).run(observe)
        })
    }

    /// The first weights, where they lie, and a trainer for each worker.
    fn build(&self, workers: usize) -> Result<(Weights, Layout, Vec<Trainer>), ModelError> {
        let model = &self.description.model;
        let initial = Weights::initial(model, &mut self.description.seed.stream(Purpose::Initialisation))?;
        let trainer = |_| Network::new(model, &candle_core::Device::Cpu).map(Trainer::new);
        Ok((
            initial,
            model.layout()?,
            (0..workers).map(trainer).collect::<Result<_, _>>()?,
        ))
    }

    /// A worker's life: one job after another, until there are no more.
    fn work(&self, mut trainer: Trainer, queue: &Receiver<Job>, results: &Sender<Done>) {
        for job in queue {
            let done = match job {
                Job::Client {
                    client,
                    round,
                    task: Task::Train,
                    broadcast,
                    mut kept,
                } => {
                    let examples = self.examples(self.shares, &client);
                    let trained = trainer.train(&self.description, &client, round, &broadcast, examples, &mut kept);
                    Done::Trained {
                        client,
                        round,
                        result: trained.map(|update| (update, kept)),
                    }
                }
                Job::Client {
                    client,
                    round,
                    task: Task::Evaluate,
                    broadcast,
                    ..
                } => {
                    let examples = self.examples(self.held_out, &client);
                    let result = trainer.evaluate(&self.description, &broadcast.weights, examples);
                    Done::Evaluated { client, round, result }
                }
                Job::Test {
                    round,
                    chunk,
                    broadcast,
                } => {
                    let result = self.test_chunk(&mut trainer, &broadcast, chunk);
                    Done::Tested { round, chunk, result }
                }
            };
            if results.send(done).is_err() {
                return;
            }
        }
    }

    fn examples<'a>(&'a self, partition: &'a Partition, client: &ClientName) -> Examples<'a> {
        let indices = client.number().filter(|&number| number < partition.clients());
        Examples {
            dataset: self.train,
            indices: indices.map_or(&[], |number| partition.client(number)),
        }
    }

    fn test_chunk(&self, trainer: &mut Trainer, broadcast: &Broadcast, chunk: usize) -> Result<Evaluation, LocalError> {
        let Some(dataset) = self.test else {
            return Ok(Evaluation::default());
        };
        trainer.evaluate(
            &self.description,
            &broadcast.weights,
            Examples {
                dataset,
                indices: &test_chunk(dataset, chunk),
            },
        )
    }

    fn test_chunks(&self) -> usize {
        self.test.map_or(0, test_chunks)
    }
}

/// Drives the engine with the workers' results.
struct Driver<'a> {
    simulation: &'a Simulation<'a>,
    engine: Engine,
    round_started: Instant,
    window: usize,
    jobs: Sender<Job>,
    done: Receiver<Done>,
    /// Jobs that wait until those before them are through.
    pending: VecDeque<Job>,
    /// Jobs that are with the workers, and updates that the engine has not taken yet.
    outstanding: usize,
    /// What each client keeps from round to round.
    kept: BTreeMap<ClientName, Vectors>,
    /// Updates that are offered to the engine.
    offered: BTreeMap<ClientName, (Option<SealedUpdate>, Vectors)>,
    /// The test set's chunks of this round, as far as they are evaluated.
    tested: Vec<Option<Evaluation>>,
    asked: usize,
    answered: usize,
}

impl<'a> Driver<'a> {
    fn new(
        simulation: &'a Simulation<'a>,
        engine: Engine,
        window: usize,
        jobs: Sender<Job>,
        done: Receiver<Done>,
    ) -> Self {
        Self {
            simulation,
            engine,
            round_started: Instant::now(),
            window,
            jobs,
            done,
            pending: VecDeque::new(),
            outstanding: 0,
            kept: BTreeMap::new(),
            offered: BTreeMap::new(),
            tested: Vec::new(),
            asked: 0,
            answered: 0,
        }
    }

    fn run(mut self, observe: Observer<'_>) -> Result<(ServerState, Outcome), SimulationError> {
        let stop = self.simulation.stop.clone().unwrap_or_else(never);
        let done = self.done.clone();
        let mut events = VecDeque::from([Event::Tick]);
        loop {
            while let Some(event) = events.pop_front() {
                for action in self.engine.handle(NOW, event) {
                    if let Some(outcome) = self.act(action, &mut events, observe)? {
                        return Ok((self.engine.state().clone(), outcome));
                    }
                }
            }
            self.dispatch()?;
            select! {
                recv(done) -> result => {
                    let event = self.finished(result.map_err(|_| SimulationError::WorkerEnded)?)?;
                    events.extend(event);
                    if self.answered > 0 {
                        let (round, answered, asked) = (self.engine.round(), self.answered, self.asked);
                        observe(Progress::Round { round, answered, asked })?;
                    }
                }
                recv(stop) -> _ => events.push_back(Event::Stop),
            }
        }
    }

    /// Does what the engine says; the outcome, when that was the last.
    fn act(
        &mut self,
        action: Action,
        events: &mut VecDeque<Event>,
        observe: &mut dyn FnMut(Progress<'_>) -> io::Result<()>,
    ) -> Result<Option<Outcome>, SimulationError> {
        match action {
            Action::Ask {
                client,
                round,
                task,
                broadcast,
            } => {
                let kept = Vectors::new();
                self.asked += 1;
                self.pending.push_back(Job::Client {
                    client,
                    round,
                    task,
                    broadcast,
                    kept,
                });
            }
            Action::Receive {
                client,
                round,
                inspector,
            } => {
                let offered = self.offered.get_mut(&client).and_then(|(update, _)| update.take());
                let nothing = || Rejection::TransferFailed("nothing was offered".into());
                let update = offered.ok_or_else(nothing).and_then(|update| inspector.open(update));
                events.push_back(Event::Received { client, round, update });
            }
            Action::Answer { client, verdict, .. } => {
                if let Some((_, kept)) = self.offered.remove(&client) {
                    self.outstanding -= 1;
                    if verdict.is_ok() && !kept.is_empty() {
                        self.kept.insert(client, kept);
                    }
                }
            }
            Action::Test { round, broadcast } => {
                self.tested = vec![None; self.simulation.test_chunks()];
                if self.tested.is_empty() {
                    events.push_back(Event::Tested {
                        round,
                        evaluation: None,
                    });
                }
                let job = |chunk| Job::Test {
                    round,
                    chunk,
                    broadcast: broadcast.clone(),
                };
                self.pending.extend((0..self.tested.len()).map(job));
            }
            Action::Record(mut record) => {
                (self.asked, self.answered) = (0, 0);
                record.seconds = self.round_started.elapsed().as_secs_f64();
                self.round_started = Instant::now();
                observe(Progress::Record {
                    record: &record,
                    state: self.engine.state(),
                })?;
            }
            Action::Finish(outcome) => return Ok(Some(outcome)),
        }
        Ok(None)
    }

    /// Hands jobs to the workers, as many as the window allows.
    fn dispatch(&mut self) -> Result<(), SimulationError> {
        while self.outstanding < self.window
            && let Some(mut job) = self.pending.pop_front()
        {
            if let Job::Client { client, kept, .. } = &mut job {
                *kept = self.kept.get(client).cloned().unwrap_or_default();
            }
            self.outstanding += 1;
            self.jobs.send(job).map_err(|_| SimulationError::WorkerEnded)?;
        }
        Ok(())
    }

    /// Takes in what a worker has done: what it means for the engine, if anything yet.
    fn finished(&mut self, done: Done) -> Result<Option<Event>, SimulationError> {
        Ok(match done {
            Done::Trained {
                client,
                round,
                result: Ok((update, kept)),
            } => {
                self.answered += 1;
                let sections: Vec<_> = update.sections.iter().map(|section| section.header()).collect();
                let bytes = selvedge_protocols::sections::packed_bytes(&sections).unwrap_or(0);
                let report = update.report;
                self.offered.insert(client.clone(), (Some(update), kept));
                Some(Event::Offered {
                    client,
                    round,
                    report,
                    sections,
                    bytes,
                })
            }
            Done::Evaluated {
                client,
                round,
                result: Ok(evaluation),
            } => {
                self.answered += 1;
                self.outstanding -= 1;
                Some(Event::Evaluated {
                    client,
                    round,
                    evaluation,
                })
            }
            Done::Trained {
                client,
                round,
                result: Err(error),
            }
            | Done::Evaluated {
                client,
                round,
                result: Err(error),
            } => {
                self.answered += 1;
                self.outstanding -= 1;
                Some(Event::Failed {
                    client,
                    round,
                    reason: error.to_string(),
                })
            }
            Done::Tested { round, chunk, result } => {
                self.outstanding -= 1;
                self.tested[chunk] = Some(result?);
                let all: Option<Vec<_>> = self.tested.iter().copied().collect();
                all.map(|chunks| {
                    let mut evaluation = Evaluation::default();
                    chunks.into_iter().for_each(|chunk| evaluation.add(chunk));
                    Event::Tested {
                        round,
                        evaluation: Some(evaluation),
                    }
                })
            }
        })
    }
}
