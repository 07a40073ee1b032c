//! What the server does in each exchange of a step, once all are there who are awaited.

use std::{collections::BTreeSet, time::Duration};

use candle_core::Tensor;
use selvedge_models::ModelError;
use selvedge_protocols::{
    Rejection,
    description::Labels,
    split::{Exchange, FromServer, StepEncoding, leader::agreement, targets::Received},
};

use super::{
    Action, Sent, Steps,
    backs::{Contribution, Lost, StepLoss},
};

impl Steps {
    /// All are there who are awaited: computes the exchange and answers.
    pub(super) fn complete(&mut self, now: Duration, exchange: Exchange, actions: &mut Vec<Action>) {
        let completed = match exchange {
            Exchange::Smashed => self.smashed(now, actions),
            Exchange::Head => self.head(now, actions),
            Exchange::Sketch => self.sketched(actions),
            Exchange::Gradient => self.led(now, actions),
            Exchange::Probe => self.probed(now, actions),
        };
        if let Err(Lost(reason)) = completed {
            for index in self.participants() {
                self.lose(&reason);
                self.skip(index, actions);
            }
            self.open_step(now);
        }
    }

    fn smashed(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), Lost> {
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
            // What it made of the back's layers must not be there either: 0 times infinity is no number.
            self.backs.take_back()?;
            if self.batch.is_empty() {
                self.open_step(now);
                return Ok(());
            }
            let outputs = self.backs.forward(self.step, &self.batch)?;
            (gradients, losses) = self.backs.losses(&self.batch, &outputs)?;
        }
        let returned = self.backs.backward(&self.batch, &gradients, self.is_probed())?;
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
        self.made();
        self.answer_those_with(&gradients, Exchange::Smashed, returned, actions)?;
        self.after_gradients(now);
        Ok(())
    }

    /// The step was made by those of the batch.
    fn made(&mut self) {
        self.tally.steps += 1;
        if self.takes_turns() {
            return;
        }
        let made: BTreeSet<usize> = self.batch.iter().map(|contribution| contribution.at).collect();
        for (index, stepper) in self.steppers.iter().enumerate() {
            if !made.contains(&index) && self.is_its_step(index, self.step) {
                *self.tally.missed.entry(stepper.name.clone()).or_default() += 1;
            }
        }
    }

    /// How many of so many are needed.
    fn needed(&self, expected: usize) -> usize {
        ((self.split.step_quorum * expected as f64 - 1e-9).ceil() as usize).max(1)
    }

    /// Whether a probe follows in this step.
    fn is_probed(&self) -> bool {
        self.alignment().is_some_and(|alignment| alignment.is_probed())
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

    fn head(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), Lost> {
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
        // Those without a gradient were told that the step goes on without them.
        self.answer_those_with(&gradients, Exchange::Head, returned, actions)?;
        self.made();
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
            _ => self.after_leading(now),
        }
    }

    /// What follows when clients have the leader.
    fn after_leading(&mut self, now: Duration) {
        match self.is_probed() {
            true => self.open_exchange(Exchange::Probe, self.participants()),
            false => self.open_step(now),
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

    fn sketched(&mut self, actions: &mut Vec<Action>) -> Result<(), Lost> {
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
        self.tally.agreements.extend(agreement(&gradients));
        for index in &leaders {
            *self.tally.led.entry(self.steppers[*index].name.clone()).or_default() += 1;
        }
        for (index, ..) in &sketches {
            let payload = if leaders.contains(index) { vec![1] } else { Vec::new() };
            self.answer(*index, Exchange::Sketch, payload, actions);
        }
        self.open_exchange(Exchange::Gradient, leaders);
        Ok(())
    }

    fn led(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), Lost> {
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
        self.after_leading(now);
        Ok(())
    }

    fn probed(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), Lost> {
        let mut sent = std::mem::take(&mut self.sent);
        self.batch
            .retain_mut(|contribution| match sent.remove(&contribution.at) {
                Some(Sent::Smashed(smashed, _)) => {
                    contribution.smashed = smashed;
                    true
                }
                _ => false,
            });
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

    /// Answers each client of the batch with its rows; one whose rows are not finite is left out of the step.
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
            if !values.iter().all(|value| value.is_finite()) {
                self.lose(&Rejection::NotFinite("what it is answered".into()));
                self.skip(index, actions);
                continue;
            }
            let row = tensor.dims().iter().skip(1).product();
            let mut payload = Vec::new();
            encoding.write(&values, row, &mut payload);
            self.answer(index, exchange, payload, actions);
        }
        Ok(())
    }
}
