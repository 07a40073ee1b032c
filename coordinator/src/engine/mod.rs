//! The round engine: decides, and does no I/O.
//!
//! Whatever drives it (the QUIC server, the workers of a simulation, a test with a clock of its own) tells it what
//! happened and when, and does what it answers: `handle(now, event) → actions`. A round goes
//! *gather* → *train* → *evaluate* → record, and again.

mod cohort;
mod roster;

pub use roster::Roster;

use std::{sync::Arc, time::Duration};

use selvedge_models::{Layout, Weights};
use selvedge_protocols::{
    Broadcast, ClientName, Description, Federation, ServerState, Update,
    aggregation::Aggregator,
    description::Weighting,
    message::{Evaluation, Task},
    sections::{SectionHeader, packed_bytes},
    update::{Rejection, SealedUpdate, TrainingReport, check_headers, check_report, expected_sections},
};

use serde::{Deserialize, Serialize};

use self::cohort::{Cohort, Member, Status};
use crate::record::RoundRecord;

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A client connected, for the first time or again.
    Joined(ClientName),
    /// A client's connection ended.
    Left {
        /// The client.
        client: ClientName,
        /// Whether it said that it will not come back.
        for_good: bool,
    },
    /// A client has an update ready.
    Offered {
        /// The client.
        client: ClientName,
        /// The round it says the update is for.
        round: u32,
        /// What it says about its training.
        report: TrainingReport,
        /// What the update's blob holds.
        sections: Vec<SectionHeader>,
        /// The size of the update's blob.
        bytes: u64,
    },
    /// An update that was to be received is here and was opened by the round's [`Inspector`], or is not to be had.
    Received {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// The update, or why there is none.
        update: Result<Update, Rejection>,
    },
    /// A client could not do what it was asked.
    Failed {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// Its reason.
        reason: String,
    },
    /// A client evaluated the model on its own examples.
    Evaluated {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// The result.
        evaluation: Evaluation,
    },
    /// The model was evaluated on the coordinator's test set.
    Tested {
        /// The round.
        round: u32,
        /// The result; `None` when there is no test set.
        evaluation: Option<Evaluation>,
    },
    /// Time passed. Due at [`Engine::next_deadline`].
    Tick,
    /// The operator wants the run to end.
    Stop,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Send a client its task. A client that is asked again for the same round has come back: it may answer with what
    /// it has already done.
    Ask {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// What it is to do.
        task: Task,
        /// With what.
        broadcast: Arc<Broadcast>,
    },
    /// Receive what a client offered, open it with the inspector, and report [`Event::Received`].
    Receive {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// Checks and opens the update.
        inspector: Arc<Inspector>,
    },
    /// Tell a client what became of its answer.
    Answer {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// Whether it was taken in.
        verdict: Result<(), Rejection>,
    },
    /// Evaluate the model on the test set and report [`Event::Tested`].
    Test {
        /// The round.
        round: u32,
        /// The model.
        broadcast: Arc<Broadcast>,
    },
    /// A round is over.
    Record(RoundRecord),
    /// The run is over.
    Finish(Outcome),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All rounds were run.
    Completed,
    /// The operator ended it.
    Stopped,
    /// There were too few clients for too long.
    TooFewClients,
}

/// All that is needed to open the updates of a round, apart from the engine, so that it can be done on any thread.
#[derive(Debug)]
pub struct Inspector {
    description: Arc<Description>,
    expected: Arc<[SectionHeader]>,
    broadcast: Arc<Broadcast>,
}

impl Inspector {
    /// The sections that an update must have.
    pub fn expected(&self) -> &[SectionHeader] {
        &self.expected
    }

    /// Checks an update and undoes the filters.
    ///
    /// # Errors
    /// When it is not as assigned, or a number in it is not finite.
    pub fn open(&self, update: SealedUpdate) -> Result<Update, Rejection> {
        update.open(&self.expected, &self.description.filters, &self.broadcast.weights)
    }
}

/// The state of a run.
pub struct Engine {
    description: Arc<Description>,
    expected: Arc<[SectionHeader]>,
    roster: Roster,
    state: ServerState,
    window: usize,
    /// The last round that was begun.
    round: u32,
    phase: Phase,
}

enum Phase {
    Gathering { since: Duration },
    Training(Box<Training>),
    Evaluating(Box<Evaluating>),
    Finished,
}

struct Training {
    started: Duration,
    cohort: Cohort<Update>,
    inspector: Arc<Inspector>,
    aggregator: Box<dyn Aggregator>,
    loss: WeightedLoss,
    record: RoundRecord,
}

struct Evaluating {
    started: Duration,
    cohort: Cohort<Evaluation>,
    pooled: Evaluation,
    broadcast: Arc<Broadcast>,
    tested: bool,
    record: RoundRecord,
}

#[derive(Default)]
struct WeightedLoss {
    sum: f64,
    examples: f64,
}

impl Engine {
    /// A run that begins at round 1 with the given model. At most `window` updates (at least 1) are asked for beyond
    /// the one that is folded next: memory for updates does not grow with the cohort.
    pub fn new(
        description: Arc<Description>,
        layout: &Layout,
        initial: Weights,
        roster: Roster,
        window: usize,
    ) -> Self {
        let expected = expected_sections(layout, &*description.algorithm, &description.filters).into();
        let state = ServerState {
            weights: initial,
            vectors: Default::default(),
        };
        let phase = Phase::Gathering { since: Duration::ZERO };
        Self {
            description,
            expected,
            roster,
            state,
            window: window.max(1),
            round: 0,
            phase,
        }
    }

    /// The global model and the algorithm's vectors, as they are after the last complete round.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// The last round that was begun; 0 before the first.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// How many clients are there.
    pub fn clients(&self) -> usize {
        self.roster.len()
    }

    /// How many clients the next round waits for.
    pub fn clients_needed(&self) -> usize {
        let description = &self.description;
        let start = description.network.start_with.unwrap_or(description.clients);
        match self.round {
            0 => start,
            _ => description.quorum(description.cohort_size()).min(start),
        }
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Gathering { since } => Some(*since + self.wait()),
            Phase::Training(training) => training.cohort.next_deadline(self.grace()),
            Phase::Evaluating(evaluating) => evaluating.cohort.next_deadline(self.grace()),
            Phase::Finished => None,
        }
    }

    /// How long a lost client may take to come back.
    fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.description.network.idle_seconds)
    }

    /// How long a round may take.
    fn allowed(&self) -> Duration {
        Duration::from_secs_f64(self.description.cohort.deadline_seconds)
    }

    /// How long the run waits for enough clients.
    fn wait(&self) -> Duration {
        Duration::from_secs_f64(self.description.network.wait_seconds)
    }

    /// Takes in what happened at `now` (measured from any fixed moment, never going back), and says what is to be done.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Joined(client) => self.joined(client, &mut actions),
            Event::Left { client, for_good } => self.left(now, &client, for_good),
            Event::Offered {
                client,
                round,
                report,
                sections,
                bytes,
            } => {
                let verdict = self.offered(&client, round, &report, &sections, bytes);
                if let Err(reason) = verdict {
                    actions.push(Action::Answer {
                        client,
                        round,
                        verdict: Err(reason),
                    });
                }
            }
            Event::Received { client, round, update } => {
                if let Some(verdict) = self.received(&client, round, update) {
                    actions.push(Action::Answer { client, round, verdict });
                }
            }
            Event::Failed { client, round, reason } => self.failed(&client, round, reason),
            Event::Evaluated {
                client,
                round,
                evaluation,
            } => {
                if let Err(reason) = self.evaluated(&client, round, evaluation) {
                    actions.push(Action::Answer {
                        client,
                        round,
                        verdict: Err(reason),
                    });
                }
            }
            Event::Tested { round, evaluation } => {
                if let Phase::Evaluating(evaluating) = &mut self.phase
                    && evaluating.record.round == round
                {
                    evaluating.tested = true;
                    evaluation
                        .iter()
                        .for_each(|evaluation| evaluating.record.test(evaluation));
                }
            }
            Event::Tick => {}
            Event::Stop if matches!(self.phase, Phase::Finished) => {}
            Event::Stop => self.finish(Outcome::Stopped, &mut actions),
        }
        self.advance(now, &mut actions);
        actions
    }

    fn joined(&mut self, client: ClientName, actions: &mut Vec<Action>) {
        self.roster.join(client.clone());
        let (is_open, task, broadcast) = match &mut self.phase {
            Phase::Training(training) => (
                training.cohort.rejoined(&client),
                Task::Train,
                &training.inspector.broadcast,
            ),
            Phase::Evaluating(evaluating) => (
                evaluating.cohort.rejoined(&client),
                Task::Evaluate,
                &evaluating.broadcast,
            ),
            Phase::Gathering { .. } | Phase::Finished => return,
        };
        if is_open {
            let broadcast = broadcast.clone();
            actions.push(Action::Ask {
                client,
                round: self.round,
                task,
                broadcast,
            });
        }
    }

    fn left(&mut self, now: Duration, client: &ClientName, for_good: bool) {
        self.roster.leave(client);
        let lost = (!for_good).then_some(now);
        let gave_up = match &mut self.phase {
            Phase::Training(training) => training.cohort.lose(client, lost).then_some(&mut training.record),
            Phase::Evaluating(evaluating) => evaluating.cohort.lose(client, lost).then_some(&mut evaluating.record),
            _ => None,
        };
        if let Some(record) = gave_up {
            record.fail(client, &Rejection::Disconnected);
        }
    }

    fn offered(
        &mut self,
        client: &ClientName,
        round: u32,
        report: &TrainingReport,
        sections: &[SectionHeader],
        bytes: u64,
    ) -> Result<(), Rejection> {
        let now = self.round;
        let Phase::Training(training) = &mut self.phase else {
            return self.stray(round);
        };
        let member = match training.cohort.member(client) {
            _ if round != now => Err(Rejection::WrongRound { update: round, now }),
            None => Err(Rejection::NotSelected),
            Some(Member {
                status: Status::Asked, ..
            }) => Ok(()),
            Some(_) => Err(Rejection::Duplicate),
        };
        if let Err(reason) = member {
            training.record.turn_down(&reason);
            return Err(reason);
        }
        let checked = check_report(report)
            .and_then(|()| check_headers(&self.expected, sections))
            .and_then(|()| match packed_bytes(sections) {
                Some(packed) if packed == bytes => Ok(()),
                _ => Err(Rejection::WrongSize(format!(
                    "{bytes} bytes announced for {}",
                    describe(sections)
                ))),
            });
        let checked = checked.and(if report.examples == 0 {
            Err(Rejection::NoExamples)
        } else {
            Ok(())
        });
        training.settle(client, checked.map(|()| Status::Offered))
    }

    /// An answer that no phase waits for.
    fn stray(&mut self, round: u32) -> Result<(), Rejection> {
        let reason = match (&self.phase, round == self.round) {
            (Phase::Evaluating(_), true) => Rejection::Duplicate,
            _ => Rejection::WrongRound {
                update: round,
                now: self.round,
            },
        };
        if let Phase::Evaluating(evaluating) = &mut self.phase {
            evaluating.record.turn_down(&reason);
        }
        Err(reason)
    }

    /// What to tell the client; `None` when the update was given up before it came.
    fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        update: Result<Update, Rejection>,
    ) -> Option<Result<(), Rejection>> {
        let Phase::Training(training) = &mut self.phase else {
            return None;
        };
        let is_awaited = round == self.round
            && training
                .cohort
                .member(client)
                .is_some_and(|member| matches!(member.status, Status::Receiving));
        if !is_awaited {
            return None;
        }
        if update.is_ok() {
            training.record.bytes_up += packed_bytes(&self.expected).unwrap_or(0);
        }
        Some(training.settle(client, update.map(Status::Held)))
    }

    fn failed(&mut self, client: &ClientName, round: u32, reason: String) {
        if round != self.round {
            return;
        }
        let reason = Rejection::TrainingFailed(reason.chars().take(200).collect());
        let record = match &mut self.phase {
            Phase::Training(training) => training.cohort.give_up(client).then_some(&mut training.record),
            Phase::Evaluating(phase) => phase.cohort.give_up(client).then_some(&mut phase.record),
            _ => None,
        };
        if let Some(record) = record {
            record.fail(client, &reason);
        }
    }

    fn evaluated(&mut self, client: &ClientName, round: u32, evaluation: Evaluation) -> Result<(), Rejection> {
        let now = self.round;
        let Phase::Evaluating(evaluating) = &mut self.phase else {
            return Err(Rejection::WrongRound { update: round, now });
        };
        let verdict = match evaluating.cohort.member(client) {
            _ if round != now => Err(Rejection::WrongRound { update: round, now }),
            None => Err(Rejection::NotSelected),
            Some(Member { status, .. }) if matches!(status, Status::Asked) => {
                if evaluation.is_possible() {
                    *status = Status::Held(evaluation);
                    return Ok(());
                }
                let reason = Rejection::ImpossibleReport("more right answers than examples, or no finite loss".into());
                *status = Status::Failed;
                evaluating.record.fail(client, &reason);
                return Err(reason);
            }
            Some(_) => Err(Rejection::Duplicate),
        };
        if let Err(reason) = &verdict {
            evaluating.record.turn_down(reason);
        }
        verdict
    }

    /// Goes as far as it goes without hearing anything new.
    fn advance(&mut self, now: Duration, actions: &mut Vec<Action>) {
        loop {
            let grace = self.grace();
            match std::mem::replace(&mut self.phase, Phase::Finished) {
                Phase::Finished => return,
                Phase::Gathering { since } => {
                    if self.round == self.description.rounds {
                        return self.finish(Outcome::Completed, actions);
                    }
                    if self.roster.len() < self.clients_needed() {
                        if now >= since + self.wait() {
                            return self.finish(Outcome::TooFewClients, actions);
                        }
                        self.phase = Phase::Gathering { since };
                        return;
                    }
                    self.phase = self.train(now, actions);
                }
                Phase::Training(mut training) => {
                    training.expire(now, grace);
                    training.fold(self.description.aggregation.weighting);
                    training.receive(self.window, actions);
                    if !training.cohort.is_settled() {
                        self.phase = Phase::Training(training);
                        return;
                    }
                    self.phase = self.aggregate(now, *training, actions);
                }
                Phase::Evaluating(mut evaluating) => {
                    evaluating.advance(now, grace);
                    if !(evaluating.tested && evaluating.cohort.is_settled()) {
                        self.phase = Phase::Evaluating(evaluating);
                        return;
                    }
                    actions.push(Action::Record(evaluating.finish(now)));
                    self.phase = Phase::Gathering { since: now };
                }
            }
        }
    }

    /// Opens a round: selects its cohort and asks it to train.
    fn train(&mut self, now: Duration, actions: &mut Vec<Action>) -> Phase {
        self.round += 1;
        let description = &self.description;
        let names = self
            .roster
            .select(description.cohort_size(), description.seed, self.round);
        let broadcast = Arc::new(self.state.broadcast(&*description.algorithm));
        let record = RoundRecord {
            round: self.round,
            selected: names.len(),
            ..RoundRecord::default()
        };
        let inspector = Inspector {
            description: description.clone(),
            expected: self.expected.clone(),
            broadcast: broadcast.clone(),
        };
        let mut training = Training {
            started: now,
            cohort: Cohort::new(names, now, self.allowed()),
            inspector: Arc::new(inspector),
            aggregator: description.algorithm.aggregator(),
            loss: WeightedLoss::default(),
            record,
        };
        training.record.bytes_down += ask(&training.cohort, self.round, Task::Train, &broadcast, actions);
        Phase::Training(Box::new(training))
    }

    /// Moves the model by what the updates came to, and has it evaluated.
    fn aggregate(&mut self, now: Duration, training: Training, actions: &mut Vec<Action>) -> Phase {
        let Training {
            started,
            cohort,
            aggregator,
            loss,
            mut record,
            ..
        } = training;
        record.train_loss = (loss.examples > 0.0).then(|| loss.sum / loss.examples);
        let without_examples = record.failed.get(Rejection::NoExamples.code()).copied().unwrap_or(0);
        let quorum = self.description.quorum(record.selected);
        if record.completed + without_examples < quorum {
            record.note = Some(format!(
                "{} of {} clients answered, {quorum} were needed: the model stays as it was",
                record.completed + without_examples,
                record.selected,
            ));
        } else if let Some(aggregate) = aggregator.finish() {
            let federation = Federation {
                clients: self.description.clients,
            };
            self.description
                .algorithm
                .server(&mut self.state, aggregate, federation);
            record.applied = true;
        } else {
            record.note = Some("no client of the cohort holds an example: the model stays as it was".into());
        }

        let is_evaluated = self.description.is_evaluated(self.round);
        let by_clients = is_evaluated && self.description.evaluation.by_clients;
        let broadcast = Arc::new(Broadcast {
            weights: self.state.weights.clone(),
            vectors: Default::default(),
        });
        let names = match by_clients {
            true => cohort.members.into_iter().map(|member| member.name).collect(),
            false => Vec::new(),
        };
        let cohort = Cohort::new(names, now, self.allowed());
        if by_clients {
            record.bytes_down += ask(&cohort, self.round, Task::Evaluate, &broadcast, actions);
        }
        if is_evaluated {
            actions.push(Action::Test {
                round: self.round,
                broadcast: broadcast.clone(),
            });
        }
        let pooled = Evaluation::default();
        Phase::Evaluating(Box::new(Evaluating {
            started,
            cohort,
            pooled,
            broadcast,
            tested: !is_evaluated,
            record,
        }))
    }

    fn finish(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        self.phase = Phase::Finished;
        actions.push(Action::Finish(outcome));
    }
}

impl Training {
    /// Settles a member's status: what it is now, or why it failed.
    fn settle(&mut self, client: &ClientName, status: Result<Status<Update>, Rejection>) -> Result<(), Rejection> {
        let Some(member) = self.cohort.member(client) else {
            return Ok(());
        };
        match status {
            Ok(status) => {
                member.status = status;
                Ok(())
            }
            Err(reason) => {
                member.status = Status::Failed;
                self.record.fail(client, &reason);
                Err(reason)
            }
        }
    }

    fn expire(&mut self, now: Duration, grace: Duration) {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail(&client, &reason);
        }
    }

    /// Folds the updates whose turn it is.
    fn fold(&mut self, weighting: Weighting) {
        while let Some((_, update)) = self.cohort.take_next() {
            let examples = update.trained.examples as f64;
            if let Some(loss) = update.trained.loss {
                self.loss.sum += loss * examples;
                self.loss.examples += examples;
            }
            let weight = match weighting {
                Weighting::Examples => examples,
                Weighting::Uniform => 1.0,
            };
            self.aggregator.fold(update, weight);
            self.record.completed += 1;
        }
    }

    /// Asks for the updates that are within the window.
    fn receive(&mut self, window: usize, actions: &mut Vec<Action>) {
        for client in self.cohort.receive(window) {
            actions.push(Action::Receive {
                client,
                round: self.record.round,
                inspector: self.inspector.clone(),
            });
        }
    }
}

impl Evaluating {
    fn advance(&mut self, now: Duration, grace: Duration) {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail(&client, &reason);
        }
        while let Some((_, evaluation)) = self.cohort.take_next() {
            self.pooled.add(evaluation);
        }
    }

    fn finish(self, now: Duration) -> RoundRecord {
        let mut record = self.record;
        record.clients_accuracy = self.pooled.accuracy();
        record.clients_loss = self.pooled.mean_loss();
        record.seconds = now.saturating_sub(self.started).as_secs_f64();
        record
    }
}

/// Asks every member, and says how many bytes that sends.
fn ask<Answer>(
    cohort: &Cohort<Answer>,
    round: u32,
    task: Task,
    broadcast: &Arc<Broadcast>,
    actions: &mut Vec<Action>,
) -> u64 {
    actions.extend(cohort.members.iter().map(|member| Action::Ask {
        client: member.name.clone(),
        round,
        task,
        broadcast: broadcast.clone(),
    }));
    let bytes = packed_bytes(&broadcast.headers()).unwrap_or(0);
    bytes.saturating_mul(cohort.members.len() as u64)
}

fn describe(sections: &[SectionHeader]) -> String {
    let sections: Vec<_> = sections
        .iter()
        .map(|section| format!("{} {}", section.values, section.name))
        .collect();
    sections.join(", ")
}
