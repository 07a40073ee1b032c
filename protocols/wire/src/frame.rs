//! Control messages on a stream: a little-endian u32 of length, then the [codec]'s
//! bytes.

use quinn::{RecvStream, SendStream};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, timeout_at};

use super::{
    codec,
    error::{Explain, WireError},
    peer::Peer,
};

/// The largest frame, in bytes, without its length. A run's description fits; a tensor does not,
/// and is not meant to.
pub const FRAME_BYTES_MAX: usize = codec::BYTES_MAX;

const HEADER: usize = size_of::<u32>();

/// What a stream is for: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamKind {
    /// Frames both ways, for as long as the link lasts.
    Control = 1,
    /// One [request](super::blob) and the bytes that answer it.
    Blob = 2,
    /// [Steps](super::steps) both ways, for as long as both sides want.
    Steps = 3,
}

impl StreamKind {
    /// Reads a stream's first byte.
    pub(super) async fn read(peer: &Peer, receive: &mut RecvStream) -> Result<Self, WireError> {
        let mut kind = [0];
        let read = peer.within("opening a stream", receive.read(&mut kind));
        let read = read.await?.map(|_| kind[0]);
        [Self::Control, Self::Blob, Self::Steps]
            .into_iter()
            .find(|kind| read == Some(*kind as u8))
            .ok_or_else(|| peer.breaks("it opened a stream of no known kind"))
    }

    /// Reads a stream's first byte, which must announce this kind.
    pub(super) async fn expect(self, peer: &Peer, receive: &mut RecvStream) -> Result<(), WireError> {
        match Self::read(peer, receive).await? {
            kind if kind == self => Ok(()),
            kind => Err(peer.breaks(format!("{self:?} was due, its stream is of the kind {kind:?}"))),
        }
    }
}

/// Reads messages from a stream.
#[derive(Debug)]
pub struct FrameReader {
    stream: RecvStream,
    peer: Peer,
    /// Header and payload of the frame being read; the first `filled` bytes have come.
    buffer: Vec<u8>,
    filled: usize,
    deadline: Option<Instant>,
}

impl FrameReader {
    pub(super) fn new(stream: RecvStream, peer: Peer) -> Self {
        Self {
            stream,
            peer,
            buffer: Vec::new(),
            filled: 0,
            deadline: None,
        }
    }

    /// The next message.
    ///
    /// Waits as long as the link lives (a peer that falls silent is found by the link itself), but
    /// a frame that has begun must be whole within the idle limit. May be cancelled at any time
    /// and called again: no byte is lost.
    ///
    /// # Errors
    /// [`WireError::FrameTooLarge`] before anything is allocated, [`WireError::Malformed`] (the
    /// next message can still be read), [`WireError::Stalled`], [`WireError::ClosedByPeer`], or
    /// what ended the link.
    pub async fn read<T: DeserializeOwned>(&mut self) -> Result<T, WireError> {
        self.whole().await?;
        let message = self.decode();
        self.next();
        message
    }

    /// Waits until the frame at hand is whole. May be cancelled as [`read`](Self::read) may.
    pub(super) async fn whole(&mut self) -> Result<(), WireError> {
        loop {
            let size = match self.buffer.first_chunk::<HEADER>() {
                Some(header) if self.filled >= HEADER => {
                    let size = HEADER + self.checked_length(u32::from_le_bytes(*header))?;
                    if self.filled == size {
                        return Ok(());
                    }
                    size
                }
                _ => HEADER,
            };
            self.buffer.resize(size, 0);
            self.fill().await?;
        }
    }

    fn checked_length(&self, length: u32) -> Result<usize, WireError> {
        match usize::try_from(length).unwrap_or(usize::MAX) {
            bytes if bytes > FRAME_BYTES_MAX => Err(WireError::FrameTooLarge {
                peer: self.peer.name(),
                bytes,
                limit: FRAME_BYTES_MAX,
            }),
            bytes => Ok(bytes),
        }
    }

    /// Decodes the frame at hand, which must be [whole](Self::whole).
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        codec::decode(&self.buffer[HEADER..]).map_err(|source| WireError::Malformed {
            peer: self.peer.name(),
            source,
        })
    }

    /// Makes room for the next frame.
    pub(super) fn next(&mut self) {
        self.buffer.clear();
        self.filled = 0;
        self.deadline = None;
    }

    /// Reads some of the raw bytes that follow the frame at hand.
    pub(super) async fn read_raw(&mut self, room: &mut [u8], deadline: Instant) -> Result<usize, WireError> {
        let read = timeout_at(deadline, self.stream.read(room))
            .await
            .map_err(|_| self.peer.stalled("sending a payload"))?;
        let read = read.map_err(|error| error.explain(&self.peer.label))?;
        read.ok_or_else(|| WireError::ClosedByPeer {
            peer: self.peer.name(),
            reason: "it finished its stream in the middle of a payload".to_owned(),
        })
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    async fn fill(&mut self) -> Result<(), WireError> {
        let read = self.stream.read(&mut self.buffer[self.filled..]);
        let read = match self.deadline {
            None => read.await,
            Some(deadline) => timeout_at(deadline, read)
                .await
                .map_err(|_| self.peer.stalled("sending a frame"))?,
        };
        match read.map_err(|error| error.explain(&self.peer.label))? {
            Some(count) => self.filled += count,
            None => {
                return Err(WireError::ClosedByPeer {
                    peer: self.peer.name(),
                    reason: "it finished its stream of messages".to_owned(),
                });
            }
        }
        self.begin();
        Ok(())
    }

    /// Starts the clock of the frame at hand. A stream that is opened to say one thing starts it
    /// before the first byte.
    pub(super) fn begin(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.peer.idle);
    }
}

/// Writes messages to a stream.
#[derive(Debug)]
pub struct FrameWriter {
    stream: SendStream,
    peer: Peer,
}

impl FrameWriter {
    pub(super) fn new(stream: SendStream, peer: Peer) -> Self {
        Self { stream, peer }
    }

    /// Sends a message. Not to be cancelled: half a frame cannot be taken back.
    ///
    /// # Errors
    /// [`WireError::Unsendable`] (nothing was sent), [`WireError::Stalled`] when the peer takes
    /// nothing within the idle limit, or what ended the link.
    pub async fn write<T: Serialize + ?Sized>(&mut self, message: &T) -> Result<(), WireError> {
        let frame = frame(&self.peer, message)?;
        self.peer
            .within("being sent a message", self.stream.write_all(&frame))
            .await
    }
}

/// A message with its length before it.
pub(super) fn frame<T: Serialize + ?Sized>(peer: &Peer, message: &T) -> Result<Vec<u8>, WireError> {
    let payload = codec::encode(message).map_err(|source| WireError::Unsendable {
        peer: peer.name(),
        source,
    })?;
    let length = payload.len() as u32; // The codec's limit is far below.
    Ok([&length.to_le_bytes()[..], &payload].concat())
}
