//! *evaluate*: the new model is tried, by the coordinator on its test set and by clients on examples of theirs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{
    Card, ClientName, Rejection,
    evaluation::Tested,
    message::{Evaluation, Task},
};

use super::{
    Action, GlobalModel, Opened,
    cohort::{Cohort, Status},
    hands::Hands,
    training::Closed,
};
use crate::{Trial, record::RoundRecord};

/// A round whose model is being evaluated.
pub(super) struct Evaluating {
    pub(super) cohort: Cohort<Evaluation>,
    pub(super) record: RoundRecord,
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
}

impl Evaluating {
    /// Asks for what is due: the coordinator's own trials, and the evaluation of the cohort's members, each of its own
    /// part.
    pub(super) fn open(
        closed: Closed,
        cohort: Cohort<Evaluation>,
        trials: Vec<(Trial, Option<Card>)>,
        model: Arc<GlobalModel>,
        actions: &mut Vec<Action>,
    ) -> Self {
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
        }
    }

    /// A client is there again: asks it again, if it is awaited.
    pub(super) fn rejoined(&mut self, client: &ClientName) -> Option<Action> {
        let at = self.cohort.position(client).filter(|_| self.cohort.rejoined(client))?;
        Some(
            self.hands
                .ask(at, client, self.record.round, Task::Evaluate, &self.model),
        )
    }

    /// The coordinator has evaluated something.
    pub(super) fn tested(&mut self, round: u32, trial: &Trial, evaluation: Result<Option<Tested>, String>) {
        if round == self.record.round
            && let Some(outcome @ None) = self.trials.get_mut(trial)
        {
            *outcome = Some(evaluation);
        }
    }

    /// A client has evaluated the model.
    pub(super) fn evaluated(
        &mut self,
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
        if evaluation.is_possible() {
            member.status = Status::Held(evaluation);
            return Ok(());
        }
        let reason = Rejection::ImpossibleReport("more right answers than examples, or no finite loss".into());
        member.status = Status::Failed;
        self.record.fail_to_evaluate(client, &reason);
        Err(reason)
    }

    /// Nothing more is expected of a client.
    pub(super) fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        if self.cohort.give_up(client) {
            self.record.fail_to_evaluate(client, reason);
        }
    }

    /// An update that comes when the training is over.
    pub(super) fn offered(&mut self, client: &ClientName, round: u32) -> Rejection {
        let reason = self.trained.late(client, round, self.record.round);
        self.record.turn_down(&reason);
        reason
    }

    /// Gives up those whose time is over, and pools the results whose turn it is. Says whether all is done.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration) -> bool {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail_to_evaluate(&client, &reason);
        }
        while let Some((_, evaluation)) = self.cohort.take_next() {
            self.pooled.add(evaluation);
        }
        self.trials.values().all(Option::is_some) && self.cohort.is_settled()
    }

    pub(super) fn close(mut self, now: Duration) -> RoundRecord {
        for (trial, outcome) in self.trials {
            match outcome {
                Some(Ok(Some(tested))) => self.record.test(&trial, &tested, &self.classes),
                Some(Ok(None)) | None => {}
                Some(Err(reason)) => self.record.remark(format!("{trial} cannot be evaluated: {reason}")),
            }
        }
        self.record.summarise_stitched();
        self.record.clients_accuracy = self.pooled.accuracy();
        self.record.clients_loss = self.pooled.mean_loss();
        self.record.seconds = now.saturating_sub(self.started).as_secs_f64();
        self.record
    }
}
