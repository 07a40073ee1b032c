//! The model of a round, of which every client gets its part.

use std::sync::Arc;

use selvedge_models::ModelError;
use selvedge_protocols::{Broadcast, Card, Description, Part, Parts, Ranking};

/// The model of a round, of which every client gets its part. Parts are made when they are needed, and not kept: memory
/// does not grow with the cohort.
#[derive(Debug)]
pub struct GlobalModel {
    parts: Arc<Parts>,
    ranking: Option<Ranking>,
    broadcast: Arc<Broadcast>,
}

impl GlobalModel {
    /// The model that is broadcast in a round.
    pub(super) fn new(description: &Description, parts: Arc<Parts>, broadcast: Broadcast) -> Self {
        let ranks = description.plan().ranks_units();
        Self {
            ranking: ranks.then(|| Ranking::of(&broadcast.weights, parts.layout())),
            parts,
            broadcast: Arc::new(broadcast),
        }
    }

    /// The part that is all of it.
    pub(super) fn all(&self) -> &Arc<Part> {
        self.parts.whole()
    }

    /// All of it.
    pub fn whole(&self) -> &Arc<Broadcast> {
        &self.broadcast
    }

    /// What a card stands for, or all of the model without one.
    ///
    /// # Errors
    /// When the card's units are no sub-model of the model.
    pub fn part(&self, card: Option<&Card>) -> Result<Arc<Part>, ModelError> {
        match card {
            Some(card) => self.parts.ranked(card, self.ranking.as_ref()),
            None => Ok(self.parts.whole().clone()),
        }
    }

    /// What the client with this part receives.
    pub fn broadcast(&self, part: &Part) -> Arc<Broadcast> {
        part.extract(&self.broadcast)
    }
}
