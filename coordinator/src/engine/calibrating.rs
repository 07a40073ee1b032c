//! *calibrate*: clients take the statistics that batch norm is to evaluate the new model with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_models::{Layout, Moments};
use selvedge_protocols::{
    Card, ClientName, Description, Rejection, Width,
    description::Weighting,
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{TrainingReport, check_headers, check_report},
};

use super::{
    Action, GlobalModel, Inspector, Opened,
    cohort::{Cohort, Member, Status},
    hands::Hands,
    training::Closed,
};
use crate::RoundRecord;

/// A round whose model is being calibrated: each client that has trained runs its examples through a specimen of its own
/// width.
pub(super) struct Calibrating {
    pub(super) cohort: Cohort<Opened>,
    pub(super) closed: Closed,
    model: Arc<GlobalModel>,
    hands: Hands,
    weighting: Weighting,
    /// What was met at each width, and how the specimen is laid out.
    moments: BTreeMap<Width, (Layout, Moments)>,
}

impl Calibrating {
    /// Asks the cohort, each client for a specimen of its width.
    pub(super) fn open(
        mut closed: Closed,
        mut cohort: Cohort<Opened>,
        cards: Vec<Card>,
        description: &Arc<Description>,
        model: Arc<GlobalModel>,
        actions: &mut Vec<Action>,
    ) -> Self {
        let (hands, unplayable) = Hands::of_moments(cards, description, &model);
        let (round, record) = (closed.record.round, &mut closed.record);
        for (at, error) in unplayable {
            let name = cohort.members[at].name.clone();
            cohort.give_up(&name);
            record.fail_to_evaluate(&name, &Rejection::ClientFailed(error.to_string()));
        }
        for (at, member) in cohort.members.iter().enumerate() {
            if matches!(member.status, Status::Asked) {
                actions.push(hands.ask(at, &member.name, round, Task::Calibrate, &model));
                hands.count_down(at, record, &model);
            }
        }
        Self {
            cohort,
            closed,
            model,
            hands,
            weighting: description.aggregation.weighting,
            moments: BTreeMap::new(),
        }
    }

    /// A client is there again: asks it again, if it is awaited.
    pub(super) fn rejoined(&mut self, client: &ClientName) -> Option<Action> {
        let at = self.cohort.position(client).filter(|_| self.cohort.rejoined(client))?;
        let round = self.closed.record.round;
        Some(self.hands.ask(at, client, round, Task::Calibrate, &self.model))
    }

    /// A client has moments ready.
    pub(super) fn offered(
        &mut self,
        client: &ClientName,
        round: u32,
        report: &TrainingReport,
        sections: &[SectionHeader],
        bytes: u64,
    ) -> Result<(), Rejection> {
        if let Err(reason) = self.cohort.awaits(client, round, self.closed.record.round) {
            self.closed.record.turn_down(&reason);
            return Err(reason);
        }
        let checked = self.check(client, report, sections, bytes);
        self.settle(client, checked.map(|()| Status::Offered))
    }

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
        match packed_bytes(sections) == Some(bytes) {
            true if report.examples == 0 => Err(Rejection::NoExamples),
            true => Ok(()),
            false => Err(Rejection::WrongSize(format!("{bytes} bytes announced for moments"))),
        }
    }

    /// Moments were received, or are not to be had.
    pub(super) fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        let is_awaited = |member: &mut Member<Opened>| matches!(member.status, Status::Receiving { .. });
        if round != self.closed.record.round || !self.cohort.member(client).is_some_and(is_awaited) {
            return Ok(());
        }
        if let (Ok(_), Some(at)) = (&update, self.cohort.position(client)) {
            self.hands.count_up(at, &mut self.closed.record);
        }
        self.settle(client, update.map(Status::Held))
    }

    /// Nothing more is expected of a client.
    pub(super) fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        if self.cohort.give_up(client) {
            self.closed.record.fail_to_evaluate(client, reason);
        }
    }

    fn settle(&mut self, client: &ClientName, status: Result<Status<Opened>, Rejection>) -> Result<(), Rejection> {
        let Some(member) = self.cohort.member(client) else {
            return Ok(());
        };
        status.map(|status| member.status = status).inspect_err(|reason| {
            member.status = Status::Failed;
            self.closed.record.fail_to_evaluate(client, reason);
        })
    }

    /// Gives up those whose time is over, folds the moments whose turn it is, and asks for those within the window. Says
    /// whether all are settled.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration, window: usize, actions: &mut Vec<Action>) -> bool {
        for (client, reason) in self.cohort.expire(now, grace) {
            self.closed.record.fail_to_evaluate(&client, &reason);
        }
        while let Some((at, opened)) = self.cohort.take_next() {
            self.fold(at, &opened);
        }
        for client in self.cohort.receive(window, now) {
            let Some(at) = self.cohort.position(&client) else {
                continue;
            };
            actions.push(Action::Receive {
                client,
                round: self.closed.record.round,
                task: Task::Calibrate,
                inspector: Arc::new(Inspector {
                    filters: Vec::new(),
                    model: self.model.clone(),
                    card: self.hands.card(at).clone(),
                    expected: self.hands.expected(at).clone(),
                }),
            });
        }
        self.cohort.is_settled()
    }

    fn fold(&mut self, at: usize, opened: &Opened) {
        let Ok(layout) = opened.part.model.layout() else { return };
        let trained = &opened.update.trained;
        let weight = match self.weighting {
            Weighting::Examples => trained.examples as f64,
            Weighting::Uniform => 1.0,
        };
        let entry = self.moments.entry(self.hands.width(at));
        let (layout, moments) = entry.or_insert_with(|| (layout, Moments::default()));
        moments.add(layout, &trained.weights.buffers, weight);
    }

    /// The statistics of each width that was calibrated.
    pub(super) fn statistics(&self) -> BTreeMap<Width, Vec<f32>> {
        let of_width =
            |(width, (layout, moments)): (&Width, &(Layout, Moments))| Some((*width, moments.statistics(layout)?));
        self.moments.iter().filter_map(of_width).collect()
    }

    /// The record of a round that is not completed.
    pub(super) fn stopped(self, now: Duration) -> RoundRecord {
        RoundRecord {
            seconds: now.saturating_sub(self.closed.started).as_secs_f64(),
            ..self.closed.record
        }
    }
}
