//! The steps of a round of split learning: who is awaited in which exchange, and what is answered.
//!
//! Whatever the order in which clients are heard, an exchange is computed in the order of their names, once all are there
//! who are awaited or the step's time is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use candle_core::{Device, Tensor};
use selvedge_models::{Loss, ModelError, Weights};
use selvedge_protocols::{
    ClientName, Description, Purpose, Rejection,
    description::{Labels, Split},
    split::{
        Alignment, Exchange, FromClient, FromServer, Pieces, StepEncoding,
        alignment::Towards,
        batches::{BatchSizes, global_batches},
        leader::{Leader, sketch_length},
        targets::{self, Received},
    },
    update::MOST_EXAMPLES,
};

use super::{
    Action,
    backs::{Backs, Contribution, StepLoss},
};

/// A client of the round whose model is cut.
pub(super) struct Stepper {
    pub(super) name: ClientName,
    /// Its place in the cohort.
    pub(super) at: usize,
    pub(super) pieces: Arc<Pieces>,
    /// How many steps it makes, once it has entered.
    steps: Option<u64>,
    /// How many examples it trains on.
    examples: u64,
    /// Whether it is there.
    present: bool,
    /// Whether anything more is expected of it.
    open: bool,
    /// Whether it was late: nobody waits for it until it has caught up.
    is_behind: bool,
    loss: StepLoss,
    /// How many examples of each class it has sent.
    classes: Vec<u64>,
}

impl Stepper {
    pub(super) fn new(name: ClientName, at: usize, pieces: Arc<Pieces>) -> Self {
        Self {
            name,
            at,
            pieces,
            steps: None,
            examples: 0,
            present: false,
            open: true,
            is_behind: false,
            loss: StepLoss::default(),
            classes: Vec::new(),
        }
    }
}

/// What the steps came to, beside the trained parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Steps in which the back moved.
    pub(super) steps: u64,
    /// How often a client's part of a step was lost, by reason.
    pub(super) lost: BTreeMap<String, usize>,
    /// When the first step began and the last ended.
    began: Option<Duration>,
    ended: Duration,
    /// Payload bytes that clients sent.
    pub(super) bytes_up: u64,
    /// Payload bytes that they were sent.
    pub(super) bytes_down: u64,
}

impl Tally {
    /// How long a step took, on the mean.
    pub(super) fn seconds_a_step(&self) -> Option<f64> {
        let seconds = self.ended.saturating_sub(self.began?).as_secs_f64();
        // A clock that stands still measures nothing.
        (self.steps > 0 && seconds > 0.0).then(|| seconds / self.steps as f64)
    }
}

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

/// What a client has sent before its time.
struct Early {
    step: u32,
    examples: u32,
    payload: Vec<u8>,
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
        self.steppers.iter().find(|stepper| stepper.at == at)
    }

    /// What the examples of the client at this place of the cohort came to: its mean training loss, and how many of each
    /// class there were.
    pub(super) fn came_to(&self, at: usize) -> (Option<f64>, &[u64]) {
        let Some(stepper) = self.stepper(at) else {
            return (None, &[]);
        };
        let StepLoss { sum, examples } = stepper.loss;
        ((examples > 0).then(|| sum / examples as f64), &stepper.classes)
    }

    /// The back that the client at this place of the cohort has for itself.
    pub(super) fn own_back(&self, at: usize) -> Option<Weights> {
        let index = self.steppers.iter().position(|stepper| stepper.at == at)?;
        self.backs.of(index)
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
        self.steppers.iter().position(|stepper| stepper.name == *client)
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
                let is_early = step > self.step && u64::from(step) <= self.last_step() && exchange == Exchange::Smashed;
                if is_early && !self.early.contains_key(&index) {
                    let early = Early {
                        step,
                        examples,
                        payload: payload.to_vec(),
                    };
                    self.early.insert(index, early);
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

    /// Takes in what has come early for the step that is opened now.
    fn take_early(&mut self, actions: &mut Vec<Action>) {
        let due = |early: &Early| early.step <= self.step;
        let indices: Vec<usize> = self
            .early
            .iter()
            .filter(|(_, early)| due(early))
            .map(|(index, _)| *index)
            .collect();
        for index in indices {
            if let Some(early) = self.early.remove(&index)
                && early.step == self.step
                && self.awaited.contains(&index)
            {
                self.sent(
                    index,
                    early.step,
                    Exchange::Smashed,
                    early.examples,
                    &early.payload,
                    actions,
                );
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

    fn entered(&mut self, index: usize, examples: u64, actions: &mut Vec<Action>) {
        let stepper = &mut self.steppers[index];
        if examples >= MOST_EXAMPLES {
            let reason = Rejection::ImpossibleReport(format!("{examples} examples"));
            return self.lose(&reason);
        }
        if !stepper.open {
            return self.lose(&Rejection::GivenUp);
        }
        let is_back = stepper.steps.is_some();
        if !is_back {
            stepper.examples = examples;
            let count = usize::try_from(examples).unwrap_or(usize::MAX);
            stepper.steps = Some(self.description.training.steps_on(count));
        }
        stepper.present = true;
        stepper.is_behind = false;
        self.out.insert(index);
        self.awaited.remove(&index);
        self.early.remove(&index);
        if self.stage != Stage::Entering && (!self.takes_turns() || self.turn == index) {
            // It missed what is under way.
            let step = self.step + u32::from(self.stage != Stage::Idle);
            self.go(index, step, actions);
        }
    }

    fn go(&mut self, index: usize, step: u32, actions: &mut Vec<Action>) {
        let payload = match &self.handed_on {
            Some(weights) if self.takes_turns() => {
                let mut bytes = Vec::new();
                StepEncoding::F32.write(&weights.parameters, 1, &mut bytes);
                StepEncoding::F32.write(&weights.buffers, 1, &mut bytes);
                bytes
            }
            _ => Vec::new(),
        };
        // One that enters after the sizes were dealt has no part in them.
        let sizes = self.sizes.get(index).cloned();
        let round = self.round;
        self.say(index, FromServer::Go { round, step, sizes }, payload, actions);
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
        let (round, step) = (self.round, self.step + 1);
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
        self.handed_on = Some(front);
        if let Some(stepper) = self.stepper(at) {
            let name = stepper.name.clone();
            self.close(now, &name, actions);
        }
    }

    /// The front that was left last, where clients take turns.
    pub(super) fn last_front(&self) -> Option<&Weights> {
        self.handed_on.as_ref()
    }

    fn next_turn(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let rest = self.turn + 1..self.steppers.len();
        let next = rest.into_iter().find(|index| self.steppers[*index].open);
        self.turn = next.unwrap_or(self.steppers.len());
        self.step = 0;
        self.early.clear();
        if let Some(index) = next.filter(|index| self.steppers[*index].present) {
            self.go(index, 1, actions);
        }
        self.open_step(now);
    }

    /// Goes on with what can be done without hearing anything new.
    pub(super) fn advance(&mut self, now: Duration, actions: &mut Vec<Action>) {
        // The time for an exchange begins when its opening has been said, not while it is computed.
        let due = *self
            .due
            .get_or_insert(now + Duration::from_secs_f64(self.split.step_seconds));
        if now >= due && !self.awaited.is_empty() {
            self.give_up_awaited(actions);
        } else if now >= due && self.takes_turns() && self.stage == Stage::Idle && self.turn < self.steppers.len() {
            // It has not come, or has nothing to hand on.
            self.lose(&Rejection::Deadline);
            self.steppers[self.turn].open = false;
            self.next_turn(now, actions);
        }
        self.take_early(actions);
        while self.awaited.is_empty() {
            match self.stage {
                Stage::Entering => self.begin(now, actions),
                Stage::Exchange(exchange) => self.complete(now, exchange, actions),
                Stage::Idle => {
                    let step = self.step.max(1);
                    if self.contributors(step).is_empty() {
                        return;
                    }
                    self.step = step - 1;
                    self.open_step(now);
                }
            }
            self.take_early(actions);
            if self.stage == Stage::Idle && self.contributors(self.step.max(1)).is_empty() {
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

    /// All have entered who will.
    fn begin(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.split.batches == BatchSizes::Global {
            let pools: Vec<u64> = self.steppers.iter().map(|stepper| stepper.examples).collect();
            let global = self.description.training.batch_size as u64 * self.steppers.len() as u64;
            let mut random = self.description.seed.round_stream(Purpose::Batches, self.round);
            let mut sizes = vec![Vec::new(); pools.len()];
            for _ in 0..self.description.training.epochs.unwrap_or(1) {
                let pass = global_batches(&pools, global, &mut random);
                sizes.iter_mut().zip(pass).for_each(|(sizes, pass)| sizes.extend(pass));
            }
            self.sizes = sizes;
        }
        self.stage = Stage::Idle;
        if self.takes_turns() {
            let first = self.steppers.iter().position(|stepper| stepper.open);
            self.turn = first.unwrap_or(self.steppers.len());
        }
        for index in 0..self.steppers.len() {
            let is_its_turn = !self.takes_turns() || self.turn == index;
            if self.steppers[index].present && is_its_turn {
                self.go(index, 1, actions);
            }
        }
        self.step = 0;
        self.open_step(now);
    }

    /// Who contributes to a step, of those who are there.
    fn contributors(&self, step: u32) -> BTreeSet<usize> {
        let contributes = |(index, stepper): &(usize, &Stepper)| {
            let size = match self.sizes.get(*index) {
                Some(sizes) => sizes.get(step as usize - 1).is_some_and(|size| *size > 0),
                None => stepper.steps.is_some_and(|steps| u64::from(step) <= steps),
            };
            let is_its_turn = !self.takes_turns() || self.turn == *index;
            let is_early = |early: &Early| early.step == step;
            let is_up = !stepper.is_behind || self.early.get(index).is_some_and(is_early);
            stepper.present && stepper.open && is_up && size && is_its_turn
        };
        let steppers = self.steppers.iter().enumerate();
        steppers.filter(contributes).map(|(index, _)| index).collect()
    }

    /// How many steps there are at most.
    fn last_step(&self) -> u64 {
        match self.sizes.first() {
            Some(sizes) => sizes.len() as u64,
            None => self
                .steppers
                .iter()
                .filter_map(|stepper| stepper.steps)
                .max()
                .unwrap_or(0),
        }
    }

    /// Whether the sizes were dealt so that nobody who may still come contributes to a step.
    fn is_empty_step(&self, step: u32) -> bool {
        let sizes = self
            .sizes
            .iter()
            .zip(&self.steppers)
            .filter(|(_, stepper)| stepper.open);
        let mut sizes = sizes.map(|(sizes, _)| sizes.get(step as usize - 1));
        !self.sizes.is_empty() && sizes.all(|size| size.is_none_or(|size| *size == 0))
    }

    /// Opens the next step to which somebody contributes who is there.
    fn open_step(&mut self, now: Duration) {
        self.tally.began.get_or_insert(now);
        self.tally.ended = now;
        // If nothing has come of a probe.
        self.backs.catch_up();
        self.batch.clear();
        self.sent.clear();
        self.out.clear();
        self.step += 1;
        while u64::from(self.step) < self.last_step() && self.is_empty_step(self.step) {
            self.step += 1;
        }
        self.awaited = self.contributors(self.step);
        self.expected = self.awaited.len();
        self.stage = match self.awaited.is_empty() {
            true => Stage::Idle,
            false => Stage::Exchange(Exchange::Smashed),
        };
        self.due = None;
    }

    fn open_exchange(&mut self, exchange: Exchange, awaited: BTreeSet<usize>) {
        self.stage = Stage::Exchange(exchange);
        self.awaited = awaited;
        self.sent.clear();
        self.due = None;
    }

    /// Those of the step's batch who are still there.
    fn participants(&self) -> BTreeSet<usize> {
        let participants = self.batch.iter().map(|contribution| contribution.at);
        participants
            .filter(|index| self.steppers[*index].present && !self.out.contains(index))
            .collect()
    }

    fn alignment(&self) -> Option<Alignment> {
        let alignment = *self.split.method.alignment()?;
        alignment.is_active_on_fronts().then_some(alignment)
    }

    /// Checks what a client has sent.
    fn check(
        &self,
        index: usize,
        step: u32,
        exchange: Exchange,
        examples: u32,
        payload: &[u8],
    ) -> Result<Sent, Rejection> {
        // One that was late catches up by being there with its smashed data while others still are awaited.
        let is_back =
            self.steppers[index].is_behind && exchange == Exchange::Smashed && !self.sent.contains_key(&index);
        let is_due = self.awaited.contains(&index) || is_back;
        if step != self.step || self.stage != Stage::Exchange(exchange) || !is_due {
            let is_second =
                step == self.step && self.stage == Stage::Exchange(exchange) && self.sent.contains_key(&index);
            return Err(match is_second {
                true => Rejection::Duplicate,
                false => Rejection::WrongStep { step, now: self.step },
            });
        }
        let pieces = &self.steppers[index].pieces;
        let rows = examples as usize;
        let known = self
            .batch
            .iter()
            .find(|contribution| contribution.at == index)
            .map(Contribution::rows);
        let largest = match (known, self.sizes.get(index)) {
            (Some(rows), _) => rows,
            (None, Some(sizes)) => sizes.get(step as usize - 1).map_or(0, |size| *size as usize),
            (None, None) => self.description.training.batch_size,
        };
        let is_exact = known.is_some() || !self.sizes.is_empty();
        if rows == 0 || rows > largest || (is_exact && rows != largest) {
            return Err(Rejection::WrongShape(format!(
                "{rows} examples; {largest} are the most"
            )));
        }
        let of_model = |error: ModelError| Rejection::WrongShape(error.to_string());
        match exchange {
            Exchange::Smashed | Exchange::Probe => {
                let shape = pieces.front.output().map_err(of_model)?;
                let targets = self.targets_bytes(rows).map_err(of_model)?;
                let targets = if exchange == Exchange::Probe { 0 } else { targets };
                let (targets, smashed) = payload.split_at_checked(targets).ok_or_else(|| wrong_size(payload))?;
                let smashed = read(self.split.smashed, smashed, rows, &shape)?;
                let targets = match targets.is_empty() {
                    true => None,
                    false => Some(self.read_targets(targets).map_err(of_model)?.ok_or_else(|| {
                        Rejection::NotFinite("the targets, or one of them is no class of the model".into())
                    })?),
                };
                Ok(Sent::Smashed(smashed, targets))
            }
            Exchange::Head => {
                let shape = pieces.back.output().map_err(of_model)?;
                Ok(Sent::Gradient(read(self.split.gradients, payload, rows, &shape)?))
            }
            Exchange::Sketch | Exchange::Gradient => {
                let length = pieces.front_size().0;
                let length = match self.alignment() {
                    Some(alignment) if exchange == Exchange::Sketch => sketch_length(length, alignment.sketch),
                    _ => length,
                };
                read_values(StepEncoding::F32, payload, 1, length).map(Sent::Values)
            }
        }
    }

    /// Bytes of the targets of so many examples, where they are sent.
    fn targets_bytes(&self, rows: usize) -> Result<usize, ModelError> {
        if self.split.labels == Labels::UShape {
            return Ok(0);
        }
        let outputs: usize = self.description.model.output()?.iter().product();
        Ok(4 * rows
            * match self.description.training.loss {
                Loss::CrossEntropy => 1,
                Loss::BinaryCrossEntropy | Loss::MeanSquaredError => outputs,
            })
    }

    fn read_targets(&self, bytes: &[u8]) -> Result<Option<Received>, ModelError> {
        let outputs: usize = self.description.model.output()?.iter().product();
        Ok(match self.description.training.loss {
            Loss::CrossEntropy => targets::read_classes(bytes, outputs),
            Loss::BinaryCrossEntropy | Loss::MeanSquaredError => targets::read_values(bytes),
        })
    }

    /// All are there who are awaited: computes the exchange and answers.
    fn complete(&mut self, now: Duration, exchange: Exchange, actions: &mut Vec<Action>) {
        let completed = match exchange {
            Exchange::Smashed => self.smashed(now, actions),
            Exchange::Head => self.head(now, actions),
            Exchange::Sketch => self.sketched(actions),
            Exchange::Gradient => self.led(now, actions),
            Exchange::Probe => self.probed(now, actions),
        };
        if let Err(error) = completed {
            // What was checked runs: this is a defect, or a value that grew beyond all bounds. The step is lost.
            let reason = Rejection::ClientFailed(error.to_string());
            for index in self.participants() {
                self.lose(&reason);
                self.skip(index, actions);
            }
            self.open_step(now);
        }
    }

    fn smashed(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), ModelError> {
        if self.sent.len() < self.needed(self.expected) {
            for index in self.sent.keys().copied().collect::<Vec<_>>() {
                self.lose(&Rejection::NotApplied);
                self.skip(index, actions);
            }
            self.open_step(now);
            return Ok(());
        }
        let sent = std::mem::take(&mut self.sent);
        let contribution = |(index, sent): (usize, Sent)| match sent {
            Sent::Smashed(smashed, targets) => Some(Contribution {
                client: self.steppers[index].name.clone(),
                at: index,
                pieces: self.steppers[index].pieces.clone(),
                smashed,
                targets,
            }),
            Sent::Gradient(_) | Sent::Values(_) => None,
        };
        self.batch = sent.into_iter().filter_map(contribution).collect();
        let outputs = self.backs.forward(self.step, &self.batch)?;
        if self.split.labels == Labels::UShape {
            self.answer_rows(Exchange::Smashed, self.split.smashed, &outputs, actions)?;
            self.open_exchange(Exchange::Head, self.participants());
            return Ok(());
        }
        let (mut gradients, mut losses) = self.backs.losses(&self.batch, &outputs)?;
        if self.leave_out_infinite(&gradients, &losses, actions)? {
            if self.batch.is_empty() {
                self.open_step(now);
                return Ok(());
            }
            // What it made of the back's layers must not be there either: 0 times infinity is no number.
            let outputs = self.backs.forward(self.step, &self.batch)?;
            (gradients, losses) = self.backs.losses(&self.batch, &outputs)?;
        }
        for (contribution, loss) in self.batch.iter().zip(losses) {
            let stepper = &mut self.steppers[contribution.at];
            stepper.loss.sum += loss.sum;
            stepper.loss.examples += loss.examples;
            if let Some(Received::Classes(classes)) = &contribution.targets {
                for class in classes {
                    let class = *class as usize;
                    if stepper.classes.len() <= class {
                        stepper.classes.resize(class + 1, 0);
                    }
                    stepper.classes[class] += 1;
                }
            }
        }
        let returned = self.backs.backward(&self.batch, &gradients, self.is_probed())?;
        self.tally.steps += 1;
        self.answer_those_with(&gradients, Exchange::Smashed, returned, actions)?;
        self.after_gradients(now);
        Ok(())
    }

    /// How many of so many are needed.
    fn needed(&self, expected: usize) -> usize {
        ((self.split.step_quorum * expected as f64 - 1e-9).ceil() as usize).max(1)
    }

    /// Whether a probe follows in this step.
    fn is_probed(&self) -> bool {
        let is_regulariser = |alignment: Alignment| matches!(alignment.towards, Towards::Regulariser { .. });
        self.alignment().is_some_and(is_regulariser)
    }

    /// Leaves out those whose loss or gradient is not finite: they would spoil the back for all. Says whether there were any.
    fn leave_out_infinite(
        &mut self,
        gradients: &[Option<Tensor>],
        losses: &[StepLoss],
        actions: &mut Vec<Action>,
    ) -> Result<bool, ModelError> {
        let mut infinite = BTreeSet::new();
        for ((contribution, gradient), loss) in self.batch.iter().zip(gradients).zip(losses) {
            let sum = match gradient {
                Some(gradient) => gradient.abs()?.sum_all()?.to_scalar::<f32>()?,
                None => 0.0,
            };
            if !(sum.is_finite() && loss.sum.is_finite()) {
                infinite.insert(contribution.at);
            }
        }
        for index in &infinite {
            self.lose(&Rejection::NotFinite("the loss".into()));
            self.skip(*index, actions);
        }
        self.batch.retain(|contribution| !infinite.contains(&contribution.at));
        Ok(!infinite.is_empty())
    }

    /// Answers those of the batch who have a gradient; the others are out of the step, and leave the batch.
    fn answer_those_with(
        &mut self,
        gradients: &[Option<Tensor>],
        exchange: Exchange,
        returned: Vec<Tensor>,
        actions: &mut Vec<Action>,
    ) -> Result<(), ModelError> {
        let mut keep = gradients.iter().map(Option::is_some);
        let returned: Vec<Tensor> = returned.into_iter().filter(|_| keep.next() == Some(true)).collect();
        let mut keep = gradients.iter().map(Option::is_some);
        self.batch.retain(|_| keep.next() == Some(true));
        self.answer_rows(exchange, self.split.gradients, &returned, actions)
    }

    fn head(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), ModelError> {
        let mut sent = std::mem::take(&mut self.sent);
        let gradients: Vec<Option<Tensor>> = self
            .batch
            .iter()
            .map(|contribution| match sent.remove(&contribution.at) {
                Some(Sent::Gradient(gradient)) => Some(gradient),
                _ => None,
            })
            .collect();
        if gradients.iter().flatten().count() < self.needed(self.expected) {
            for index in self.participants() {
                self.lose(&Rejection::NotApplied);
                self.skip(index, actions);
            }
            self.open_step(now);
            return Ok(());
        }
        let returned = self.backs.backward(&self.batch, &gradients, false)?;
        self.tally.steps += 1;
        // Those without a gradient were told that the step goes on without them.
        self.answer_those_with(&gradients, Exchange::Head, returned, actions)?;
        self.after_gradients(now);
        Ok(())
    }

    /// What follows when clients have their cut gradients.
    fn after_gradients(&mut self, now: Duration) {
        let participants = self.participants();
        match self.alignment() {
            Some(alignment) if alignment.is_refreshed(self.step) => {
                self.open_exchange(Exchange::Sketch, participants);
            }
            Some(alignment) => self.after_leading(alignment, now),
            None => self.open_step(now),
        }
    }

    /// What follows when clients have the leader.
    fn after_leading(&mut self, alignment: Alignment, now: Duration) {
        match alignment.towards {
            Towards::Regulariser { .. } => self.open_exchange(Exchange::Probe, self.participants()),
            Towards::Project { .. } | Towards::Pcgrad => self.open_step(now),
        }
    }

    /// What was sent in this exchange as plain values, each with its client and weight.
    fn values(&mut self) -> Vec<(usize, Vec<f32>, f64)> {
        let mut sent = std::mem::take(&mut self.sent);
        let values = |contribution: &Contribution| match sent.remove(&contribution.at) {
            Some(Sent::Values(values)) => Some((contribution.at, values, contribution.rows() as f64)),
            _ => None,
        };
        self.batch.iter().filter_map(values).collect()
    }

    fn sketched(&mut self, actions: &mut Vec<Action>) -> Result<(), ModelError> {
        let sketches = self.values();
        let all: f64 = sketches.iter().map(|(_, _, rows)| rows).sum();
        let shares: Vec<f64> = sketches.iter().map(|(_, _, rows)| rows / all).collect();
        let gradients: Vec<&[f32]> = sketches.iter().map(|(_, sketch, _)| sketch.as_slice()).collect();
        let leaders: BTreeSet<usize> = match self.alignment() {
            Some(alignment) => {
                let leaders = alignment.selector.leaders(&gradients, &shares);
                leaders.into_iter().map(|at| sketches[at].0).collect()
            }
            None => BTreeSet::new(),
        };
        for (index, ..) in &sketches {
            let payload = if leaders.contains(index) { vec![1] } else { Vec::new() };
            self.answer(*index, Exchange::Sketch, payload, actions);
        }
        self.open_exchange(Exchange::Gradient, leaders);
        Ok(())
    }

    fn led(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), ModelError> {
        let gradients = self.values();
        let Some(alignment) = self.alignment() else {
            self.open_step(now);
            return Ok(());
        };
        let led: Vec<(&[f32], f64)> = gradients
            .iter()
            .map(|(_, values, rows)| (values.as_slice(), *rows))
            .collect();
        self.leader.follow(&led, alignment.smoothing);
        // Nothing, as long as nobody has led anywhere.
        let mut payload = Vec::new();
        StepEncoding::F32.write(self.leader.direction().unwrap_or_default(), 1, &mut payload);
        for index in self.participants() {
            self.answer(index, Exchange::Gradient, payload.clone(), actions);
        }
        self.after_leading(alignment, now);
        Ok(())
    }

    fn probed(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), ModelError> {
        let mut sent = std::mem::take(&mut self.sent);
        let mut probes = Vec::with_capacity(self.batch.len());
        for contribution in &self.batch {
            if let Some(Sent::Smashed(smashed, _)) = sent.remove(&contribution.at) {
                probes.push(Contribution {
                    client: contribution.client.clone(),
                    at: contribution.at,
                    pieces: contribution.pieces.clone(),
                    smashed,
                    targets: contribution.targets.clone(),
                });
            }
        }
        self.batch = probes;
        if !self.batch.is_empty() {
            let outputs = self.backs.forward(self.step, &self.batch)?;
            let (gradients, _) = self.backs.losses(&self.batch, &outputs)?;
            let returned = self.backs.probe(&gradients)?;
            self.answer_rows(Exchange::Probe, self.split.gradients, &returned, actions)?;
        }
        self.open_step(now);
        Ok(())
    }

    fn answer(&mut self, index: usize, exchange: Exchange, payload: Vec<u8>, actions: &mut Vec<Action>) {
        let (round, step) = (self.round, self.step);
        self.say(index, FromServer::Answer { round, step, exchange }, payload, actions);
    }

    /// Answers each client of the batch with its rows.
    fn answer_rows(
        &mut self,
        exchange: Exchange,
        encoding: StepEncoding,
        rows: &[Tensor],
        actions: &mut Vec<Action>,
    ) -> Result<(), ModelError> {
        let clients: Vec<usize> = self.batch.iter().map(|contribution| contribution.at).collect();
        for (index, tensor) in clients.into_iter().zip(rows) {
            let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
            let row = tensor.dims().iter().skip(1).product();
            let mut payload = Vec::new();
            encoding.write(&values, row, &mut payload);
            self.answer(index, exchange, payload, actions);
        }
        Ok(())
    }
}

fn wrong_size(payload: &[u8]) -> Rejection {
    Rejection::WrongSize(format!("{} bytes of a step", payload.len()))
}

/// Reads rows of one shape.
fn read(encoding: StepEncoding, bytes: &[u8], rows: usize, shape: &[usize]) -> Result<Tensor, Rejection> {
    let values = read_values(encoding, bytes, rows, shape.iter().product())?;
    let shape = [&[rows], shape].concat();
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| Rejection::WrongShape(error.to_string()))
}

fn read_values(encoding: StepEncoding, bytes: &[u8], rows: usize, row: usize) -> Result<Vec<f32>, Rejection> {
    if encoding.bytes(rows, row) != Some(bytes.len()) {
        return Err(wrong_size(bytes));
    }
    let values = encoding.read(bytes, rows, row);
    values.ok_or_else(|| Rejection::NotFinite("a step".into()))
}
