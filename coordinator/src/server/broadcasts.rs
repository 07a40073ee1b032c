//! What clients may fetch.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use selvedge_protocols::{
    Card,
    sections::SectionHeader,
    wire::{BlobReference, BlobStore, Held},
};

use super::ServerError;
use crate::engine::GlobalModel;

/// The parts of the models that are in use, each packed once for all who have it. Only those who were told a part's hash can
/// ask for it.
pub(super) struct Broadcasts {
    store: BlobStore,
    models: Vec<Model>,
}

/// A model, and what is offered of it for as long as the engine has it.
struct Model {
    model: Weak<GlobalModel>,
    offered: BTreeMap<Card, Offered>,
}

struct Offered {
    sections: Vec<SectionHeader>,
    held: Held,
}

impl Default for Broadcasts {
    fn default() -> Self {
        Self {
            store: BlobStore::new(u64::MAX), // It holds the parts of models that the engine holds too.
            models: Vec::new(),
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
        self.models.retain(|known| known.model.strong_count() > 0);
        let is_it = |known: &Model| std::ptr::eq(known.model.as_ptr(), Arc::as_ptr(model));
        let at = self.models.iter().position(is_it).unwrap_or_else(|| {
            self.models.push(Model {
                model: Arc::downgrade(model),
                offered: BTreeMap::new(),
            });
            self.models.len() - 1
        });
        let of_model = &mut self.models[at].offered;
        if !of_model.contains_key(card) {
            let broadcast = model.broadcast(&*model.part(Some(card))?);
            let offered = Offered {
                sections: broadcast.headers(),
                held: self.store.hold(broadcast.pack().into())?,
            };
            of_model.insert(card.clone(), offered);
        }
        let offered = &of_model[card];
        Ok((offered.sections.clone(), offered.held.reference()))
    }

    /// The round is over: nobody needs its models.
    pub(super) fn end(&mut self) {
        self.models.clear();
    }
}
