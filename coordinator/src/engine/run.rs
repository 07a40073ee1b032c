//! What a run has that its phases have in common.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use selvedge_models::{Cut, Weights};
use selvedge_protocols::{
    Broadcast, Card, ClientName, Description, Parts, Rejection, ServerState, Width,
    description::Shares,
    plan::{Dealer, Seat},
    split::leader::Leaders,
};

use super::{Fronts, GlobalModel, Roster, units::UnitCounts};

/// The state of a run between its phases, each of which is lent it.
pub(super) struct Run {
    pub(super) description: Arc<Description>,
    pub(super) parts: Arc<Parts>,
    pub(super) roster: Roster,
    capacities: Shares<Width>,
    cuts: Shares<Option<Cut>>,
    /// What clients can train by what they have reported.
    reported: BTreeMap<ClientName, Width>,
    pub(super) dealer: Box<dyn Dealer>,
    pub(super) units: UnitCounts,
    pub(super) state: ServerState,
    /// Where clients keep their fronts, those that were evaluated last.
    pub(super) fronts: Arc<Fronts>,
    /// Where clients keep their fronts, who has one of its own.
    pub(super) has_front: BTreeSet<ClientName>,
    /// Where gradients are aligned, the directions of the fronts' and of the back's.
    pub(super) leaders: Arc<Leaders>,
    /// How many answers at most are asked for beyond the one that is folded next.
    pub(super) window: usize,
    /// The last round that was begun; 0 before the first.
    pub(super) round: u32,
    /// Of a run that was taken up again, who was there when it was put down, until its next round.
    pub(super) returning: BTreeSet<ClientName>,
    /// Whether a snapshot is taken after each round.
    pub(super) keeps_snapshots: bool,
}

impl Run {
    /// A run that begins at round 1 with the given model.
    pub(super) fn new(
        description: Arc<Description>,
        parts: Arc<Parts>,
        initial: Weights,
        roster: Roster,
        window: usize,
    ) -> Self {
        Self {
            capacities: description.capacities(),
            cuts: description.cuts(),
            reported: BTreeMap::new(),
            dealer: description.plan().dealer(),
            units: UnitCounts::none(parts.whole()),
            description,
            parts,
            roster,
            state: ServerState::from(initial),
            fronts: Arc::default(),
            has_front: BTreeSet::new(),
            leaders: Default::default(),
            window: window.max(1),
            round: 0,
            returning: BTreeSet::new(),
            keeps_snapshots: false,
        }
    }

    /// After how many layers the model of a client is cut, if it is.
    pub(super) fn cut_of(&self, client: &ClientName) -> Option<Cut> {
        self.cuts.of(client)
    }

    /// How many clients the next round waits for.
    pub(super) fn clients_needed(&self) -> usize {
        let description = &self.description;
        let start = description.network.start_with.unwrap_or(description.clients);
        match self.round {
            0 => start,
            _ if !self.returning.is_empty() => self.returning.len(),
            _ => description.quorum(description.cohort_size()).min(start),
        }
    }

    /// How long a lost client may take to come back.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.description.network.idle_seconds)
    }

    /// How long a round may take.
    pub(super) fn allowed(&self) -> Duration {
        Duration::from_secs_f64(self.description.cohort.deadline_seconds)
    }

    /// How long the run waits for enough clients.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs_f64(self.description.network.wait_seconds)
    }

    pub(super) fn wrong_round(&self, update: u32) -> Rejection {
        Rejection::WrongRound {
            update,
            now: self.round,
        }
    }

    /// A client is there, and may have said what it can train.
    pub(super) fn join(&mut self, client: &ClientName, width: Option<Width>) {
        self.roster.join(client.clone());
        if let Some(width) = width {
            self.reported.insert(client.clone(), width);
        }
    }

    /// The largest width that a client can train.
    fn width_of(&self, client: &ClientName) -> Width {
        self.reported
            .get(client)
            .copied()
            .unwrap_or_else(|| self.capacities.of(client))
    }

    /// Deals each of these clients, which are in the order of their names, its part of the model.
    pub(super) fn deal(&mut self, names: &[ClientName]) -> Vec<Card> {
        let seat = |client: &ClientName| Seat {
            width: self.width_of(client),
            client: client.clone(),
        };
        let seats: Vec<Seat> = names.iter().map(seat).collect();
        let mut cards = self.dealer.deal(self.description.seed.0, self.round, &seats);
        for (card, client) in cards.iter_mut().zip(names) {
            card.cut = self.cuts.of(client);
        }
        cards
    }

    /// A sub-model that stands for all of its width.
    pub(super) fn specimen(&self, width: Width) -> Card {
        self.description
            .plan()
            .specimen(self.description.seed.0, self.round, width)
    }

    /// The model as it is broadcast to those who train it.
    pub(super) fn model(&self) -> GlobalModel {
        let broadcast = self.state.broadcast(&*self.description.algorithm);
        self.of(broadcast.rounded(self.description.broadcast.precision))
    }

    /// The model as it is now, to be evaluated.
    pub(super) fn new_model(&self) -> GlobalModel {
        self.of(Broadcast::bare(self.state.weights.clone()))
    }

    fn of(&self, broadcast: Broadcast) -> GlobalModel {
        GlobalModel::new(&self.description, self.parts.clone(), broadcast)
    }
}
