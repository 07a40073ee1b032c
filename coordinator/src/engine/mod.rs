//! The round engine: decides, and does no I/O.
//!
//! Whatever drives it (the QUIC server, the workers of a simulation, a test with a clock of its own) tells it what
//! happened and when, and does what it answers: `handle(now, event) → actions`. A round goes
//! *gather* → *train* → *calibrate* (where batch norm is static) → *evaluate* → record, and again.

mod calibrating;
mod cohort;
mod collection;
mod evaluating;
mod event;
mod global_model;
mod hands;
mod inspector;
mod new_model;
mod roster;
mod splitting;
mod steps;
mod training;
mod units;

pub use event::{Action, Event, Outcome};
pub use global_model::{Fronts, GlobalModel};
pub use inspector::{Inspector, Opened};
pub use roster::Roster;
pub use units::UnitCounts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use selvedge_models::Weights;
use selvedge_protocols::{
    Broadcast, ClientName, Description, Parts, Rejection, ServerState, Width,
    description::Shares,
    message::Task,
    plan::{Dealer, Seat},
    split::{Cut, leader::Leaders},
};

use self::{calibrating::Calibrating, cohort::Cohort, evaluating::Evaluating, training::Training};

/// Of a client's own words, this many characters are kept.
const LONGEST_REASON: usize = 200;

/// The state of a run.
pub struct Engine {
    description: Arc<Description>,
    parts: Arc<Parts>,
    roster: Roster,
    capacities: Shares<Width>,
    cuts: Shares<Option<Cut>>,
    /// What clients can train by what they have reported.
    reported: BTreeMap<ClientName, Width>,
    dealer: Box<dyn Dealer>,
    units: UnitCounts,
    state: ServerState,
    /// Where clients keep their fronts, those that were evaluated last.
    fronts: Fronts,
    /// Where clients keep their fronts, who has one of its own.
    has_front: BTreeSet<ClientName>,
    /// Where gradients are aligned, the directions of the fronts' and of the back's.
    leaders: Leaders,
    window: usize,
    /// The last round that was begun.
    round: u32,
    phase: Phase,
}

enum Phase {
    Gathering { since: Duration },
    Training(Box<Training>),
    Calibrating(Box<Calibrating>),
    Evaluating(Box<Evaluating>),
    Finished,
}

impl Phase {
    /// What clients are asked in it.
    fn task(&self) -> Option<Task> {
        match self {
            Self::Training(_) => Some(Task::Train),
            Self::Calibrating(_) => Some(Task::Calibrate),
            Self::Evaluating(_) => Some(Task::Evaluate),
            Self::Gathering { .. } | Self::Finished => None,
        }
    }
}

impl Engine {
    /// A run that begins at round 1 with the given model. At most `window` updates (at least 1) are asked for beyond
    /// the one that is folded next: memory for updates does not grow with the cohort.
    pub fn new(
        description: Arc<Description>,
        parts: Arc<Parts>,
        initial: Weights,
        roster: Roster,
        window: usize,
    ) -> Self {
        let state = ServerState::from(initial);
        let phase = Phase::Gathering { since: Duration::ZERO };
        Self {
            capacities: description.capacities(),
            cuts: description.cuts(),
            reported: BTreeMap::new(),
            dealer: description.plan().dealer(),
            units: UnitCounts::none(parts.whole()),
            description,
            parts,
            roster,
            state,
            fronts: Fronts::new(),
            has_front: BTreeSet::new(),
            leaders: Default::default(),
            window: window.max(1),
            round: 0,
            phase,
        }
    }

    /// The global model and the algorithm's vectors, as they are after the last complete round.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// Where clients keep their fronts, those that were evaluated last.
    pub fn fronts(&self) -> &Fronts {
        &self.fronts
    }

    /// How often each unit was trained.
    pub fn units(&self) -> &UnitCounts {
        &self.units
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
            Phase::Training(training) => training.next_deadline(),
            Phase::Calibrating(calibrating) => calibrating.collection.cohort.next_deadline(),
            Phase::Evaluating(evaluating) => evaluating.cohort.next_deadline(),
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
            Event::Joined { client, width } => self.joined(client, width, &mut actions),
            Event::Left { client, for_good } => self.left(now, &client, for_good, &mut actions),
            Event::Offered {
                client,
                round,
                task,
                report,
                sections,
                bytes,
            } => {
                let verdict = match &mut self.phase {
                    Phase::Training(training) if task == Task::Train => {
                        training.collection.offered(&client, round, &report, &sections, bytes)
                    }
                    Phase::Calibrating(calibrating) if task == Task::Calibrate => calibrating
                        .collection
                        .offered(&client, round, &report, &sections, bytes),
                    Phase::Calibrating(calibrating) => Err(calibrating.late(&client, round)),
                    Phase::Evaluating(evaluating) => Err(evaluating.offered(&client, round)),
                    Phase::Training(_) | Phase::Gathering { .. } | Phase::Finished => Err(self.wrong_round(round)),
                };
                turn_down(client, round, verdict, &mut actions);
            }
            Event::Received {
                client,
                round,
                task,
                update,
            } => {
                let verdict = match (&mut self.phase, task) {
                    (Phase::Training(training), Task::Train) => training.collection.received(&client, round, update),
                    (Phase::Calibrating(calibrating), Task::Calibrate) => {
                        calibrating.collection.received(&client, round, update)
                    }
                    _ => Ok(()),
                };
                turn_down(client, round, verdict, &mut actions);
            }
            Event::Failed {
                client,
                round,
                task,
                reason,
            } => {
                if round == self.round && Some(task) == self.phase.task() {
                    let reason = Rejection::ClientFailed(reason.chars().take(LONGEST_REASON).collect());
                    self.give_up(&client, &reason);
                }
            }
            Event::Evaluated {
                client,
                round,
                evaluation,
            } => {
                let verdict = match &mut self.phase {
                    Phase::Evaluating(evaluating) => evaluating.evaluated(&client, round, evaluation),
                    _ => Err(self.wrong_round(round)),
                };
                turn_down(client, round, verdict, &mut actions);
            }
            Event::Stepped {
                client,
                message,
                payload,
            } => {
                if let Phase::Training(training) = &mut self.phase {
                    training.stepped(now, &client, message, &payload, &mut actions);
                }
            }
            Event::Misstepped { client, reason } => {
                if let Phase::Training(training) = &mut self.phase {
                    training.misstepped(now, &client, &reason, &mut actions);
                }
            }
            Event::Tested {
                round,
                trial,
                evaluation,
            } => {
                if let Phase::Evaluating(evaluating) = &mut self.phase {
                    evaluating.tested(round, &trial, evaluation);
                }
            }
            Event::Tick => {}
            Event::Stop => self.stop(now, &mut actions),
        }
        self.advance(now, &mut actions);
        actions
    }

    fn joined(&mut self, client: ClientName, width: Option<Width>, actions: &mut Vec<Action>) {
        self.roster.join(client.clone());
        if let Some(width) = width {
            self.reported.insert(client.clone(), width);
        }
        actions.extend(match &mut self.phase {
            Phase::Training(training) => training.collection.rejoined(&client),
            Phase::Calibrating(calibrating) => calibrating.collection.rejoined(&client),
            Phase::Evaluating(evaluating) => evaluating.rejoined(&client),
            Phase::Gathering { .. } | Phase::Finished => None,
        });
    }

    /// The largest width that a client can train.
    fn width_of(&self, client: &ClientName) -> Width {
        self.reported
            .get(client)
            .copied()
            .unwrap_or_else(|| self.capacities.of(client))
    }

    fn left(&mut self, now: Duration, client: &ClientName, for_good: bool, actions: &mut Vec<Action>) {
        self.roster.leave(client);
        if let Phase::Training(training) = &mut self.phase {
            training.left(now, client, actions);
        }
        let grace = self.grace();
        match &mut self.phase {
            _ if for_good => self.give_up(client, &Rejection::Disconnected),
            Phase::Training(training) => training.collection.cohort.lose(client, now, grace),
            Phase::Calibrating(calibrating) => calibrating.collection.cohort.lose(client, now, grace),
            Phase::Evaluating(evaluating) => evaluating.cohort.lose(client, now, grace),
            Phase::Gathering { .. } | Phase::Finished => {}
        }
    }

    /// Nothing more is expected of a client in this round.
    fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        match &mut self.phase {
            Phase::Training(training) => training.collection.give_up(client, reason),
            Phase::Calibrating(calibrating) => calibrating.collection.give_up(client, reason),
            Phase::Evaluating(evaluating) => evaluating.give_up(client, reason),
            Phase::Gathering { .. } | Phase::Finished => {}
        }
    }

    /// Ends the run. A round whose model is there already is recorded, though its evaluation is not complete.
    fn stop(&mut self, now: Duration, actions: &mut Vec<Action>) {
        match std::mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Finished => return,
            Phase::Evaluating(evaluating) => actions.push(self.record(*evaluating, now)),
            Phase::Calibrating(calibrating) => actions.push(Action::Record(Box::new(calibrating.stopped(now)))),
            Phase::Gathering { .. } | Phase::Training(_) => {}
        }
        actions.push(Action::Finish(Outcome::Stopped));
    }

    fn wrong_round(&self, update: u32) -> Rejection {
        Rejection::WrongRound {
            update,
            now: self.round,
        }
    }

    /// Goes as far as it goes without hearing anything new.
    fn advance(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let grace = self.grace();
        loop {
            self.phase = match std::mem::replace(&mut self.phase, Phase::Finished) {
                Phase::Finished => return,
                Phase::Gathering { since } => {
                    if self.round == self.description.rounds {
                        return actions.push(self.finish(Outcome::Completed));
                    }
                    if self.roster.len() < self.clients_needed() {
                        if now >= since + self.wait() {
                            return actions.push(self.finish(Outcome::TooFewClients));
                        }
                        self.phase = Phase::Gathering { since };
                        return;
                    }
                    Phase::Training(Box::new(self.train(now, actions)))
                }
                Phase::Training(mut training) => {
                    if !training.advance(now, grace, self.window, actions) {
                        self.phase = Phase::Training(training);
                        return;
                    }
                    self.applied(now, training.close(), actions)
                }
                Phase::Calibrating(mut calibrating) => {
                    if !calibrating.advance(now, grace, self.window, actions) {
                        self.phase = Phase::Calibrating(calibrating);
                        return;
                    }
                    let (closed, statistics) = calibrating.close();
                    Phase::Evaluating(Box::new(self.evaluate(now, closed, statistics, actions)))
                }
                Phase::Evaluating(mut evaluating) => {
                    if !evaluating.advance(now, grace) {
                        self.phase = Phase::Evaluating(evaluating);
                        return;
                    }
                    actions.push(self.record(*evaluating, now));
                    Phase::Gathering { since: now }
                }
            }
        }
    }

    /// Opens a round: selects its cohort and asks it to train.
    fn train(&mut self, now: Duration, actions: &mut Vec<Action>) -> Training {
        self.round += 1;
        let description = &self.description;
        let size = description.cohort_size();
        let names = self.roster.select(size, description.seed, self.round);
        let seat = |client: &ClientName| Seat {
            width: self.width_of(client),
            client: client.clone(),
        };
        let seats: Vec<Seat> = names.iter().map(seat).collect();
        let mut cards = self.dealer.deal(description.seed.0, self.round, &seats);
        for (card, client) in cards.iter_mut().zip(&names) {
            card.cut = self.cuts.of(client);
        }
        let model = Arc::new(self.model(self.state.broadcast(&*description.algorithm)));
        let cohort = Cohort::new(names, now, self.allowed());
        let description = description.clone();
        let spared = &self.has_front;
        let leaders = self.leaders.clone();
        Training::open(
            self.round,
            cohort,
            cards,
            spared,
            leaders,
            now,
            description,
            model,
            actions,
        )
    }

    fn model(&self, broadcast: Broadcast) -> GlobalModel {
        GlobalModel::new(&self.description, self.parts.clone(), broadcast)
    }

    fn record(&self, evaluating: Evaluating, now: Duration) -> Action {
        let mut record = evaluating.close(now);
        if record.test_loss.is_some() && self.description.widths().contains(&Width::WHOLE) {
            let (loss, accuracy) = (record.test_loss, record.test_accuracy);
            if let Some(whole) = record.width(Width::WHOLE, &self.description) {
                (whole.test_loss, whole.test_accuracy) = (loss, accuracy);
            }
        }
        if !self.description.training.loss.has_accuracy() {
            (record.test_accuracy, record.clients_accuracy, record.training_accuracy) = (None, None, None);
            record.widths.iter_mut().for_each(|width| width.test_accuracy = None);
        }
        Action::Record(Box::new(record))
    }

    fn finish(&mut self, outcome: Outcome) -> Action {
        self.phase = Phase::Finished;
        Action::Finish(outcome)
    }
}

/// Tells a client why what it sent was not taken in, if it was not.
fn turn_down(client: ClientName, round: u32, verdict: Result<(), Rejection>, actions: &mut Vec<Action>) {
    if verdict.is_err() {
        actions.push(Action::Answer { client, round, verdict });
    }
}
