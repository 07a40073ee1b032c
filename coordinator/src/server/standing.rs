//! Where the run stands, for whoever watches it.

use std::collections::BTreeSet;

use selvedge_protocols::ClientName;

use crate::{Engine, Observer, Progress};

/// Who was asked in this round, who has answered, and what was last shown of it.
#[derive(Default)]
pub(super) struct Standing {
    asked: BTreeSet<ClientName>,
    answered: BTreeSet<ClientName>,
    shown: Option<Shown>,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Waiting { clients: usize, needed: usize },
    Round { round: u32, answered: usize, asked: usize },
}

impl Standing {
    pub(super) fn asked(&mut self, client: ClientName) {
        self.asked.insert(client);
    }

    pub(super) fn answered(&mut self, client: &ClientName) {
        if self.asked.contains(client) {
            self.answered.insert(client.clone());
        }
    }

    /// The round is over.
    pub(super) fn end(&mut self) {
        self.asked.clear();
        self.answered.clear();
    }

    /// A round is over, but those who have not answered in it are still under way.
    pub(super) fn go_on(&mut self) {
        self.asked = &self.asked - &self.answered;
        self.answered.clear();
    }

    /// Shows where the run stands, when that has changed.
    pub(super) fn show(&mut self, engine: &Engine, observe: Observer<'_>) {
        let now = match self.asked.len() {
            0 => Shown::Waiting {
                clients: engine.clients(),
                needed: engine.clients_needed(),
            },
            asked => Shown::Round {
                round: engine.round(),
                answered: self.answered.len(),
                asked,
            },
        };
        if self.shown.replace(now) == Some(now) {
            return;
        }
        observe(match now {
            Shown::Waiting { clients, needed } => Progress::Waiting { clients, needed },
            Shown::Round { round, answered, asked } => Progress::Round { round, answered, asked },
        });
    }
}
