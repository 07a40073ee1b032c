//! *evaluate*: the new model is tried, by the coordinator on its test set and by clients on examples of theirs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{
    Card, ClientName, Description, Rejection, Width,
    evaluation::Tested,
    message::{Evaluation, Task},
};

use super::{
    Action, GlobalModel, Opened, Outcome,
    cohort::{Cohort, Status},
    hands::Hands,
    phase::{Moment, Next, Offer, Phase, Then},
    run::Run,
    training::Closed,
};
use crate::{Trial, record::RoundRecord};

/// A round whose model is being evaluated.
pub(super) struct Evaluating {
    cohort: Cohort<Evaluation>,
    record: RoundRecord,
    model: Arc<GlobalModel>,
    hands: Hands,
    /// What came of the training.
    trained: Cohort<Opened>,
    started: Duration,
    pooled: Evaluation,
    /// What the coordinator itself evaluates, and what came of it so far.
    trials: BTreeMap<Trial, Option<Result<Option<Tested>, String>>>,
    /// Of clients that keep their fronts, how often each class is among their examples.
    classes: BTreeMap<ClientName, Vec<u64>>,
    then: Then<RoundRecord>,
}

impl Evaluating {
    /// Asks for what is due: the coordinator's own trials, and the evaluation of the cohort's members, each of its own
    /// part.
    pub(super) fn open(
        moment: &mut Moment<'_>,
        closed: Closed,
        cohort: Cohort<Evaluation>,
        trials: Vec<(Trial, Option<Card>)>,
        model: Arc<GlobalModel>,
        then: Then<RoundRecord>,
    ) -> Self {
        let actions = &mut *moment.actions;
        let mut record = closed.record;
        let round = record.round;
        let positions: Vec<usize> = cohort.names().filter_map(|name| closed.cohort.position(name)).collect();
        let hands = closed.hands.of(&positions);
        for (at, member) in cohort.members.iter().enumerate() {
            actions.push(hands.ask(at, &member.name, round, Task::Evaluate, &model));
            hands.count_down(at, &mut record, &model);
        }
        let outcomes = trials.iter().map(|(trial, _)| (trial.clone(), None)).collect();
        actions.extend(trials.into_iter().map(|(trial, card)| Action::Test {
            round,
            trial,
            card,
            model: model.clone(),
        }));
        Self {
            cohort,
            record,
            model,
            hands,
            trained: closed.cohort,
            started: closed.started,
            pooled: Evaluation::default(),
            trials: outcomes,
            classes: closed.classes,
            then,
        }
    }

    /// Nothing more is expected of a client.
    fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        if self.cohort.give_up(client) {
            self.record.fail_to_evaluate(client, reason);
        }
    }

    /// Gives up those whose time is over, and pools the results whose turn it is. Says whether all is done.
    pub(super) fn is_done(&mut self, now: Duration, grace: Duration) -> bool {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail_to_evaluate(&client, &reason);
        }
        while let Some((_, evaluation)) = self.cohort.take_next() {
            self.pooled.add(evaluation);
        }
        self.trials.values().all(Option::is_some) && self.cohort.is_settled()
    }

    /// What is written down of the round, with what has been evaluated so far.
    pub(super) fn close(mut self, now: Duration, description: &Description) -> RoundRecord {
        for (trial, outcome) in self.trials {
            match outcome {
                Some(Ok(Some(tested))) => self.record.test(&trial, &tested, &self.classes),
                Some(Ok(None)) | None => {}
                Some(Err(reason)) => self.record.remark(format!("{trial} cannot be evaluated: {reason}")),
            }
        }
        let mut record = self.record;
        record.summarise_stitched();
        record.clients_accuracy = self.pooled.accuracy();
        record.clients_loss = self.pooled.mean_loss();
        record.seconds = now.saturating_sub(self.started).as_secs_f64();
        if record.test_loss.is_some() && description.widths().contains(&Width::WHOLE) {
            let (loss, accuracy) = (record.test_loss, record.test_accuracy);
            if let Some(whole) = record.width(Width::WHOLE, description) {
                (whole.test_loss, whole.test_accuracy) = (loss, accuracy);
            }
        }
        if !description.training.loss.has_accuracy() {
            (record.test_accuracy, record.clients_accuracy, record.training_accuracy) = (None, None, None);
            record.widths.iter_mut().for_each(|width| width.test_accuracy = None);
        }
        record
    }
}

/// Why what a client says of its evaluation does not count, if so.
fn check(evaluation: &Evaluation) -> Result<(), Rejection> {
    let is_finite = evaluation.loss.is_finite();
    let counts = Evaluation {
        loss: if is_finite { evaluation.loss } else { 0.0 },
        ..*evaluation
    };
    if !counts.is_possible() {
        let reason = "more right answers than examples, more examples than can be, or a loss below 0";
        return Err(Rejection::ImpossibleReport(reason.into()));
    }
    match is_finite {
        true => Ok(()),
        false => Err(Rejection::NotFinite("the evaluation loss".into())),
    }
}

impl Phase for Evaluating {
    /// An update that comes when the training is over.
    fn offered(&mut self, _: &mut Moment<'_>, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        let reason = self.trained.late(client, offer.round, self.record.round);
        self.record.turn_down(&reason);
        Err(reason)
    }

    fn failed(&mut self, client: &ClientName, round: u32, task: Task, reason: &Rejection) {
        if round == self.record.round && task == Task::Evaluate {
            self.give_up(client, reason);
        }
    }

    fn evaluated(
        &mut self,
        _: &mut Moment<'_>,
        client: &ClientName,
        round: u32,
        evaluation: Evaluation,
    ) -> Result<(), Rejection> {
        let member = match self.cohort.awaits(client, round, self.record.round) {
            Ok(member) => member,
            Err(reason) => {
                self.record.turn_down(&reason);
                return Err(reason);
            }
        };
        match check(&evaluation) {
            Ok(()) => {
                member.status = Status::Held(evaluation);
                Ok(())
            }
            Err(reason) => {
                member.status = Status::Failed;
                self.record.fail_to_evaluate(client, &reason);
                Err(reason)
            }
        }
    }

    fn tested(&mut self, round: u32, trial: &Trial, evaluation: Result<Option<Tested>, String>) {
        if round == self.record.round
            && let Some(outcome @ None) = self.trials.get_mut(trial)
        {
            *outcome = Some(evaluation);
        }
    }

    fn left(&mut self, moment: &mut Moment<'_>, client: &ClientName, for_good: bool) {
        match for_good {
            true => self.give_up(client, &Rejection::Disconnected),
            false => self.cohort.lose(client, moment.now, moment.run.grace()),
        }
    }

    /// One that is there again is asked again, if it is awaited.
    fn joined(&mut self, moment: &mut Moment<'_>, client: &ClientName) {
        if let Some(at) = self.cohort.position(client).filter(|_| self.cohort.rejoined(client)) {
            let round = self.record.round;
            let ask = self.hands.ask(at, client, round, Task::Evaluate, &self.model);
            moment.actions.push(ask);
        }
    }

    fn due(&self, _: &Run) -> Option<Duration> {
        self.cohort.next_deadline()
    }

    fn advance(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        if !self.is_done(moment.now, moment.run.grace()) {
            return Next::Stay(self);
        }
        let then = self.then;
        then(self.close(moment.now, &moment.run.description), moment)
    }

    /// The model is there already: its round is recorded, though its evaluation is not complete.
    fn stop(self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        let record = self.close(moment.now, &moment.run.description);
        moment.actions.push(Action::Record(Box::new(record)));
        Next::Finish(Outcome::Stopped)
    }
}
