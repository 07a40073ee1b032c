//! A run between two rounds, as plain data: what another process needs to go on with it, to the same end, byte for byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use selvedge_models::{ModelError, Weights};
use selvedge_protocols::{
    Card, ClientName, ServerState, Width, memory::Memory, plan::Position, split::leader::Leaders,
};
use serde::{Deserialize, Serialize};

use super::{Fronts, UnitCounts, run::Run};

/// A run between two rounds. Weights, memory, fronts and leaders are shared with the run as long as it does not
/// change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last round that is over; 0 before the first.
    pub round: u32,
    weights: Arc<Weights>,
    memory: Arc<Memory>,
    dealer: Position,
    units: UnitCounts,
    fronts: BTreeMap<ClientName, Arc<Weights>>,
    has_front: BTreeSet<ClientName>,
    leaders: Arc<Leaders>,
    /// Over the network, who was there.
    clients: BTreeSet<ClientName>,
}

impl Run {
    /// The run as it is now, between two rounds.
    pub(super) fn snapshot(&self) -> Snapshot {
        let front = |(client, (_, front)): (&ClientName, &(_, Arc<Weights>))| (client.clone(), front.clone());
        Snapshot {
            round: self.round,
            weights: self.state.weights.clone(),
            memory: self.state.memory.clone(),
            dealer: self.dealer.position(),
            units: self.units.clone(),
            fronts: self.fronts.iter().map(front).collect(),
            has_front: self.has_front.clone(),
            leaders: self.leaders.clone(),
            clients: self.roster.joined(),
        }
    }

    /// Goes on from a snapshot of a run with this description.
    ///
    /// # Errors
    /// When it is of another model.
    pub(super) fn resume(&mut self, snapshot: &Snapshot) -> Result<(), ModelError> {
        snapshot.weights.check(self.parts.layout())?;
        let mut fronts = Fronts::new();
        for (client, front) in &snapshot.fronts {
            // Where clients keep their fronts, all have all units.
            let mut card = Card::new(self.description.seed.0, 0, Width::WHOLE, vec![]);
            card.cut = self.cut_of(client);
            fronts.insert(client.clone(), (self.parts.part(&card)?, front.clone()));
        }
        self.state = ServerState {
            weights: snapshot.weights.clone(),
            memory: snapshot.memory.clone(),
        };
        self.dealer.resume(snapshot.dealer.clone());
        self.units.clone_from(&snapshot.units);
        self.fronts = Arc::new(fronts);
        self.has_front.clone_from(&snapshot.has_front);
        self.leaders.clone_from(&snapshot.leaders);
        self.round = snapshot.round;
        self.returning.clone_from(&snapshot.clients);
        Ok(())
    }
}
