//! *train*: the cohort trains, and its updates are checked and folded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{
    Card, ClientName, Description, Rejection, Width,
    aggregation::{Aggregate, Aggregator, Coverage},
    description::{Averaging, Weighting},
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{TrainingReport, check_headers, check_report},
};

use super::{
    Action, GlobalModel, Inspector, Opened,
    cohort::{Cohort, Member, Status},
    hands::Hands,
    units::UnitCounts,
};
use crate::record::RoundRecord;

/// A round in which clients train.
pub(super) struct Training {
    pub(super) started: Duration,
    pub(super) cohort: Cohort<Opened>,
    pub(super) record: RoundRecord,
    description: Arc<Description>,
    model: Arc<GlobalModel>,
    hands: Hands,
    aggregator: Box<dyn Aggregator>,
    coverage: Coverage,
    units: UnitCounts,
    loss: WeightedLoss,
    losses: BTreeMap<Width, WeightedLoss>,
}

#[derive(Clone, Copy, Default)]
struct WeightedLoss {
    sum: f64,
    examples: f64,
}

impl WeightedLoss {
    fn add(&mut self, loss: f64, examples: f64) {
        self.sum += loss * examples;
        self.examples += examples;
    }

    fn mean(self) -> Option<f64> {
        (self.examples > 0.0).then(|| self.sum / self.examples)
    }
}

impl Training {
    /// Asks the cohort to train, each client what it was dealt.
    pub(super) fn open(
        round: u32,
        mut cohort: Cohort<Opened>,
        cards: Vec<Card>,
        now: Duration,
        description: Arc<Description>,
        model: Arc<GlobalModel>,
        actions: &mut Vec<Action>,
    ) -> Self {
        let mut record = RoundRecord {
            round,
            selected: cohort.members.len(),
            ..RoundRecord::default()
        };
        let (hands, unplayable) = Hands::new(cards, &description, &model);
        for (at, error) in unplayable {
            let name = cohort.members[at].name.clone();
            cohort.give_up(&name);
            record.fail(&name, &Rejection::ClientFailed(error.to_string()));
        }
        for (at, member) in cohort.members.iter().enumerate() {
            if matches!(member.status, Status::Asked) {
                actions.push(hands.ask(at, &member.name, round, Task::Train, &model));
                hands.count_down(at, &mut record, &model);
            }
            if let Some(width) = record.width(hands.width(at), &description) {
                width.selected += 1;
            }
        }
        Self {
            started: now,
            cohort,
            record,
            aggregator: description.algorithm.aggregator(),
            description,
            model,
            hands,
            coverage: Coverage::default(),
            units: UnitCounts::default(),
            loss: WeightedLoss::default(),
            losses: BTreeMap::new(),
        }
    }

    /// A client is there again: asks it again, if it is awaited.
    pub(super) fn rejoined(&mut self, client: &ClientName) -> Option<Action> {
        let at = self.cohort.position(client).filter(|_| self.cohort.rejoined(client))?;
        Some(self.hands.ask(at, client, self.record.round, Task::Train, &self.model))
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
        let checked = self.check(client, report, sections, bytes);
        self.settle(client, checked.map(|()| Status::Offered))
    }

    /// Checks what is announced, before anything is received.
    fn check(
        &self,
        client: &ClientName,
        report: &TrainingReport,
        sections: &[SectionHeader],
        bytes: u64,
    ) -> Result<(), Rejection> {
        check_report(report)?;
        let at = self.cohort.position(client).ok_or(Rejection::NotSelected)?;
        check_headers(self.hands.expected(at), sections)?;
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
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        let is_awaited = |member: &mut Member<Opened>| matches!(member.status, Status::Receiving { .. });
        if round != self.record.round || !self.cohort.member(client).is_some_and(is_awaited) {
            return Ok(());
        }
        if let (Ok(_), Some(at)) = (&update, self.cohort.position(client)) {
            self.hands.count_up(at, &mut self.record);
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
    fn settle(&mut self, client: &ClientName, status: Result<Status<Opened>, Rejection>) -> Result<(), Rejection> {
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
        while let Some((at, opened)) = self.cohort.take_next() {
            self.fold(at, opened);
        }
        for client in self.cohort.receive(window, now) {
            let Some(at) = self.cohort.position(&client) else {
                continue;
            };
            let inspector = Inspector {
                filters: self.description.filters.clone(),
                model: self.model.clone(),
                card: self.hands.card(at).clone(),
                expected: self.hands.expected(at).clone(),
            };
            actions.push(Action::Receive {
                client,
                round: self.record.round,
                task: Task::Train,
                inspector: Arc::new(inspector),
            });
        }
        self.cohort.is_settled()
    }

    fn fold(&mut self, at: usize, opened: Opened) {
        let Opened { mut update, part } = opened;
        let examples = update.trained.examples as f64;
        let width = self.hands.width(at);
        if let Some(loss) = update.trained.loss {
            self.loss.add(loss, examples);
            self.losses.entry(width).or_default().add(loss, examples);
        }
        let weight = match self.description.aggregation.weighting {
            Weighting::Examples => examples,
            Weighting::Uniform => 1.0,
        };
        let averaging = self
            .description
            .sub_models
            .as_ref()
            .map(|sub_models| sub_models.averaging);
        self.coverage.add(&part.coordinates);
        self.units.add(&part.coordinates.units);
        if averaging == Some(Averaging::Uniform) {
            // What was not trained counts as left as it was.
            let mut whole = self.model.whole().weights.clone();
            part.coordinates.merge(&update.trained.weights, &mut whole);
            update.trained.weights = whole;
            let mut vectors = Default::default();
            part.merge(std::mem::take(&mut update.vectors), &mut vectors);
            update.vectors = vectors;
            let all = &self.model.all().coordinates;
            self.aggregator.fold(update, all, weight);
        } else {
            self.aggregator.fold(update, &part.coordinates, weight);
        }
        self.record.completed += 1;
        if let Some(width) = self.record.width(width, &self.description) {
            width.completed += 1;
        }
    }

    /// What the updates came to; `None`, with a note in the record, when they are too few to move the model.
    pub(super) fn close(mut self) -> Closed {
        let record = &mut self.record;
        record.train_loss = self.loss.mean();
        for (width, loss) in self.losses {
            if let Some(width) = record.width(width, &self.description) {
                width.train_loss = loss.mean();
            }
        }
        // A client without examples has done what there was to do.
        let without_examples = record.failed.get(Rejection::NoExamples.code()).copied().unwrap_or(0);
        let answered = record.completed + without_examples;
        let quorum = self.description.quorum(record.selected);
        let aggregate = if answered < quorum {
            let selected = record.selected;
            record.remark(format!(
                "{answered} of {selected} clients have done their part, {quorum} are needed: the model stays as it was",
            ));
            None
        } else {
            self.aggregator.finish(&self.model.whole().weights).or_else(|| {
                record.remark("none of the clients that answered holds an example: the model stays as it was".into());
                None
            })
        };
        Closed {
            started: self.started,
            cohort: self.cohort,
            hands: self.hands,
            aggregate,
            coverage: self.coverage,
            units: self.units,
            record: self.record,
        }
    }
}

/// A round in which all have trained who will.
pub(super) struct Closed {
    pub(super) started: Duration,
    pub(super) cohort: Cohort<Opened>,
    pub(super) hands: Hands,
    pub(super) aggregate: Option<Aggregate>,
    /// Which coordinates were trained.
    pub(super) coverage: Coverage,
    /// How often each unit was trained.
    pub(super) units: UnitCounts,
    pub(super) record: RoundRecord,
}

impl Closed {
    /// An update that comes when the training is over.
    pub(super) fn offered(&mut self, client: &ClientName, round: u32) -> Rejection {
        // Nobody is awaited in a cohort whose training is over.
        let awaited = self.cohort.awaits(client, round, self.record.round);
        let reason = awaited.err().unwrap_or(Rejection::Duplicate);
        self.record.turn_down(&reason);
        reason
    }
}

fn describe(sections: &[SectionHeader]) -> String {
    let sections: Vec<_> = sections
        .iter()
        .map(|section| format!("{} {}", section.values, section.name))
        .collect();
    sections.join(", ")
}
