//! Drives the engine in virtual time: what clients do happens when their devices would have done it, in the order of
//! (time, name), whichever worker computes it and when.

mod agenda;
mod asking;
mod assignments;
mod presence;
mod times;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, TryRecvError, never, select};
use selvedge_coordinator::{Action, Engine, Event, Observer, Outcome, Progress, RoundRecord};
use selvedge_protocols::{
    ClientName, LocalError, Memory, Rejection, ServerState, message::Task, sections::packed_bytes, update::check_report,
};

use self::{
    agenda::{Agenda, Due, Entry},
    assignments::{Assignment, Assignments, Came},
    times::Times,
};
use crate::{
    Simulation, SimulationError,
    driver::{Limits, keep},
    trials::Trials,
    worker::{Done, Job},
};

pub(crate) struct TimedDriver<'a> {
    simulation: &'a Simulation<'a>,
    engine: Engine,
    limits: Limits,
    jobs: Sender<Job>,
    done: Receiver<Done>,
    now: Duration,
    times: Times,
    agenda: Agenda,
    assignments: Assignments,
    /// Until when each device is at what it was asked, also where nobody waits for it any more.
    busy: BTreeMap<ClientName, Duration>,
    /// Who is not there.
    away: BTreeSet<ClientName>,
    trials: Trials,
    /// Chunks of trials that no worker has yet.
    tests: VecDeque<Job>,
    /// Jobs that are with the workers.
    running: usize,
    /// What clients will keep if their update counts, with its round.
    proposed: BTreeMap<ClientName, (u32, Arc<Memory>)>,
    /// What each client keeps from round to round.
    kept: BTreeMap<ClientName, Arc<Memory>>,
    round_started: Instant,
    asked: usize,
    answered: usize,
}

impl<'a> TimedDriver<'a> {
    pub(crate) fn new(
        simulation: &'a Simulation<'a>,
        engine: Engine,
        limits: Limits,
        jobs: Sender<Job>,
        done: Receiver<Done>,
    ) -> Self {
        Self {
            simulation,
            engine,
            limits,
            jobs,
            done,
            now: Duration::ZERO,
            times: Times::of(&simulation.description),
            agenda: Agenda::default(),
            assignments: Assignments::default(),
            busy: BTreeMap::new(),
            away: BTreeSet::new(),
            trials: Trials::default(),
            tests: VecDeque::new(),
            running: 0,
            proposed: BTreeMap::new(),
            kept: BTreeMap::new(),
            round_started: Instant::now(),
            asked: 0,
            answered: 0,
        }
    }

    pub(crate) fn run(mut self, observe: Observer<'_>) -> Result<(ServerState, Outcome), SimulationError> {
        let mut stop = self.simulation.stop.clone().unwrap_or_else(never);
        let done = self.done.clone();
        self.plan_presence();
        let mut events = VecDeque::from([Event::Tick]);
        loop {
            while let Some(event) = events.pop_front() {
                for action in self.engine.handle(self.now, event) {
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
            match stop.try_recv() {
                Ok(()) => {
                    events.push_back(Event::Stop);
                    continue;
                }
                Err(TryRecvError::Disconnected) => stop = never(),
                Err(TryRecvError::Empty) => {}
            }
            while let Ok(result) = done.try_recv() {
                self.finished(result)?;
            }
            self.dispatch()?;
            if self.is_next_computed() {
                events.extend(self.next(observe)?);
                continue;
            }
            select! {
                recv(done) -> result => self.finished(result.map_err(|_| SimulationError::WorkerEnded)?)?,
                recv(stop) -> asked => match asked {
                    Ok(()) => events.push_back(Event::Stop),
                    // Whoever could have asked is gone: nobody will.
                    Err(_) => stop = never(),
                },
            }
        }
    }

    /// Whether what happens next has been computed.
    fn is_next_computed(&self) -> bool {
        match self.first() {
            Some((_, Due::Tested(round, trial))) => self.trials.outcome(*round, trial).is_some(),
            Some(((_, Some(client), _), Due::Delivery)) => self.assignments.is_ready(client),
            _ => true,
        }
    }

    /// What happens next, unless the engine's time is over before. What is due as time runs out still happens in time.
    fn first(&self) -> Option<(&Entry, &Due)> {
        let tick = self.engine.next_deadline();
        let first = self.agenda.first();
        first.filter(|((at, ..), _)| tick.is_none_or(|tick| *at <= tick))
    }

    /// Goes on to what happens next.
    fn next(&mut self, observe: Observer<'_>) -> Result<Option<Event>, SimulationError> {
        if self.first().is_some()
            && let Some(((at, client, _), due)) = self.agenda.take_first()
        {
            self.now = self.now.max(at);
            return Ok(self.happen(client, due, observe));
        }
        let tick = self.engine.next_deadline().ok_or(SimulationError::Stalled)?;
        self.now = self.now.max(tick);
        Ok(Some(Event::Tick))
    }

    /// Something is due: what it means for the engine, if anything.
    fn happen(&mut self, client: Option<ClientName>, due: Due, observe: Observer<'_>) -> Option<Event> {
        if let Due::Tested(round, trial) = due {
            let evaluation = self.trials.outcome(round, &trial)?;
            return Some(Event::Tested {
                round,
                trial,
                evaluation,
            });
        }
        let client = client?;
        match due {
            Due::Offer => {
                self.count_answer(observe);
                self.offer(client)
            }
            Due::Delivery => self.deliver(client, observe),
            Due::Leaving { cycle } => {
                let (_, away) = self.times.devices.stay(&client, cycle)?;
                self.plan(&client, self.now + away, Due::Return { cycle: cycle + 1 });
                self.leave(&client);
                self.away.insert(client.clone());
                Some(Event::Left {
                    client,
                    for_good: false,
                })
            }
            Due::Return { cycle } => {
                self.away.remove(&client);
                self.plan_leaving(&client, cycle);
                Some(Event::Joined { client, width: None })
            }
            Due::End => {
                self.forget(&client);
                self.away.insert(client.clone());
                Some(Event::Left { client, for_good: true })
            }
            Due::Tested(..) => None,
        }
    }

    fn count_answer(&mut self, observe: Observer<'_>) {
        self.answered += 1;
        let (round, answered, asked) = (self.engine.round(), self.answered, self.asked);
        observe(Progress::Round { round, answered, asked });
    }

    fn offer(&mut self, client: ClientName) -> Option<Event> {
        let assignment = self.assignments.of(&client)?;
        assignment.entry = None;
        Some(Event::Offered {
            round: assignment.round,
            task: assignment.task,
            report: assignment.report.clone(),
            sections: assignment.sections.clone(),
            bytes: packed_bytes(&assignment.sections).unwrap_or(0),
            client,
        })
    }

    /// What a client has to send is there.
    fn deliver(&mut self, client: ClientName, observe: Observer<'_>) -> Option<Event> {
        let (assignment, came) = self.assignments.take(&client)?;
        let Assignment { round, task, .. } = assignment;
        let failed = |client, reason| Event::Failed {
            client,
            round,
            task,
            reason,
        };
        Some(match came {
            Came::Update(Ok((update, kept))) => {
                self.proposed.insert(client.clone(), (round, Arc::new(kept)));
                let inspector = assignment.inspector?;
                // What it has said of it before was only what is known without training.
                let update = check_report(&update.report).and_then(|()| inspector.open(update));
                Event::Received {
                    client,
                    round,
                    task,
                    update,
                }
            }
            Came::Evaluation(Ok(evaluation)) => {
                self.count_answer(observe);
                Event::Evaluated {
                    client,
                    round,
                    evaluation,
                }
            }
            Came::Update(Err(reason)) | Came::Evaluation(Err(reason)) => failed(client, reason),
        })
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
                let asked = self.ask(client.clone(), round, task, card, model);
                events.extend(asked.err().map(|error| Event::Failed {
                    client,
                    round,
                    task,
                    reason: error.to_string(),
                }));
            }
            Action::Receive {
                client,
                round,
                task,
                inspector,
            } => {
                // Asking for it takes as long as the first byte of it.
                let trip = 2 * self.times.devices.latency(&client);
                let assignment = self.assignments.of(&client).filter(|one| one.is(round, task));
                let Some(assignment) = assignment else {
                    events.push_back(Event::Received {
                        client,
                        round,
                        task,
                        update: Err(Rejection::TransferFailed("nothing was offered".into())),
                    });
                    return None;
                };
                let at = self.now + trip + assignment.upload;
                assignment.inspector = Some(inspector);
                assignment.entry = Some(self.agenda.add(at, Some(&client), Due::Delivery));
                self.assignments.want(&client);
            }
            Action::Answer { client, round, verdict } => {
                if self.assignments.of(&client).is_some_and(|one| one.round == round) {
                    self.forget(&client);
                }
                let is_it = |(of, _): &(u32, _)| *of == round;
                if self.proposed.get(&client).is_some_and(is_it)
                    && let (Some((_, kept)), Ok(())) = (self.proposed.remove(&client), verdict)
                {
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
                match jobs.is_empty() {
                    true => events.push_back(Event::Tested {
                        round,
                        trial,
                        evaluation: Ok(None),
                    }),
                    // The coordinator evaluates in no time.
                    false => drop(self.agenda.add(self.now, None, Due::Tested(round, trial))),
                }
                self.tests.extend(jobs);
            }
            // No model is cut where there is virtual time.
            Action::Step { .. } => {}
            Action::Record(record) => self.record(*record, observe),
            // In virtual time a run is not put down.
            Action::Snapshot(_) => {}
            Action::Finish(outcome) => return Some(outcome),
        }
        None
    }

    /// A round is over.
    fn record(&mut self, mut record: RoundRecord, observe: Observer<'_>) {
        (self.asked, self.answered) = (self.asked.saturating_sub(self.answered), 0);
        self.trials.end(record.round);
        // Where clients are asked one by one, those who have not answered are still under way.
        if self.simulation.description.buffer.is_none() {
            self.asked = 0;
            for entry in self.assignments.end() {
                self.agenda.cancel(&entry);
            }
        }
        let now = self.now;
        self.busy.retain(|_, until| *until > now);
        if self.simulation.description.devices.is_none() {
            record.seconds = self.round_started.elapsed().as_secs_f64();
        }
        self.round_started = Instant::now();
        observe(Progress::Record {
            record: &record,
            state: self.engine.state(),
            units: self.engine.units(),
            fronts: self.engine.fronts(),
        });
    }

    /// Nothing more is wanted of what a client is at.
    fn forget(&mut self, client: &ClientName) {
        if let Some(entry) = self.assignments.forget(client) {
            self.agenda.cancel(&entry);
        }
    }

    /// Hands jobs to the workers, as many as the limits allow.
    fn dispatch(&mut self) -> Result<(), SimulationError> {
        // All else waits for what happens next.
        if let Some(((_, Some(client), _), Due::Delivery)) = self.agenda.first() {
            self.assignments.want_first(client);
        }
        while self.running < self.limits.running {
            let test = self.tests.pop_front();
            let Some(job) = test.or_else(|| self.assignments.next_job(self.running, self.limits.window)) else {
                break;
            };
            self.running += 1;
            self.jobs.send(job).map_err(|_| SimulationError::WorkerEnded)?;
        }
        Ok(())
    }

    /// Takes in what a worker has done, until it is due.
    fn finished(&mut self, done: Done) -> Result<(), SimulationError> {
        self.running -= 1;
        let (client, round, task, came) = match done {
            // Of a split model there is none here.
            Done::Panicked | Done::Stepped { .. } => return Err(SimulationError::WorkerEnded),
            Done::Tested {
                round,
                trial,
                chunk,
                result,
            } => {
                let result = result.map_err(|error| error.to_string());
                self.trials.note(round, &trial, chunk, result);
                return Ok(());
            }
            Done::Trained { client, round, result } => (client, round, Task::Train, Came::Update(result.map_err(said))),
            Done::Calibrated { client, round, result } => {
                let update = result.map(|update| (update, Memory::default()));
                (client, round, Task::Calibrate, Came::Update(update.map_err(said)))
            }
            Done::Evaluated { client, round, result } => {
                (client, round, Task::Evaluate, Came::Evaluation(result.map_err(said)))
            }
        };
        self.assignments.done(&client, round, task, came);
        Ok(())
    }
}

fn said(error: LocalError) -> String {
    error.to_string()
}
