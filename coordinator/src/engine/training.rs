//! *train*: the cohort trains, and its updates are checked and folded.

use std::{sync::Arc, time::Duration};

use selvedge_protocols::{
    Broadcast, ClientName, Rejection, Update,
    aggregation::{Aggregate, Aggregator},
    description::Weighting,
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{TrainingReport, check_headers, check_report},
};

use super::{
    Action, Inspector,
    cohort::{Cohort, Member, Status, ask},
};
use crate::record::RoundRecord;

/// A round in which clients train.
pub(super) struct Training {
    pub(super) started: Duration,
    pub(super) cohort: Cohort<Update>,
    pub(super) record: RoundRecord,
    inspector: Arc<Inspector>,
    aggregator: Box<dyn Aggregator>,
    loss: WeightedLoss,
}

#[derive(Default)]
struct WeightedLoss {
    sum: f64,
    examples: f64,
}

impl Training {
    /// Asks the cohort to train.
    pub(super) fn open(
        round: u32,
        cohort: Cohort<Update>,
        now: Duration,
        inspector: Inspector,
        actions: &mut Vec<Action>,
    ) -> Self {
        let record = RoundRecord {
            round,
            selected: cohort.members.len(),
            bytes_down: ask(&cohort, round, Task::Train, &inspector.broadcast, actions),
            ..RoundRecord::default()
        };
        Self {
            started: now,
            cohort,
            record,
            aggregator: inspector.description.algorithm.aggregator(),
            inspector: Arc::new(inspector),
            loss: WeightedLoss::default(),
        }
    }

    /// The model that is trained.
    pub(super) fn broadcast(&self) -> &Arc<Broadcast> {
        &self.inspector.broadcast
    }

    /// A client has an update ready.
    pub(super) fn offered(
        &mut self,
        client: &ClientName,
        round: u32,
        report: &TrainingReport,
        sections: &[SectionHeader],
        bytes: u64,
    ) -> Result<(), Rejection> {
        if let Err(reason) = self.cohort.awaits(client, round, self.record.round) {
            self.record.turn_down(&reason);
            return Err(reason);
        }
        let checked = self.check(report, sections, bytes);
        self.settle(client, checked.map(|()| Status::Offered))
    }

    /// Checks what is announced, before anything is received.
    fn check(&self, report: &TrainingReport, sections: &[SectionHeader], bytes: u64) -> Result<(), Rejection> {
        check_report(report)?;
        check_headers(&self.inspector.expected, sections)?;
        if packed_bytes(sections) != Some(bytes) {
            let sections = describe(sections);
            return Err(Rejection::WrongSize(format!("{bytes} bytes announced for {sections}")));
        }
        match report.examples {
            0 => Err(Rejection::NoExamples),
            _ => Ok(()),
        }
    }

    /// An update was received, or is not to be had. One that was given up before it came is ignored.
    pub(super) fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        update: Result<Update, Rejection>,
    ) -> Result<(), Rejection> {
        let is_awaited = |member: &mut Member<Update>| matches!(member.status, Status::Receiving { .. });
        if round != self.record.round || !self.cohort.member(client).is_some_and(is_awaited) {
            return Ok(());
        }
        if update.is_ok() {
            self.record.bytes_up += packed_bytes(&self.inspector.expected).unwrap_or(0);
        }
        self.settle(client, update.map(Status::Held))
    }

    /// Nothing more is expected of a client.
    pub(super) fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        if self.cohort.give_up(client) {
            self.record.fail(client, reason);
        }
    }

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

    /// Gives up those whose time is over, folds the updates whose turn it is, and asks for those within the window.
    /// Says whether all are settled.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration, window: usize, actions: &mut Vec<Action>) -> bool {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.record.fail(&client, &reason);
        }
        while let Some(update) = self.cohort.take_next() {
            self.fold(update);
        }
        for client in self.cohort.receive(window, now) {
            actions.push(Action::Receive {
                client,
                round: self.record.round,
                inspector: self.inspector.clone(),
            });
        }
        self.cohort.is_settled()
    }

    fn fold(&mut self, update: Update) {
        let examples = update.trained.examples as f64;
        if let Some(loss) = update.trained.loss {
            self.loss.sum += loss * examples;
            self.loss.examples += examples;
        }
        let weight = match self.inspector.description.aggregation.weighting {
            Weighting::Examples => examples,
            Weighting::Uniform => 1.0,
        };
        self.aggregator.fold(update, weight);
        self.record.completed += 1;
    }

    /// What the updates came to; `None`, with a note in the record, when they are too few to move the model.
    pub(super) fn close(mut self) -> Closed {
        let (loss, record) = (self.loss, &mut self.record);
        record.train_loss = (loss.examples > 0.0).then(|| loss.sum / loss.examples);
        // A client without examples has done what there was to do.
        let without_examples = record.failed.get(Rejection::NoExamples.code()).copied().unwrap_or(0);
        let answered = record.completed + without_examples;
        let quorum = self.inspector.description.quorum(record.selected);
        let aggregate = if answered < quorum {
            let selected = record.selected;
            record.remark(format!(
                "{answered} of {selected} clients have done their part, {quorum} are needed: the model stays as it was",
            ));
            None
        } else {
            self.aggregator.finish().or_else(|| {
                record.remark("none of the clients that answered holds an example: the model stays as it was".into());
                None
            })
        };
        Closed {
            started: self.started,
            cohort: self.cohort,
            aggregate,
            record: self.record,
        }
    }
}

/// A round in which all have trained who will.
pub(super) struct Closed {
    pub(super) started: Duration,
    pub(super) cohort: Cohort<Update>,
    pub(super) aggregate: Option<Aggregate>,
    pub(super) record: RoundRecord,
}

fn describe(sections: &[SectionHeader]) -> String {
    let sections: Vec<_> = sections
        .iter()
        .map(|section| format!("{} {}", section.values, section.name))
        .collect();
    sections.join(", ")
}
