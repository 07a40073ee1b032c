//! *evaluate*: the new model is tried, by the coordinator on its test set and by clients on examples of theirs.

use std::{sync::Arc, time::Duration};

use selvedge_protocols::{
    Broadcast, ClientName, Rejection, Update,
    message::{Evaluation, Task},
};

use super::{
    Action,
    cohort::{Cohort, Status, ask},
    training::Closed,
};
use crate::record::RoundRecord;

/// A round whose model is being evaluated.
pub(super) struct Evaluating {
    pub(super) cohort: Cohort<Evaluation>,
    pub(super) record: RoundRecord,
    pub(super) broadcast: Arc<Broadcast>,
    /// What came of the training.
    trained: Cohort<Update>,
    started: Duration,
    pooled: Evaluation,
    /// Whether the coordinator's own evaluation is done, or not due.
    is_tested: bool,
}

impl Evaluating {
    /// Asks for what is due: the coordinator's own evaluation, and that of the cohort's members, if any.
    pub(super) fn open(
        closed: Closed,
        cohort: Cohort<Evaluation>,
        is_due: bool,
        broadcast: Arc<Broadcast>,
        actions: &mut Vec<Action>,
    ) -> Self {
        let mut record = closed.record;
        let round = record.round;
        record.bytes_down += ask(&cohort, round, Task::Evaluate, &broadcast, actions);
        if is_due {
            let broadcast = broadcast.clone();
            actions.push(Action::Test { round, broadcast });
        }
        Self {
            cohort,
            record,
            broadcast,
            trained: closed.cohort,
            started: closed.started,
            pooled: Evaluation::default(),
            is_tested: !is_due,
        }
    }

    /// The coordinator has evaluated the model.
    pub(super) fn tested(&mut self, round: u32, evaluation: Result<Option<Evaluation>, String>) {
        if round != self.record.round {
            return;
        }
        self.is_tested = true;
        match evaluation {
            Ok(Some(evaluation)) => self.record.test(&evaluation),
            Ok(None) => {}
            Err(reason) => self
                .record
                .remark(format!("the test examples cannot be evaluated: {reason}")),
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
        // Nobody is awaited in a cohort whose training is over.
        let awaited = self.trained.awaits(client, round, self.record.round);
        let reason = awaited.err().unwrap_or(Rejection::Duplicate);
        self.record.turn_down(&reason);
        reason
    }

    /// Gives up those whose time is over, and pools the results whose turn it is. Says whether all is done.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration) -> bool {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail_to_evaluate(&client, &reason);
        }
        while let Some(evaluation) = self.cohort.take_next() {
            self.pooled.add(evaluation);
        }
        self.is_tested && self.cohort.is_settled()
    }

    pub(super) fn close(mut self, now: Duration) -> RoundRecord {
        self.record.clients_accuracy = self.pooled.accuracy();
        self.record.clients_loss = self.pooled.mean_loss();
        self.record.seconds = now.saturating_sub(self.started).as_secs_f64();
        self.record
    }
}
