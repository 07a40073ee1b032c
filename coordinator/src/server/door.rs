//! The open door: lets in whoever has a certificate, each on a task of its own.

use std::sync::Arc;

use selvedge_protocols::wire::{BlobStore, Limits, Listener};
use tokio::{
    sync::{Semaphore, mpsc::Sender},
    task::JoinSet,
};

use super::session::{Hosting, Signal};

/// Connections that may be in the making at a time. Others wait at the door, and are refused by QUIC when too many do.
const ARRIVALS: usize = 256;

pub(super) struct Door {
    pub(super) listener: Arc<Listener>,
    pub(super) limits: Limits,
    /// What clients may fetch.
    pub(super) store: BlobStore,
    /// The most bytes of a step's payload; 0 when the run has no steps.
    pub(super) largest_step: u64,
    pub(super) signals: Sender<Signal>,
}

impl Door {
    /// Keeps the door. All connections end with this future.
    pub(super) async fn keep(self) {
        let arrivals = Arc::new(Semaphore::new(ARRIVALS));
        let mut sessions = JoinSet::new();
        for number in 0u64.. {
            let Ok(permit) = arrivals.clone().acquire_owned().await else {
                return;
            };
            let Some(arrival) = self.listener.accept().await else {
                return;
            };
            while sessions.try_join_next().is_some() {}
            let hosting = Hosting {
                number,
                limits: self.limits,
                store: self.store.clone(),
                largest_step: self.largest_step,
                signals: self.signals.clone(),
            };
            sessions.spawn(hosting.host(arrival, permit));
        }
    }
}
