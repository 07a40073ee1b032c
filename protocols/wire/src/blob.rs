//! Tensors as blobs: named by their hash, pulled by whoever wants them, from either end.
//!
//! The receiver opens a stream, writes [`StreamKind::Blob`] and one frame `(hash, offset)`; the
//! holder answers with the raw bytes from that offset to the end. A holder that cannot answer
//! resets the stream with a code. There is no other framing, so nothing is copied on the holder's
//! side, and QUIC's flow control lets the receiver set the pace.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use blake3::Hasher;
use bytes::Bytes;
use quinn::{ReadError, RecvStream};
use serde::{Deserialize, Serialize};

use super::{
    endpoint::Link,
    error::{Explain, WireError},
    frame::{FrameReader, StreamKind, frame},
    peer::Peer,
    streams::{Outgoing, RESET_ABANDONED, RESET_BAD_REQUEST, RESET_NOT_HELD},
};

/// Bytes hashed at a time while they come in: enough for blake3's widest kernels, short enough
/// not to hold up the runtime.
const HASHED_AT_ONCE: usize = 1 << 20;
/// Bytes handed to QUIC at a time; the idle limit is on each.
const SENT_AT_ONCE: usize = 256 << 10;

/// Names a blob and says how large it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobReference {
    /// blake3 of the content.
    pub hash: [u8; 32],
    /// Size in bytes.
    pub bytes: u64,
}

impl BlobReference {
    /// The reference of a content. Takes its time with large ones (about 0.3 ms a MB).
    pub fn of(content: &[u8]) -> Self {
        Self {
            hash: *blake3::hash(content).as_bytes(),
            bytes: content.len() as u64,
        }
    }
}

impl fmt::Display for BlobReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = blake3::Hash::from(self.hash).to_hex();
        write!(f, "the blob {} of {} bytes", &hex[..16], self.bytes)
    }
}

impl fmt::Debug for BlobReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Serialize, Deserialize)]
struct Request {
    hash: [u8; 32],
    offset: u64,
}

/// The blobs that one side offers. Cheap to clone; clones share the content.
///
/// Whoever knows a blob's hash may pull it from a store that is being served, so serve a client
/// only a store with what that client may have. `Bytes` are shared between stores at no cost.
#[derive(Clone, Debug)]
pub struct BlobStore(Arc<Mutex<Shelf>>);

#[derive(Debug)]
struct Shelf {
    capacity: u64,
    held: u64,
    /// Content and the number of [`Held`] that keep it.
    blobs: HashMap<[u8; 32], (Bytes, usize)>,
}

impl BlobStore {
    /// An empty store that never holds more than `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self(Arc::new(Mutex::new(Shelf {
            capacity,
            held: 0,
            blobs: HashMap::new(),
        })))
    }

    /// Offers a content for as long as the returned guard lives. Equal contents are held once.
    ///
    /// # Errors
    /// [`WireError::StoreFull`].
    pub fn hold(&self, content: Bytes) -> Result<Held, WireError> {
        let reference = BlobReference::of(&content);
        let mut shelf = self.shelf();
        let (capacity, held) = (shelf.capacity, shelf.held);
        if let Some((_, holders)) = shelf.blobs.get_mut(&reference.hash) {
            *holders += 1;
        } else if reference.bytes > capacity - held {
            return Err(WireError::StoreFull {
                blob: reference,
                held,
                capacity,
            });
        } else {
            shelf.held += reference.bytes;
            shelf.blobs.insert(reference.hash, (content, 1));
        }
        Ok(Held {
            store: self.clone(),
            reference,
        })
    }

    /// The content with this hash, if it is held.
    pub fn get(&self, hash: &[u8; 32]) -> Option<Bytes> {
        let shelf = self.shelf();
        shelf.blobs.get(hash).map(|(content, _)| content.clone())
    }

    /// The bytes held now.
    pub fn held_bytes(&self) -> u64 {
        self.shelf().held
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Every change of the shelf is complete before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one blob in its [`BlobStore`]; dropping it takes the blob out (transfers under way still
/// complete).
#[derive(Debug)]
#[must_use = "the blob is offered only as long as this lives"]
pub struct Held {
    store: BlobStore,
    reference: BlobReference,
}

impl Held {
    /// What to tell the peer so that it can pull the blob.
    pub fn reference(&self) -> BlobReference {
        self.reference
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut shelf = self.store.shelf();
        if let Some((_, holders)) = shelf.blobs.get_mut(&self.reference.hash) {
            *holders -= 1;
            if *holders == 0 {
                shelf.blobs.remove(&self.reference.hash);
                shelf.held -= self.reference.bytes;
            }
        }
    }
}

/// A blob on its way in: what has come so far outlives the link it came on.
#[derive(Debug)]
pub struct Partial {
    reference: BlobReference,
    size: usize,
    /// Empty before the first byte, then of the blob's size.
    buffer: Vec<u8>,
    filled: usize,
    /// Boxed: it is two kilobytes, and partials are passed about.
    hasher: Box<Hasher>,
    hashed: usize,
}

impl Partial {
    /// Prepares to receive a blob of at most `limit` bytes. Allocates nothing yet.
    ///
    /// # Errors
    /// [`WireError::BlobTooLarge`].
    pub fn new(reference: BlobReference, limit: u64) -> Result<Self, WireError> {
        let too_large = WireError::BlobTooLarge { blob: reference, limit };
        match usize::try_from(reference.bytes) {
            Ok(size) if reference.bytes <= limit => Ok(Self {
                reference,
                size,
                buffer: Vec::new(),
                filled: 0,
                hasher: Box::new(Hasher::new()),
                hashed: 0,
            }),
            _ => Err(too_large),
        }
    }

    /// The blob that is being received.
    pub fn reference(&self) -> BlobReference {
        self.reference
    }

    /// Bytes that have come so far.
    pub fn received(&self) -> u64 {
        self.filled as u64
    }

    fn hash_what_came(&mut self) {
        self.hasher.update(&self.buffer[self.hashed..self.filled]);
        self.hashed = self.filled;
    }

    /// The whole content, checked; the partial is as new afterwards, whatever the outcome.
    fn finish(&mut self, peer: &Peer) -> Result<Bytes, WireError> {
        self.hash_what_came();
        let hash = self.hasher.finalize();
        self.hasher.reset();
        (self.filled, self.hashed) = (0, 0);
        let content = std::mem::take(&mut self.buffer);
        // Comparison of blake3 hashes takes constant time.
        if hash == blake3::Hash::from(self.reference.hash) {
            return Ok(Bytes::from(content));
        }
        Err(WireError::BlobHash {
            peer: peer.name(),
            blob: self.reference,
            got: hash.to_hex()[..16].to_owned(),
        })
    }
}

/// Pulls the rest of a blob from the peer.
///
/// After an error the partial keeps what came: pull again on a new link, and only the rest is
/// sent. (A blob whose hash is wrong starts from nothing.) May be cancelled at any time.
///
/// # Errors
/// [`WireError::BlobNotHeld`], [`WireError::BlobAbandoned`], [`WireError::BlobTooShort`],
/// [`WireError::BlobTooLong`], [`WireError::BlobHash`]; [`WireError::Stalled`] when no byte comes
/// within the idle limit; or what ended the link.
pub async fn pull(link: &Link, partial: &mut Partial) -> Result<Bytes, WireError> {
    const DOING: &str = "sending a blob";
    let peer = link.as_peer();
    let blob = partial.reference;
    let (mut send, mut receive) = peer.within(DOING, link.connection().open_bi()).await?;
    let mut request = vec![StreamKind::Blob as u8];
    request.extend(frame(
        peer,
        &Request {
            hash: blob.hash,
            offset: partial.received(),
        },
    )?);
    peer.within(DOING, send.write_all(&request)).await?;
    let _ = send.finish(); // Fails only if the stream is gone, which reading will tell.

    let explained = |error| match error {
        ReadError::Reset(RESET_NOT_HELD) => WireError::BlobNotHeld {
            peer: peer.name(),
            blob,
        },
        ReadError::Reset(RESET_BAD_REQUEST) => peer.breaks(format!("it does not understand the request for {blob}")),
        ReadError::Reset(_) => WireError::BlobAbandoned {
            peer: peer.name(),
            blob,
        },
        other => other.explain(&peer.label),
    };
    if partial.buffer.len() < partial.size {
        // Zeroed pages come from the system as they are touched, that is, as bytes arrive.
        partial.buffer = vec![0; partial.size];
    }
    loop {
        // One byte past the end is asked for as well: there must be none.
        let mut past = [0];
        let room = match partial.filled < partial.size {
            true => &mut partial.buffer[partial.filled..],
            false => &mut past,
        };
        let read = async { receive.read(room).await.map_err(explained) };
        match peer.within(DOING, read).await? {
            Some(count) if partial.filled < partial.size => partial.filled += count,
            None if partial.filled == partial.size => return partial.finish(peer),
            Some(_) => {
                return Err(WireError::BlobTooLong {
                    peer: peer.name(),
                    blob,
                });
            }
            None => {
                return Err(WireError::BlobTooShort {
                    peer: peer.name(),
                    blob,
                    got: partial.received(),
                });
            }
        }
        if partial.filled - partial.hashed >= HASHED_AT_ONCE {
            partial.hash_what_came();
        }
    }
}

/// Answers one request for a blob.
pub(super) async fn transfer(
    peer: &Peer,
    store: &BlobStore,
    answer: &mut Outgoing,
    receive: RecvStream,
) -> Result<(), WireError> {
    answer.reset = Some(RESET_BAD_REQUEST);
    let mut reader = FrameReader::new(receive, peer.clone());
    reader.begin();
    let request: Request = reader.read().await?;

    answer.reset = Some(RESET_NOT_HELD);
    let Some(mut content) = store.get(&request.hash) else {
        return Ok(());
    };

    answer.reset = Some(RESET_BAD_REQUEST);
    match usize::try_from(request.offset) {
        Ok(offset) if offset <= content.len() => content = content.slice(offset..),
        _ => return Err(peer.breaks("it asked for bytes past a blob's end")),
    }

    answer.reset = Some(RESET_ABANDONED);
    while !content.is_empty() {
        let piece = content.split_to(content.len().min(SENT_AT_ONCE));
        peer.within("taking a blob", answer.stream.write_chunk(piece)).await?;
    }
    let _ = answer.stream.finish(); // Fails only if the peer no longer wants it.
    answer.reset = None;
    Ok(())
}
