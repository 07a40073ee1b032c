//! What clients may fetch.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_protocols::{
    Card,
    sections::SectionHeader,
    wire::{BlobReference, BlobStore, Held},
};

use super::ServerError;
use crate::engine::GlobalModel;

/// The parts of this round's model, each packed once for all who have it. Only those who were told a part's hash can ask
/// for it.
pub(super) struct Broadcasts {
    store: BlobStore,
    model: Option<Arc<GlobalModel>>,
    offered: BTreeMap<Card, Offered>,
}

struct Offered {
    sections: Vec<SectionHeader>,
    held: Held,
}

impl Default for Broadcasts {
    fn default() -> Self {
        Self {
            store: BlobStore::new(u64::MAX), // It holds the parts of one model.
            model: None,
            offered: BTreeMap::new(),
        }
    }
}

impl Broadcasts {
    pub(super) fn store(&self) -> BlobStore {
        self.store.clone()
    }

    /// What a client is told, so that it can fetch its part of `model`.
    pub(super) fn offer(
        &mut self,
        model: &Arc<GlobalModel>,
        card: &Card,
    ) -> Result<(Vec<SectionHeader>, BlobReference), ServerError> {
        if !self.model.as_ref().is_some_and(|known| Arc::ptr_eq(known, model)) {
            self.end();
            self.model = Some(model.clone());
        }
        if !self.offered.contains_key(card) {
            let broadcast = model.broadcast(&*model.part(Some(card))?);
            let offered = Offered {
                sections: broadcast.headers(),
                held: self.store.hold(broadcast.pack().into())?,
            };
            self.offered.insert(card.clone(), offered);
        }
        let offered = &self.offered[card];
        Ok((offered.sections.clone(), offered.held.reference()))
    }

    /// The round is over: nobody needs its model.
    pub(super) fn end(&mut self) {
        self.model = None;
        self.offered.clear();
    }
}
