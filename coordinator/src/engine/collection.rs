//! Collects what the clients of a round answer with numbers: updates, or statistics.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use selvedge_models::ModelError;
use selvedge_protocols::{
    ClientName, Description, Rejection,
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{TrainingReport, check_headers, check_report},
};

use super::{
    Action, GlobalModel, Inspector, Opened,
    cohort::{Cohort, Member, Status},
    hands::Hands,
    phase::{Moment, Offer},
};
use crate::record::RoundRecord;

/// What the clients of a round are asked, what they answer, and the round's record of it.
pub(super) struct Collection {
    pub(super) task: Task,
    pub(super) cohort: Cohort<Opened>,
    pub(super) hands: Hands,
    pub(super) model: Arc<GlobalModel>,
    pub(super) description: Arc<Description>,
    pub(super) record: RoundRecord,
    /// Those who have failed since this was last looked at.
    pub(super) gone: Vec<ClientName>,
}

impl Collection {
    /// Asks everybody, but for those whose cards stand for no sub-model. Those who are `spared` have what they need already.
    pub(super) fn open(
        &mut self,
        unplayable: Vec<(usize, ModelError)>,
        spared: &BTreeSet<ClientName>,
        actions: &mut Vec<Action>,
    ) {
        for (at, error) in unplayable {
            let name = self.cohort.members[at].name.clone();
            self.give_up(&name, &Rejection::ClientFailed(error.to_string()));
        }
        for (at, member) in self.cohort.members.iter().enumerate() {
            if matches!(member.status, Status::Asked) {
                actions.push(self.ask(at, &member.name));
                if !spared.contains(&member.name) {
                    self.hands.count_down(at, &mut self.record, &self.model);
                }
            }
        }
    }

    fn ask(&self, at: usize, client: &ClientName) -> Action {
        self.hands.ask(at, client, self.record.round, self.task, &self.model)
    }

    /// A client is there again: asks it again, if it is awaited.
    pub(super) fn rejoined(&mut self, client: &ClientName) -> Option<Action> {
        let at = self.cohort.position(client).filter(|_| self.cohort.rejoined(client))?;
        Some(self.ask(at, client))
    }

    /// A client has an answer ready.
    pub(super) fn offered(&mut self, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        if let Err(reason) = self.cohort.awaits(client, offer.round, self.record.round) {
            self.record.turn_down(&reason);
            return Err(reason);
        }
        let checked = self.check(client, &offer.report, &offer.sections, offer.bytes);
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
        // How many steps a client makes whose model is cut is the coordinator's own affair.
        let is_cut = self.hands.card(at).cut.is_some();
        let most = self.description.training.steps_on(report.examples as usize);
        match report.examples {
            0 => Err(Rejection::NoExamples),
            examples if !is_cut && report.steps > most => Err(Rejection::ImpossibleReport(format!(
                "{} steps on {examples} examples, which are enough for {most}",
                report.steps
            ))),
            _ => Ok(()),
        }
    }

    /// An answer was received, or is not to be had. One that was given up before it came, or is to something else that was
    /// asked, is ignored.
    pub(super) fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        task: Task,
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        let is_awaited = |member: &mut Member<Opened>| matches!(member.status, Status::Receiving { .. });
        if task != self.task || round != self.record.round || !self.cohort.member(client).is_some_and(is_awaited) {
            return Ok(());
        }
        if let (Ok(_), Some(at)) = (&update, self.cohort.position(client)) {
            self.hands.count_up(at, &mut self.record);
        }
        self.settle(client, update.map(Status::Held))
    }

    /// A client could not do what it was asked.
    pub(super) fn failed(&mut self, client: &ClientName, round: u32, task: Task, reason: &Rejection) {
        if round == self.record.round && task == self.task {
            self.give_up(client, reason);
        }
    }

    /// A client's connection is lost.
    pub(super) fn left(&mut self, moment: &Moment<'_>, client: &ClientName, for_good: bool) {
        match for_good {
            true => self.give_up(client, &Rejection::Disconnected),
            false => self.cohort.lose(client, moment.now, moment.run.grace()),
        }
    }

    /// Nothing more is expected of a client.
    pub(super) fn give_up(&mut self, client: &ClientName, reason: &Rejection) {
        if self.cohort.give_up(client) {
            self.fail(client, reason);
        }
    }

    /// What a client has or will have is not wanted, whether it has come or not.
    pub(super) fn reject(&mut self, client: &ClientName, reason: &Rejection) {
        if let Some(member) = self.cohort.member(client) {
            member.status = Status::Failed;
            self.fail(client, reason);
        }
    }

    fn fail(&mut self, client: &ClientName, reason: &Rejection) {
        self.gone.push(client.clone());
        match self.task {
            Task::Train => self.record.fail(client, reason),
            Task::Calibrate | Task::Evaluate => self.record.fail_to_evaluate(client, reason),
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
                self.fail(client, &reason);
                Err(reason)
            }
        }
    }

    /// Gives up those whose time is over, and says why the last was.
    pub(super) fn expire(&mut self, now: Duration, grace: Duration) -> Option<Rejection> {
        let mut last = None;
        for (client, reason) in self.cohort.expire(now, grace) {
            self.fail(&client, &reason);
            last = Some(reason);
        }
        last
    }

    /// Gives up those whose time is over, and gives the answers whose turn it is, with their places in the cohort.
    pub(super) fn take(&mut self, now: Duration, grace: Duration) -> Vec<(usize, Opened)> {
        self.expire(now, grace);
        std::iter::from_fn(|| self.cohort.take_next()).collect()
    }

    /// Asks for the answers within the window. Says whether all are settled.
    pub(super) fn ask_for(&mut self, window: usize, now: Duration, actions: &mut Vec<Action>) -> bool {
        for client in self.cohort.receive(window, now) {
            let Some(at) = self.cohort.position(&client) else {
                continue;
            };
            let inspector = Inspector {
                description: self.description.clone(),
                client: client.clone(),
                round: self.record.round,
                is_filtered: self.task == Task::Train,
                model: self.model.clone(),
                card: self.hands.card(at).clone(),
                expected: self.hands.expected(at).clone(),
            };
            actions.push(Action::Receive {
                client,
                round: self.record.round,
                task: self.task,
                inspector: Arc::new(inspector),
            });
        }
        self.cohort.is_settled()
    }
}

fn describe(sections: &[SectionHeader]) -> String {
    let sections: Vec<_> = sections
        .iter()
        .map(|section| format!("{} {}", section.values, section.name))
        .collect();
    sections.join(", ")
}
