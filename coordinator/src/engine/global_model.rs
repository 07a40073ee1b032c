//! The model of a round, of which every client gets its part.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_models::ModelError;
use selvedge_protocols::{Broadcast, Card, Description, Part, Parts, Ranking, Width};

/// The model of a round, of which every client gets its part. Parts are made when they are needed, and not kept: memory
/// does not grow with the cohort.
#[derive(Debug)]
pub struct GlobalModel {
    parts: Arc<Parts>,
    ranking: Option<Ranking>,
    broadcast: Arc<Broadcast>,
    /// Where batch norm's statistics are taken anew for each evaluation, these, by width.
    statistics: BTreeMap<Width, Vec<f32>>,
}

impl GlobalModel {
    /// The model that is broadcast in a round.
    pub(super) fn new(description: &Description, parts: Arc<Parts>, broadcast: Broadcast) -> Self {
        let ranks = description.plan().ranks_units();
        Self {
            ranking: ranks.then(|| Ranking::of(&broadcast.weights, parts.layout())),
            parts,
            broadcast: Arc::new(broadcast),
            statistics: BTreeMap::new(),
        }
    }

    /// The model with statistics for specimens of some widths.
    pub(super) fn calibrated(self, statistics: BTreeMap<Width, Vec<f32>>) -> Self {
        Self { statistics, ..self }
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

    /// What is evaluated of a part: the whole model, or the specimen of a width.
    pub fn evaluated(&self, part: &Part, width: Width) -> Arc<Broadcast> {
        let broadcast = self.broadcast(part);
        match self.statistics.get(&width) {
            Some(buffers) => {
                let mut broadcast = Broadcast::clone(&broadcast);
                broadcast.weights.buffers.clone_from(buffers);
                Arc::new(broadcast)
            }
            None => broadcast,
        }
    }

    /// What the client with this part receives.
    pub fn broadcast(&self, part: &Part) -> Arc<Broadcast> {
        part.extract(&self.broadcast)
    }
}
