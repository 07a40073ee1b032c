//! The wire: QUIC with certificates on both sides, control frames, blobs that are pulled, and steps.
//!
//! A [`Link`] joins a client to its coordinator. On it run three kinds of streams, told apart
//! by their first byte ([`StreamKind`]):
//!
//! - one **control** stream, opened by the client, that carries small messages both ways as
//!   [frames](frame): serde + bincode, never larger than [`FRAME_BYTES_MAX`];
//! - any number of **blob** streams, opened by whoever wants tensors: it names a blob by its hash
//!   and the bytes follow, raw. Messages carry only a [`BlobReference`];
//! - a stream of [**steps**](steps), opened by the client where a model is split: small messages
//!   with raw bytes after them, both ways, one after the other.
//!
//! [`serve_streams`] answers what the peer opens.
//!
//! Pulling by hash gives at once: resumption after a broken link (ask again, from an offset),
//! back-pressure (nothing moves until the receiver asks), and heartbeats that no model can delay.
//!
//! Every wait ends by one of the two time limits in [`Limits`].
//!
//! ```
//! use std::time::SystemTime;
//! use selvedge_wire::{Credentials, Existing, Limits, Listener, Validity, certificates::{issue, new_authority}};
//!
//! let folder = tempfile::tempdir()?;
//! let (now, hosts) = (SystemTime::now(), ["localhost".to_owned()]);
//! new_authority(folder.path(), &hosts, Validity::days(now, 30), Existing::Keep)?;
//! issue(folder.path(), "ward-3", Validity::days(now, 30), Existing::Keep)?;
//! let client = Credentials::from_folder(folder.path(), "ward-3", now)?;
//! // What a client is called, its certificate says.
//! println!("{}", client.identity());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod blob;
pub mod certificates;
pub mod codec;
pub mod endpoint;
pub mod error;
pub mod frame;
mod peer;
pub mod quic_settings;
pub mod steps;
pub mod streams;

pub use blob::{BlobReference, BlobStore, Held, Partial, pull};
pub use certificates::{Credentials, Existing, PeerIdentity, Validity};
pub use endpoint::{Caller, Control, Link, Listener, connect};
pub use error::{CertificateFault, WireError};
pub use frame::{FRAME_BYTES_MAX, FrameReader, FrameWriter, StreamKind};
pub use quic_settings::{Limits, PROTOCOL};
pub use steps::{StepReader, StepWriter, Steps, open_steps};
pub use streams::serve_streams;

#[cfg(test)]
mod tests;
