//! The steps of a round of split learning: who is awaited in which exchange, and what is answered.
//!
//! Whatever the order in which clients are heard, an exchange is computed in the order of their names, once all are there
//! who are awaited or the step's time is over.

mod backs;
mod early;
mod exchanges;
mod payloads;
mod schedule;
mod stepper;

pub(super) use backs::Backs;
pub(super) use stepper::Stepper;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use candle_core::Tensor;
use selvedge_models::Weights;
use selvedge_protocols::{
    ClientName, Description, Rejection,
    description::Split,
    split::{Alignment, Exchange, FromClient, FromServer, leader::Leader, targets::Received},
};

use self::{backs::Contribution, early::Early, stepper::Tally};
use super::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Clients say that they are ready.
    Entering,
    Exchange(Exchange),
    /// Nobody who is there has anything to do.
    Idle,
}

/// What a client has sent in an exchange.
enum Sent {
    Smashed(Tensor, Option<Received>),
    Gradient(Tensor),
    Values(Vec<f32>),
}

/// The steps of a round.
pub(super) struct Steps {
    description: Arc<Description>,
    split: Split,
    round: u32,
    steppers: Vec<Stepper>,
    pub(super) backs: Backs,
    /// The direction in which the fronts' gradients go, where they are aligned.
    leader: Leader,
    stage: Stage,
    step: u32,
    /// Where clients take turns: whose it is, and the front that was left last.
    turn: usize,
    handed_on: Option<Weights>,
    /// Those whose turn ended before they had made it, since this was last asked for.
    given_up: Vec<ClientName>,
    /// Where the server says so, how many examples each client contributes to each step.
    sizes: Vec<Vec<u32>>,
    /// When the exchange is over, at the latest.
    due: Option<Duration>,
    /// How many were awaited when the step began.
    expected: usize,
    awaited: BTreeSet<usize>,
    sent: BTreeMap<usize, Sent>,
    /// Those for whom the step is over, whatever becomes of it.
    out: BTreeSet<usize>,
    /// Smashed data of steps to come: one that has no part in a step, or was left out of it, is ahead of the others.
    early: BTreeMap<usize, Early>,
    /// Those whose smashed data went through the back in this step.
    batch: Vec<Contribution>,
    pub(super) tally: Tally,
}

impl Steps {
    pub(super) fn new(
        description: &Arc<Description>,
        split: &Split,
        round: u32,
        steppers: Vec<Stepper>,
        backs: Backs,
        leader: Leader,
        now: Duration,
    ) -> Self {
        let mut steps = Self {
            description: description.clone(),
            split: split.clone(),
            round,
            awaited: (0..steppers.len()).collect(),
            steppers,
            backs,
            leader,
            stage: Stage::Entering,
            step: 0,
            turn: 0,
            handed_on: None,
            given_up: Vec::new(),
            sizes: Vec::new(),
            due: None,
            expected: 0,
            sent: BTreeMap::new(),
            out: BTreeSet::new(),
            early: BTreeMap::new(),
            batch: Vec::new(),
            tally: Tally::default(),
        };
        steps.due = Some(now + steps.patience());
        steps
    }

    fn takes_turns(&self) -> bool {
        self.split.method.takes_turns()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.split.step_seconds)
    }

    /// When somebody may have to be given up.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let is_turn = self.takes_turns() && self.stage == Stage::Idle && self.turn < self.steppers.len();
        match !self.awaited.is_empty() || is_turn {
            // Its time begins when what was computed has been said.
            true => Some(self.due.unwrap_or(Duration::ZERO)),
            false => None,
        }
    }

    /// The client at this place of the cohort, if its model is cut.
    pub(super) fn stepper(&self, at: usize) -> Option<&Stepper> {
        self.steppers.get(self.index_at(at)?)
    }

    /// What the examples of the client at this place of the cohort came to: its mean training loss, and how many of each
    /// class there were.
    pub(super) fn came_to(&self, at: usize) -> (Option<f64>, &[u64]) {
        let Some(stepper) = self.stepper(at) else {
            return (None, &[]);
        };
        let backs::StepLoss { sum, examples } = stepper.loss;
        ((examples > 0).then(|| sum / examples as f64), &stepper.classes)
    }

    /// The back that the client at this place of the cohort has for itself.
    pub(super) fn own_back(&self, at: usize) -> Option<Weights> {
        self.backs.of(self.index_at(at)?)
    }

    // Steppers are in the order of the cohort, which is that of the names.

    fn index_at(&self, at: usize) -> Option<usize> {
        self.steppers.binary_search_by_key(&at, |stepper| stepper.at).ok()
    }

    /// Whether clients send their fronts after this round.
    pub(super) fn fronts_travel(&self) -> bool {
        self.description.fronts_travel(self.round)
    }

    /// The direction of the fronts' gradients, for the next round.
    pub(super) fn leader(&self) -> &Leader {
        &self.leader
    }

    fn position(&self, client: &ClientName) -> Option<usize> {
        self.steppers.binary_search_by(|stepper| stepper.name.cmp(client)).ok()
    }

    /// A client says something.
    pub(super) fn said(
        &mut self,
        now: Duration,
        client: &ClientName,
        message: FromClient,
        payload: &[u8],
        actions: &mut Vec<Action>,
    ) {
        let Some(index) = self.position(client) else {
            return self.lose(&Rejection::NotSelected);
        };
        match message {
            FromClient::Enter { round, .. } | FromClient::Send { round, .. } if round != self.round => {
                let now = self.round;
                self.lose(&Rejection::WrongRound { update: round, now });
            }
            FromClient::Enter { examples, .. } => self.entered(index, examples, actions),
            FromClient::Send {
                step,
                exchange,
                examples,
                ..
            } => {
                self.tally.bytes_up += payload.len() as u64;
                let is_idle = self.stage == Stage::Idle;
                let is_to_come = step > self.step || (is_idle && step == self.step);
                if !self.steppers[index].open {
                    self.lose(&Rejection::GivenUp);
                    self.dismiss(index, actions);
                } else if is_to_come && u64::from(step) <= self.last_step() && exchange == Exchange::Smashed {
                    self.came_early(index, step, examples, payload, actions);
                } else {
                    self.sent(index, step, exchange, examples, payload, actions);
                }
            }
        }
        self.advance(now, actions);
    }

    /// A client has sent its part of an exchange.
    fn sent(
        &mut self,
        index: usize,
        step: u32,
        exchange: Exchange,
        examples: u32,
        payload: &[u8],
        actions: &mut Vec<Action>,
    ) {
        match self.check(index, step, exchange, examples, payload) {
            Ok(sent) => {
                self.steppers[index].is_behind = false;
                self.awaited.remove(&index);
                self.sent.insert(index, sent);
            }
            // It is behind the others, and is told where they are.
            Err(Rejection::WrongStep { .. }) if self.steppers[index].is_behind => self.skip(index, actions),
            // Its own part has come already, or is not waited for any longer.
            Err(reason @ (Rejection::Duplicate | Rejection::WrongStep { .. })) => self.lose(&reason),
            Err(reason) => {
                self.lose(&reason);
                self.skip(index, actions);
            }
        }
    }

    /// What a client said cannot be of its steps; it is not there until it enters again.
    pub(super) fn misstepped(
        &mut self,
        now: Duration,
        client: &ClientName,
        reason: &Rejection,
        actions: &mut Vec<Action>,
    ) {
        self.lose(reason);
        if let Some(index) = self.position(client) {
            self.steppers[index].present = false;
            self.out.insert(index);
            if self.stage != Stage::Entering {
                self.awaited.remove(&index);
            }
        }
        self.advance(now, actions);
    }

    fn lose(&mut self, reason: &Rejection) {
        *self.tally.lost.entry(reason.code().into()).or_default() += 1;
    }

    fn say(&mut self, index: usize, message: FromServer, payload: Vec<u8>, actions: &mut Vec<Action>) {
        self.tally.bytes_down += payload.len() as u64;
        actions.push(Action::Step {
            client: self.steppers[index].name.clone(),
            message,
            payload,
        });
    }

    /// The step goes on without a client.
    fn skip(&mut self, index: usize, actions: &mut Vec<Action>) {
        self.out.insert(index);
        self.awaited.remove(&index);
        self.sent.remove(&index);
        // While nobody is awaited the step has not begun.
        let (round, step) = (self.round, self.step + u32::from(self.stage != Stage::Idle));
        self.say(index, FromServer::Skipped { round, step }, Vec::new(), actions);
    }

    /// Nothing more is expected of a client in these steps: it may hand in what it has.
    fn dismiss(&mut self, index: usize, actions: &mut Vec<Action>) {
        let (round, step) = (self.round, u32::MAX);
        self.say(index, FromServer::Skipped { round, step }, Vec::new(), actions);
    }

    /// A client's connection is lost: its part of the step is too.
    pub(super) fn left(&mut self, now: Duration, client: &ClientName, actions: &mut Vec<Action>) {
        let Some(index) = self.position(client) else { return };
        self.steppers[index].present = false;
        self.out.insert(index);
        // One that has yet to enter may still do so in time.
        if self.stage != Stage::Entering && self.awaited.remove(&index) {
            self.lose(&Rejection::Disconnected);
        }
        self.advance(now, actions);
    }

    /// Nothing more is expected of a client in this round.
    pub(super) fn close(&mut self, now: Duration, client: &ClientName, actions: &mut Vec<Action>) {
        let Some(index) = self.position(client) else { return };
        self.steppers[index].open = false;
        self.steppers[index].present = false;
        self.awaited.remove(&index);
        if self.takes_turns() && self.turn == index && self.stage != Stage::Entering {
            self.next_turn(now, actions);
        }
        self.advance(now, actions);
    }

    /// Where clients take turns: the one at this place of the cohort has left this front.
    pub(super) fn hand_on(&mut self, now: Duration, at: usize, front: Weights, actions: &mut Vec<Action>) {
        // One whose time was over has nothing to hand on.
        let Some(stepper) = self
            .steppers
            .get(self.turn)
            .filter(|stepper| stepper.at == at && stepper.open)
        else {
            return;
        };
        let name = stepper.name.clone();
        self.handed_on = Some(front);
        self.close(now, &name, actions);
    }

    /// Where clients take turns, the place in the cohort of the one that has made its steps and is to hand on.
    pub(super) fn whose_turn(&self) -> Option<usize> {
        let is_to_hand_on = self.takes_turns() && self.stage == Stage::Idle;
        self.steppers
            .get(self.turn)
            .filter(|_| is_to_hand_on)
            .map(|stepper| stepper.at)
    }

    /// What it hands on is on its way: its time begins anew.
    pub(super) fn renew_turn(&mut self) {
        self.due = None;
    }

    /// Where clients take turns, those whose turn ended before they had made it, since this was last asked for.
    pub(super) fn given_up(&mut self) -> Vec<ClientName> {
        std::mem::take(&mut self.given_up)
    }

    /// The front that was left last, where clients take turns.
    pub(super) fn last_front(&self) -> Option<&Weights> {
        self.handed_on.as_ref()
    }

    /// Goes on with what can be done without hearing anything new.
    pub(super) fn advance(&mut self, now: Duration, actions: &mut Vec<Action>) {
        // The time for an exchange begins when its opening has been said, not while it is computed.
        let opened = now + self.patience();
        let due = *self.due.get_or_insert(opened);
        if now >= due && !self.awaited.is_empty() {
            self.give_up_awaited(actions);
        } else if now >= due && self.takes_turns() && self.stage == Stage::Idle && self.turn < self.steppers.len() {
            // It has not come, or has nothing to hand on.
            self.lose(&Rejection::Deadline);
            self.steppers[self.turn].open = false;
            self.given_up.push(self.steppers[self.turn].name.clone());
            self.next_turn(now, actions);
        }
        self.take_early(actions);
        while self.awaited.is_empty() {
            match self.stage {
                Stage::Entering => self.begin(now, actions),
                Stage::Exchange(exchange) => self.complete(now, exchange, actions),
                Stage::Idle => {
                    let Some(step) = self.next_step() else { return };
                    self.step = step - 1;
                    self.open_step(now);
                }
            }
            self.take_early(actions);
            if self.stage == Stage::Idle && self.next_step().is_none() {
                return;
            }
        }
    }

    /// The time of the exchange is over.
    fn give_up_awaited(&mut self, actions: &mut Vec<Action>) {
        for index in std::mem::take(&mut self.awaited) {
            if self.stage == Stage::Entering {
                continue;
            }
            self.lose(&Rejection::Deadline);
            self.steppers[index].is_behind = true;
            self.skip(index, actions);
        }
    }

    /// Those of the step's batch who are still there.
    fn participants(&self) -> BTreeSet<usize> {
        let participants = self.batch.iter().map(|contribution| contribution.at);
        participants
            .filter(|index| self.steppers[*index].present && !self.out.contains(index))
            .collect()
    }

    fn alignment(&self) -> Option<Alignment> {
        self.split.front_alignment()
    }
}
