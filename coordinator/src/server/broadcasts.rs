//! What clients may fetch.

use std::sync::Arc;

use selvedge_protocols::{
    Broadcast,
    sections::SectionHeader,
    wire::{BlobReference, BlobStore, Held},
};

use super::ServerError;

/// This round's broadcast, packed once for all. Only those who were told its hash can ask for it.
pub(super) struct Broadcasts {
    store: BlobStore,
    offered: Option<Offered>,
}

struct Offered {
    broadcast: Arc<Broadcast>,
    sections: Vec<SectionHeader>,
    held: Held,
}

impl Default for Broadcasts {
    fn default() -> Self {
        Self {
            store: BlobStore::new(u64::MAX), // It holds one broadcast.
            offered: None,
        }
    }
}

impl Broadcasts {
    pub(super) fn store(&self) -> BlobStore {
        self.store.clone()
    }

    /// What a client is told, so that it can fetch `broadcast`.
    pub(super) fn offer(
        &mut self,
        broadcast: &Arc<Broadcast>,
    ) -> Result<(Vec<SectionHeader>, BlobReference), ServerError> {
        let offered = match self.offered.take() {
            Some(offered) if Arc::ptr_eq(&offered.broadcast, broadcast) => offered,
            _ => Offered {
                broadcast: broadcast.clone(),
                sections: broadcast.headers(),
                held: self.store.hold(broadcast.pack().into())?,
            },
        };
        let offered = self.offered.insert(offered);
        Ok((offered.sections.clone(), offered.held.reference()))
    }

    /// The round is over: nobody needs its broadcast.
    pub(super) fn end(&mut self) {
        self.offered = None;
    }
}
