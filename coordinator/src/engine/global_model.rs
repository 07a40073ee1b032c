//! The model of a round, of which every client gets its part.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_models::{Layout, ModelError, Weights};
use selvedge_protocols::{Broadcast, Card, ClientName, Description, Part, Parts, Ranking, Width};

use crate::Trial;

/// Fronts that clients keep, with the parts of the model that they are.
pub type Fronts = BTreeMap<ClientName, (Arc<Part>, Arc<Weights>)>;

/// The model of a round, of which every client gets its part. Parts are made when they are needed, and not kept: memory
/// does not grow with the cohort.
#[derive(Debug)]
pub struct GlobalModel {
    parts: Arc<Parts>,
    ranking: Option<Ranking>,
    broadcast: Arc<Broadcast>,
    /// Where batch norm's statistics are taken anew for each evaluation, these, by width.
    statistics: BTreeMap<Width, Vec<f32>>,
    /// Where clients keep their fronts, those to be evaluated.
    fronts: Arc<Fronts>,
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
            fronts: Arc::default(),
        }
    }

    /// The model with statistics for specimens of some widths.
    pub(super) fn calibrated(self, statistics: BTreeMap<Width, Vec<f32>>) -> Self {
        Self { statistics, ..self }
    }

    /// The model with fronts of clients.
    pub(super) fn with_fronts(self, fronts: Arc<Fronts>) -> Self {
        Self { fronts, ..self }
    }

    /// Where its values lie.
    pub(super) fn layout(&self) -> &Layout {
        self.parts.layout()
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

    /// What is evaluated of a part: the whole model, the specimen of a width, or the model with a client's front. All of it is
    /// copied only where it is evaluated with other values than its own.
    pub fn evaluated(&self, part: &Part, trial: &Trial) -> Arc<Broadcast> {
        let statistics = self.statistics.get(&trial.width());
        if part.coordinates.parameters.is_all() && statistics == Some(&self.broadcast.weights.buffers) {
            return self.broadcast.clone();
        }
        let broadcast = self.broadcast(part);
        if let Trial::Stitched(client) = trial
            && let Some((part, front)) = self.fronts.get(client)
        {
            let mut broadcast = Arc::unwrap_or_clone(broadcast);
            part.coordinates.merge(front, Arc::make_mut(&mut broadcast.weights));
            return Arc::new(broadcast);
        }
        match statistics {
            Some(buffers) => {
                let mut broadcast = Arc::unwrap_or_clone(broadcast);
                Arc::make_mut(&mut broadcast.weights).buffers.clone_from(buffers);
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
