//! Who contributes to which step, and whose turn it is.

use std::{collections::BTreeSet, time::Duration};

use selvedge_protocols::{
    Purpose, Rejection,
    split::{
        Exchange, FromServer, StepEncoding,
        batches::{BatchSizes, global_batches},
    },
    update::MOST_EXAMPLES,
};

use super::{Action, Stage, Stepper, Steps, early::Early};

impl Steps {
    pub(super) fn entered(&mut self, index: usize, examples: u64, actions: &mut Vec<Action>) {
        let stepper = &mut self.steppers[index];
        if examples >= MOST_EXAMPLES {
            let reason = Rejection::ImpossibleReport(format!("{examples} examples"));
            return self.lose(&reason);
        }
        let is_over =
            !stepper.open || (self.split.method.takes_turns() && self.turn > index && self.stage != Stage::Entering);
        if is_over {
            self.lose(&Rejection::GivenUp);
            return self.dismiss(index, actions);
        }
        let is_back = stepper.steps.is_some();
        if !is_back {
            stepper.examples = examples;
            let count = usize::try_from(examples).unwrap_or(usize::MAX);
            stepper.steps = Some(self.description.training.steps_on(count));
        }
        // One that was late stays behind until it has caught up: entering again takes nobody's time.
        stepper.present = true;
        self.out.insert(index);
        self.awaited.remove(&index);
        self.early.remove(&index);
        if self.stage != Stage::Entering && (!self.takes_turns() || self.turn == index) {
            // It missed what is under way.
            let step = self.step + u32::from(self.stage != Stage::Idle);
            self.go(index, step, actions);
        }
    }

    pub(super) fn go(&mut self, index: usize, step: u32, actions: &mut Vec<Action>) {
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

    pub(super) fn next_turn(&mut self, now: Duration, actions: &mut Vec<Action>) {
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

    /// All have entered who will.
    pub(super) fn begin(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.split.batches == BatchSizes::Global {
            // One that has not entered has no part in what is dealt: as long as nobody has, nothing is.
            let is_to_enter = |stepper: &Stepper| stepper.open && stepper.steps.is_none();
            let steppers = self.steppers.iter().enumerate();
            let late: BTreeSet<usize> = steppers
                .filter(|(_, stepper)| is_to_enter(stepper))
                .map(|(index, _)| index)
                .collect();
            if !late.is_empty() && self.steppers.iter().all(|stepper| stepper.steps.is_none()) {
                self.awaited = late;
                self.due = None;
                return;
            }
            for _ in late {
                self.lose(&Rejection::Deadline);
            }
            let pools: Vec<u64> = self.steppers.iter().map(|stepper| stepper.examples).collect();
            let global = self.description.training.batch_size as u64 * self.steppers.len() as u64;
            let mut random = self.description.seed.round_stream(Purpose::Batches, self.round);
            let epochs = self.description.training.epochs.unwrap_or(1);
            self.sizes = global_batches(&pools, global, epochs, &mut random);
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

    /// While nobody is awaited: the step to go on with, if somebody who is there contributes to it. That may be the first that
    /// has come of those who were late.
    pub(super) fn next_step(&self) -> Option<u32> {
        let step = self.step.max(1);
        let ahead = self
            .early
            .values()
            .map(|early| early.step)
            .filter(|early| *early > step);
        let mut steps = std::iter::once(step).chain(ahead.min());
        steps.find(|step| !self.contributors(*step).is_empty())
    }

    /// Who contributes to a step, of those who are there.
    pub(super) fn contributors(&self, step: u32) -> BTreeSet<usize> {
        let contributes = |(index, stepper): &(usize, &Stepper)| {
            let is_its_step = stepper.steps.is_some() && self.is_its_step(*index, step);
            let is_its_turn = !self.takes_turns() || self.turn == *index;
            let is_early = |early: &Early| early.step == step;
            let is_up = !stepper.is_behind || self.early.get(index).is_some_and(is_early);
            stepper.present && stepper.open && is_up && is_its_step && is_its_turn
        };
        let steppers = self.steppers.iter().enumerate();
        steppers.filter(contributes).map(|(index, _)| index).collect()
    }

    /// Whether a client is to contribute to a step. Of one that has not entered, as many are expected as of those who make
    /// the most.
    pub(super) fn is_its_step(&self, index: usize, step: u32) -> bool {
        match (self.sizes.get(index), self.steppers.get(index)) {
            (Some(sizes), _) => sizes.get(step as usize - 1).is_some_and(|size| *size > 0),
            (None, Some(stepper)) => stepper.steps.is_none_or(|steps| u64::from(step) <= steps),
            (None, None) => false,
        }
    }

    /// How many steps there are at most.
    pub(super) fn last_step(&self) -> u64 {
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
    pub(super) fn open_step(&mut self, now: Duration) {
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

    pub(super) fn open_exchange(&mut self, exchange: Exchange, awaited: BTreeSet<usize>) {
        self.stage = Stage::Exchange(exchange);
        self.awaited = awaited;
        self.sent.clear();
        self.due = None;
    }
}
