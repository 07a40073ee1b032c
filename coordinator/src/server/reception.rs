//! An update comes in: pulled from the client, checked, opened.

use std::{convert::Infallible, sync::Arc};

use selvedge_protocols::{
    Rejection,
    message::Task,
    sections::{packed_bytes, unpack},
    update::{SealedUpdate, TrainingReport},
    wire::{BlobReference, Link, Partial, WireError, pull},
};
use tokio::{
    select,
    sync::oneshot,
    task::{JoinError, spawn_blocking},
};

use crate::engine::{Inspector, Opened};

/// An update that a client holds ready.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) round: u32,
    pub(super) task: Task,
    pub(super) report: TrainingReport,
    pub(super) blob: BlobReference,
}

/// What came of a reception.
#[derive(Debug)]
pub(super) enum Received {
    /// The update, or why it is not to be had.
    Whole(Result<Opened, Rejection>),
    /// The connection ended before all was there: the rest can be fetched from the client's next one.
    Broken(Partial),
}

/// Prepares to receive what was offered.
///
/// # Errors
/// When it is larger than what was assigned.
pub(super) fn prepare(offer: &Offer, inspector: &Inspector) -> Result<Partial, Rejection> {
    let limit = packed_bytes(inspector.expected()).unwrap_or(0);
    Partial::new(offer.blob, limit).map_err(|error| Rejection::WrongSize(error.to_string()))
}

/// An update that is being received.
pub(super) struct Reception {
    pub(super) link: Link,
    /// Ready when the client is gone, or has connected anew, which may be before the connection is seen to have ended.
    pub(super) ended: oneshot::Receiver<Infallible>,
    pub(super) report: TrainingReport,
    pub(super) inspector: Arc<Inspector>,
}

impl Reception {
    /// Pulls the rest of the update and opens it.
    pub(super) async fn receive(self, mut partial: Partial) -> Received {
        let pulled = select! {
            pulled = pull(&self.link, &mut partial) => pulled,
            _ = self.ended => return Received::Broken(partial),
        };
        let bytes = match pulled {
            Ok(bytes) => bytes,
            Err(error) => match rejection(&error) {
                Some(reason) => return Received::Whole(Err(reason)),
                None => {
                    // Whatever stopped it, a new connection is the remedy; this one may be dead already.
                    let reason = "a transfer was broken off; connect again";
                    self.link.close(reason).await;
                    return Received::Broken(partial);
                }
            },
        };
        let (report, inspector) = (self.report, self.inspector);
        let opened = spawn_blocking(move || open(report, &bytes, &inspector)).await;
        let ended = |error: JoinError| Err(Rejection::TransferFailed(error.to_string()));
        Received::Whole(opened.unwrap_or_else(ended))
    }
}

fn open(report: TrainingReport, bytes: &[u8], inspector: &Inspector) -> Result<Opened, Rejection> {
    let wrong_size = || {
        let bytes = bytes.len();
        Rejection::WrongSize(format!("{bytes} bytes cannot be what was assigned"))
    };
    let sections = unpack(inspector.expected(), bytes).ok_or_else(wrong_size)?;
    inspector.open(SealedUpdate { report, sections })
}

/// What the client did wrong; `None` when the connection failed.
fn rejection(error: &WireError) -> Option<Rejection> {
    match error {
        WireError::BlobTooShort { .. } | WireError::BlobTooLong { .. } => Some(Rejection::WrongSize(error.to_string())),
        WireError::ClosedHere { .. } => None,
        error if error.is_transient() => None,
        error => Some(Rejection::TransferFailed(error.to_string())),
    }
}
