//! An update comes in: pulled from the client, checked, opened.

use std::sync::Arc;

use bytes::Bytes;
use selvedge_protocols::{
    Update,
    sections::{packed_bytes, unpack},
    update::{Rejection, SealedUpdate, TrainingReport},
    wire::{BlobReference, Link, Partial, WireError, pull},
};
use tokio::task::spawn_blocking;

use crate::engine::Inspector;

/// An update that a client holds ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) report: TrainingReport,
    pub(super) blob: BlobReference,
}

/// What came of a reception.
#[derive(Debug)]
pub(super) enum Received {
    /// The update, or why it is not to be had.
    Whole(Result<Update, Rejection>),
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

/// Pulls the rest of an update and opens it.
pub(super) async fn receive(
    link: Link,
    mut partial: Partial,
    report: TrainingReport,
    inspector: Arc<Inspector>,
) -> Received {
    let pulled = match pull(&link, &mut partial).await {
        Ok(bytes) => Ok(bytes),
        Err(error) => match rejection(&error) {
            Some(reason) => Err(reason),
            None => {
                // Whatever stopped it, a new connection is the remedy; this one may be dead already.
                link.close("a transfer was broken off; connect again").await;
                return Received::Broken(partial);
            }
        },
    };
    drop(partial);
    let open = move |bytes: Bytes| {
        let sections = unpack(inspector.expected(), &bytes);
        let sections = sections.ok_or_else(|| {
            Rejection::WrongSize(format!("{} bytes cannot be what was assigned", bytes.len()))
        })?;
        inspector.open(SealedUpdate { report, sections })
    };
    let opened = match pulled {
        Ok(bytes) => spawn_blocking(move || open(bytes))
            .await
            .unwrap_or_else(|error| Err(Rejection::TransferFailed(error.to_string()))),
        Err(reason) => Err(reason),
    };
    Received::Whole(opened)
}

/// What the client did wrong; `None` when the connection failed.
fn rejection(error: &WireError) -> Option<Rejection> {
    match error {
        WireError::BlobTooShort { .. } | WireError::BlobTooLong { .. } => {
            Some(Rejection::WrongSize(error.to_string()))
        }
        WireError::ClosedHere { .. } => None,
        error if error.is_transient() => None,
        error => Some(Rejection::TransferFailed(error.to_string())),
    }
}
