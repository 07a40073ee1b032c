//! Drives the engine with the workers' results, as they come: nothing takes any time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, never, select};
use selvedge_client::{Front, Said};
use selvedge_coordinator::{Action, Clients, Engine, Event, GlobalModel, Observer, Outcome, Progress, Snapshot};
use selvedge_protocols::{
    Card, ClientName, LocalError, Memory, Rejection, ServerState, message::Task, sections::packed_bytes,
    split::FromServer, update::SealedUpdate,
};

use crate::{
    Simulation, SimulationError,
    trials::Trials,
    worker::{Done, Job},
};

/// The engine's clock stands still: how long this machine takes to train a virtual client says nothing about the
/// client, so no deadline can pass.
const NOW: Duration = Duration::ZERO;

/// How much is under way at a time.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Jobs with the workers.
    pub(crate) running: usize,
    /// These, and updates that are offered to the engine; the engine holds as many more at most.
    pub(crate) window: usize,
}

/// What a client keeps from now on: nothing, if that is what its last round left.
pub(crate) fn keep(all: &mut BTreeMap<ClientName, Arc<Memory>>, client: ClientName, kept: Arc<Memory>) {
    match kept.is_empty() {
        true => drop(all.remove(&client)),
        false => drop(all.insert(client, kept)),
    }
}

/// Among how many jobs the longest is looked for at most.
const CHOICE: usize = 64;

pub(crate) struct Driver<'a> {
    simulation: &'a Simulation<'a>,
    engine: Engine,
    round_started: Instant,
    limits: Limits,
    jobs: Sender<Job>,
    done: Receiver<Done>,
    /// Jobs that wait until those before them are through, in the order in which they are wanted, with their lengths.
    pending: VecDeque<(usize, Job)>,
    /// Jobs that are with the workers.
    running: usize,
    /// These, and updates that the engine has not asked for yet.
    outstanding: usize,
    /// Updates that are offered to the engine.
    offered: BTreeMap<ClientName, SealedUpdate>,
    /// What clients will keep if this round's update counts.
    proposed: BTreeMap<ClientName, Arc<Memory>>,
    /// What each client keeps from round to round.
    kept: BTreeMap<ClientName, Arc<Memory>>,
    trials: Trials,
    /// Clients whose models are cut, between two of their steps.
    fronts: BTreeMap<ClientName, Box<Front>>,
    /// Those who are to begin, and what the others have been told meanwhile. They wait for no window: a step needs all of
    /// them.
    entering: VecDeque<Job>,
    steps: VecDeque<(ClientName, FromServer, Vec<u8>)>,
    asked: usize,
    answered: usize,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        simulation: &'a Simulation<'a>,
        engine: Engine,
        kept: BTreeMap<ClientName, Arc<Memory>>,
        limits: Limits,
        jobs: Sender<Job>,
        done: Receiver<Done>,
    ) -> Self {
        Self {
            simulation,
            engine,
            round_started: Instant::now(),
            limits,
            jobs,
            done,
            pending: VecDeque::new(),
            running: 0,
            outstanding: 0,
            offered: BTreeMap::new(),
            proposed: BTreeMap::new(),
            kept,
            trials: Trials::default(),
            fronts: BTreeMap::new(),
            entering: VecDeque::new(),
            steps: VecDeque::new(),
            asked: 0,
            answered: 0,
        }
    }

    pub(crate) fn run(mut self, observe: Observer<'_>) -> Result<(ServerState, Outcome), SimulationError> {
        let mut stop = self.simulation.stop.clone().unwrap_or_else(never);
        let done = self.done.clone();
        let mut events = VecDeque::from([Event::Tick]);
        if self.simulation.snapshots && self.simulation.resume.is_none() {
            self.put_down(&Arc::new(self.engine.snapshot()), observe);
        }
        loop {
            while let Some(event) = events.pop_front() {
                for action in self.engine.handle(NOW, event) {
                    if let Some(outcome) = self.act(action, &mut events, observe) {
                        observe(Progress::Ended {
                            outcome,
                            state: self.engine.state(),
                            units: self.engine.units(),
                            fronts: self.engine.fronts(),
                        });
                        return Ok((self.engine.state().clone(), outcome));
                    }
                }
            }
            self.dispatch()?;
            // Whoever has asked for the end before this round's first answer is not made to wait for it.
            if let Ok(()) = stop.try_recv() {
                events.push_back(Event::Stop);
                continue;
            }
            select! {
                recv(done) -> result => {
                    let event = self.finished(result.map_err(|_| SimulationError::WorkerEnded)?)?;
                    events.extend(event);
                    if self.answered > 0 {
                        let (round, answered, asked) = (self.engine.round(), self.answered, self.asked);
                        observe(Progress::Round { round, answered, asked });
                    }
                }
                recv(stop) -> asked => match asked {
                    Ok(()) => events.push_back(Event::Stop),
                    // Whoever could have asked is gone: nobody will.
                    Err(_) => stop = never(),
                },
            }
        }
    }

    /// Does what the engine says; the outcome, when that was the last.
    fn act(&mut self, action: Action, events: &mut VecDeque<Event>, observe: Observer<'_>) -> Option<Outcome> {
        match action {
            Action::Ask {
                client,
                round,
                task,
                card,
                model,
            } => {
                self.asked += 1;
                if task == Task::Train && card.cut.is_some() {
                    return self.enter(client, round, card, model);
                }
                self.push(match task {
                    Task::Train => Job::Train {
                        client,
                        round,
                        card,
                        model,
                        // What it keeps is copied when its turn comes.
                        kept: Arc::default(),
                    },
                    Task::Calibrate => Job::Calibrate {
                        client,
                        round,
                        card,
                        model,
                    },
                    Task::Evaluate => Job::Evaluate {
                        client,
                        round,
                        card,
                        model,
                        kept: Arc::default(),
                    },
                });
            }
            Action::Step {
                client,
                message,
                payload,
            } => self.steps.push_back((client, message, payload)),
            Action::Receive {
                client,
                round,
                task,
                inspector,
            } => {
                let update = match self.withdraw(&client) {
                    Some(update) => inspector.open(update),
                    None => Err(Rejection::TransferFailed("nothing was offered".into())),
                };
                events.push_back(Event::Received {
                    client,
                    round,
                    task,
                    update,
                });
            }
            Action::Answer { client, verdict, .. } => {
                // What was turned down at once is never asked for.
                drop(self.withdraw(&client));
                if let (Some(kept), Ok(())) = (self.proposed.remove(&client), verdict) {
                    keep(&mut self.kept, client, kept);
                }
            }
            Action::Test {
                round,
                trial,
                card,
                model,
            } => {
                let jobs = self
                    .trials
                    .begin(self.simulation, (round, &trial), card.as_ref(), &model);
                if jobs.is_empty() {
                    events.push_back(Event::Tested {
                        round,
                        trial,
                        evaluation: Ok(None),
                    });
                }
                jobs.into_iter().for_each(|job| self.push(job));
            }
            Action::Record(mut record) => {
                (self.asked, self.answered) = (0, 0);
                self.trials.end(record.round);
                self.fronts.clear();
                self.entering.clear();
                self.steps.clear();
                record.seconds = self.round_started.elapsed().as_secs_f64();
                self.round_started = Instant::now();
                observe(Progress::Record {
                    record: &record,
                    state: self.engine.state(),
                    units: self.engine.units(),
                    fronts: self.engine.fronts(),
                });
            }
            Action::Snapshot(snapshot) => self.put_down(&snapshot, observe),
            Action::Finish(outcome) => return Some(outcome),
        }
        None
    }

    /// Tells whoever watches where the run is.
    fn put_down(&self, snapshot: &Arc<Snapshot>, observe: Observer<'_>) {
        observe(Progress::Snapshot {
            snapshot,
            clients: &Clients::Simulated(self.kept.clone()),
            // Clients of a simulation are put down with the run.
            resumable: &mut Vec::new(),
        });
    }

    /// Takes back an update that is offered.
    fn withdraw(&mut self, client: &ClientName) -> Option<SealedUpdate> {
        let update = self.offered.remove(client)?;
        self.outstanding -= 1;
        Some(update)
    }

    /// Hands jobs to the workers, as many as the limits allow.
    fn dispatch(&mut self) -> Result<(), SimulationError> {
        while self.running < self.limits.running
            && let Some(job) = self.entering.pop_front()
        {
            self.running += 1;
            self.outstanding += 1;
            self.jobs.send(job).map_err(|_| SimulationError::WorkerEnded)?;
        }
        while self.running < self.limits.running
            && let Some(at) = self
                .steps
                .iter()
                .position(|(client, ..)| self.fronts.contains_key(client))
            && let Some((client, message, payload)) = self.steps.remove(at)
        {
            if let Some(front) = self.fronts.remove(&client) {
                let round = self.engine.round();
                self.running += 1;
                self.outstanding += 1;
                let job = Job::Step {
                    client,
                    round,
                    front,
                    message,
                    payload,
                };
                self.jobs.send(job).map_err(|_| SimulationError::WorkerEnded)?;
            }
        }
        while self.running < self.limits.running
            && let Some(mut job) = self.next_job()
        {
            if let Job::Train { client, kept, .. } | Job::Evaluate { client, kept, .. } = &mut job {
                *kept = self.kept.get(client).cloned().unwrap_or_default();
            }
            self.running += 1;
            self.outstanding += 1;
            self.jobs.send(job).map_err(|_| SimulationError::WorkerEnded)?;
        }
        Ok(())
    }

    /// A client whose model is cut is to begin.
    fn enter(&mut self, client: ClientName, round: u32, card: Card, model: Arc<GlobalModel>) -> Option<Outcome> {
        let kept = self.kept.get(&client).cloned().unwrap_or_default();
        self.entering.push_back(Job::Enter {
            client,
            round,
            card,
            model,
            kept,
        });
        None
    }

    /// The longest of the jobs within the window, so that the last worker ends with the others. When nothing is under way
    /// the first pending job is given out whatever waits: nothing waits for a job that is never given out.
    fn next_job(&mut self) -> Option<Job> {
        let within = self.limits.window.saturating_sub(self.outstanding);
        let within = if self.running == 0 { within.max(1) } else { within };
        let lengths = self.pending.iter().map(|(length, _)| *length);
        let (_, job) = self.pending.remove(longest(lengths.take(within.min(CHOICE)))?)?;
        Some(job)
    }

    fn push(&mut self, job: Job) {
        self.pending.push_back((job.length(self.simulation), job));
    }

    /// Takes in what a worker has done: what it means for the engine, if anything yet.
    fn finished(&mut self, done: Done) -> Result<Option<Event>, SimulationError> {
        self.running -= 1;
        Ok(match done {
            Done::Panicked => return Err(SimulationError::WorkerEnded),
            Done::Trained {
                client,
                round,
                result: Ok((update, kept)),
            } => {
                self.proposed.insert(client.clone(), Arc::new(kept));
                Some(self.offer(client, round, Task::Train, update))
            }
            Done::Stepped { client, round, result } => {
                self.outstanding -= 1;
                match result {
                    Ok((front, Said::Message(message, payload))) => {
                        self.fronts.insert(client.clone(), front);
                        Some(Event::Stepped {
                            client,
                            message,
                            payload,
                        })
                    }
                    Ok((front, Said::Nothing)) => {
                        self.fronts.insert(client, front);
                        None
                    }
                    Ok((front, Said::Finished)) => {
                        self.outstanding += 1;
                        Some(match front.finish() {
                            Ok((update, kept)) => {
                                self.proposed.insert(client.clone(), Arc::new(kept));
                                self.offer(client, round, Task::Train, update)
                            }
                            Err(error) => self.fail(client, round, Task::Train, &error),
                        })
                    }
                    Err(error) => {
                        self.outstanding += 1;
                        Some(self.fail(client, round, Task::Train, &error))
                    }
                }
            }
            Done::Calibrated {
                client,
                round,
                result: Ok(update),
            } => Some(self.offer(client, round, Task::Calibrate, update)),
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
            } => Some(self.fail(client, round, Task::Train, &error)),
            Done::Calibrated {
                client,
                round,
                result: Err(error),
            } => Some(self.fail(client, round, Task::Calibrate, &error)),
            Done::Evaluated {
                client,
                round,
                result: Err(error),
            } => Some(self.fail(client, round, Task::Evaluate, &error)),
            Done::Tested {
                round,
                trial,
                chunk,
                result,
            } => {
                self.outstanding -= 1;
                let result = result.map_err(|error| error.to_string());
                self.trials.note(round, &trial, chunk, result);
                self.trials.outcome(round, &trial).map(|evaluation| Event::Tested {
                    round,
                    trial,
                    evaluation,
                })
            }
        })
    }

    /// A worker could not do what it was given.
    fn fail(&mut self, client: ClientName, round: u32, task: Task, error: &LocalError) -> Event {
        self.answered += 1;
        self.outstanding -= 1;
        Event::Failed {
            client,
            round,
            task,
            reason: error.to_string(),
        }
    }

    /// A worker has an update ready.
    fn offer(&mut self, client: ClientName, round: u32, task: Task, update: SealedUpdate) -> Event {
        self.answered += 1;
        let sections: Vec<_> = update.sections.iter().map(|section| section.header()).collect();
        let bytes = packed_bytes(&sections).unwrap_or(0);
        let report = update.report.clone();
        self.offered.insert(client.clone(), update);
        Event::Offered {
            client,
            round,
            task,
            report,
            sections,
            bytes,
        }
    }
}

/// Where the largest of some lengths is; of equals the first.
fn longest(lengths: impl Iterator<Item = usize>) -> Option<usize> {
    let (at, _) = lengths.enumerate().max_by_key(|(at, length)| (*length, Reverse(*at)))?;
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_goes_first_and_of_equals_the_one_that_is_wanted_first() {
        assert_eq!(longest([3, 9, 1, 9].into_iter()), Some(1));
        assert_eq!(longest([9, 9].into_iter()), Some(0));
        assert_eq!(longest([3, 9, 1, 9].into_iter().take(1)), Some(0));
        assert_eq!(longest([].into_iter()), None);
    }
}
