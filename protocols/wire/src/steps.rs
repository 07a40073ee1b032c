//! Steps: small messages with raw bytes after them, both ways on one long-lived stream.
//!
//! When a model is split, every training step sends activations up and their gradients down. As
//! blobs each would cost a hash and a request; a stream of steps is opened once by the client and
//! carries them one after the other. Each step is a [frame](super::frame), a little-endian u64 of
//! payload length, and the payload.
//!
//! QUIC's flow control holds a sender back when its peer does not read: some megabytes are under
//! way at most. Both sides therefore read while they write. Steps share the link fairly with blobs,
//! and control messages go before both.

use bytes::Bytes;
use quinn::{RecvStream, WriteError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    endpoint::Link,
    error::{Explain, WireError},
    frame::{FrameReader, StreamKind, frame},
    peer::Peer,
    streams::{Outgoing, RESET_ABANDONED, RESET_STEPS_REFUSED},
};

const LENGTH: usize = size_of::<u64>();

/// A stream of steps, both ways. Dropping a half ends that direction, and the peer is told.
#[derive(Debug)]
pub struct Steps {
    /// Steps from the peer.
    pub reader: StepReader,
    /// Steps to the peer.
    pub writer: StepWriter,
}

impl Steps {
    pub(super) fn new(peer: &Peer, send: Outgoing, receive: RecvStream) -> Self {
        Self {
            reader: StepReader {
                frames: FrameReader::new(receive, peer.clone()),
                length: [0; LENGTH],
                payload: Vec::new(),
                filled: 0,
                deadline: None,
            },
            writer: StepWriter {
                stream: send,
                peer: peer.clone(),
            },
        }
    }
}

/// Opens a stream of steps to the peer, who gets it from
/// [`serve_streams`](super::serve_streams).
///
/// Does not wait for the peer to take it: if it does not, the first read or write tells.
///
/// # Errors
/// [`WireError::Stalled`] when the peer allows no further stream within the idle limit, or what
/// ended the link.
pub async fn open_steps(link: &Link) -> Result<Steps, WireError> {
    const DOING: &str = "letting us open a stream";
    let peer = link.as_peer();
    let (stream, receive) = peer.within(DOING, link.connection().open_bi()).await?;
    let mut send = Outgoing {
        stream,
        reset: Some(RESET_ABANDONED),
    };
    let kind = [StreamKind::Steps as u8];
    peer.within(DOING, send.stream.write_all(&kind)).await?;
    send.reset = None;
    Ok(Steps::new(peer, send, receive))
}

/// Reads steps from a stream.
#[derive(Debug)]
pub struct StepReader {
    /// Keeps the message of the step at hand until its payload is whole.
    frames: FrameReader,
    length: [u8; LENGTH],
    /// Empty before the length is known and accepted, then of that length.
    payload: Vec<u8>,
    /// Bytes of length and payload that have come.
    filled: usize,
    /// By when the next of them must come.
    deadline: Option<Instant>,
}

impl StepReader {
    /// The next step: its message and its payload.
    ///
    /// `limit` says how many bytes of payload the message may have, at most. Choose it as what the
    /// message needs: so much is set aside as soon as the peer announces it.
    ///
    /// Waits for a step as long as the link lives (a peer that falls silent is found by the link
    /// itself). Once it has begun, its message must be whole within the idle limit, and no silence
    /// in its payload may be longer. May be cancelled at any time and called again: no byte is
    /// lost. The message is then decoded, and `limit` asked, anew.
    ///
    /// # Errors
    /// [`WireError::PayloadTooLarge`] before any of the payload is allocated,
    /// [`WireError::FrameTooLarge`], [`WireError::Malformed`], [`WireError::Stalled`],
    /// [`WireError::StepsRefused`], [`WireError::ClosedByPeer`] when the peer has dropped its writer,
    /// or what ended the link. After any error the stream is of no more use: drop it.
    pub async fn read<T: DeserializeOwned>(&mut self, limit: impl FnOnce(&T) -> u64) -> Result<(T, Bytes), WireError> {
        self.frames.whole().await?;
        let message = self.frames.decode()?;
        let limit = limit(&message);
        while self.filled < LENGTH {
            self.fill().await?;
        }
        let size = self.checked_size(limit)?;
        if self.payload.len() < size {
            // Zeroed pages come from the system as they are touched, that is, as bytes arrive.
            self.payload = vec![0; size];
        }
        while self.filled < LENGTH + size {
            self.fill().await?;
        }
        self.frames.next();
        (self.filled, self.deadline) = (0, None);
        Ok((message, Bytes::from(std::mem::take(&mut self.payload))))
    }

    fn checked_size(&self, limit: u64) -> Result<usize, WireError> {
        let bytes = u64::from_le_bytes(self.length);
        // No allocation can be larger than an isize says.
        match isize::try_from(bytes) {
            Ok(size) if bytes <= limit => Ok(size.unsigned_abs()),
            _ => Err(WireError::PayloadTooLarge {
                peer: self.frames.peer().name(),
                bytes,
                limit,
            }),
        }
    }

    async fn fill(&mut self) -> Result<(), WireError> {
        let idle = self.frames.peer().idle;
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + idle);
        let room = match self.filled.checked_sub(LENGTH) {
            Some(filled) => &mut self.payload[filled..],
            None => &mut self.length[self.filled..],
        };
        self.filled += self.frames.read_raw(room, deadline).await?;
        self.deadline = None;
        Ok(())
    }
}

/// Writes steps to a stream.
#[derive(Debug)]
pub struct StepWriter {
    /// To be reset when a step is under way, or was when it failed.
    stream: Outgoing,
    peer: Peer,
}

impl StepWriter {
    /// Sends a step: a message, and a payload that is not copied.
    ///
    /// Returns when QUIC has taken all of it, which is not yet that the peer has read it. Not to be
    /// cancelled, as half a step cannot be taken back: the stream is then of no more use.
    ///
    /// # Errors
    /// [`WireError::Unsendable`] (nothing was sent, and other steps can be);
    /// [`WireError::Stalled`] when the peer takes nothing within the idle limit,
    /// [`WireError::StepsRefused`], [`WireError::ClosedByPeer`] when the peer has dropped its reader,
    /// [`WireError::ClosedHere`] when an earlier write failed or was cancelled, or what ended the
    /// link.
    pub async fn write<T: Serialize + ?Sized>(&mut self, message: &T, payload: Bytes) -> Result<(), WireError> {
        let mut head = frame(&self.peer, message)?;
        head.extend((payload.len() as u64).to_le_bytes());
        if self.stream.reset.is_some() {
            return Err(WireError::ClosedHere { peer: self.peer.name() });
        }
        self.stream.reset = Some(RESET_ABANDONED);
        let mut rest = [Bytes::from(head), payload];
        while rest.iter().any(|piece| !piece.is_empty()) {
            let some = self.stream.stream.write_chunks(&mut rest);
            let some = async { some.await.map_err(|error| explained(&self.peer, error)) };
            self.peer.within("taking a step", some).await?;
        }
        self.stream.reset = None;
        Ok(())
    }
}

fn explained(peer: &Peer, error: WriteError) -> WireError {
    match error {
        WriteError::Stopped(RESET_STEPS_REFUSED) => WireError::StepsRefused { peer: peer.name() },
        WriteError::Stopped(_) => WireError::ClosedByPeer {
            peer: peer.name(),
            reason: "it no longer reads this stream of steps".to_owned(),
        },
        other => other.explain(&peer.label),
    }
}
