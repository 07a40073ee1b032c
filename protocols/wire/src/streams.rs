//! The streams that the peer opens beside the control stream: blobs are answered, steps are
//! handed on.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use quinn::{RecvStream, SendStream, VarInt};
use tokio::{sync::mpsc::Sender, task::JoinSet, time::timeout};

use super::{
    blob::{BlobStore, transfer},
    endpoint::Link,
    error::{Explain, WireError},
    frame::StreamKind,
    peer::Peer,
    quic_settings::STREAMS_MAX,
    steps::Steps,
};

// Why a stream is reset.
pub(super) const RESET_NOT_HELD: VarInt = VarInt::from_u32(1);
pub(super) const RESET_BAD_REQUEST: VarInt = VarInt::from_u32(2);
pub(super) const RESET_ABANDONED: VarInt = VarInt::from_u32(3);
pub(super) const RESET_STEPS_REFUSED: VarInt = VarInt::from_u32(4);

/// The sending half of a stream. Resets it when dropped before its end: left to itself it would be
/// finished, as if all had been sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) stream: SendStream,
    /// What to reset it with; `None` when it may end here.
    pub(super) reset: Option<VarInt>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(code) = self.reset {
            let _ = self.stream.reset(code); // Fails only if the stream is already gone.
        }
    }
}

/// Whoever takes the steps of a link.
struct Taker {
    sender: Sender<Steps>,
    /// The number of the newest stream handed on: QUIC numbers them in the order of opening.
    newest: Mutex<u64>,
}

/// Serves the streams that the peer opens until the link ends, and returns why it did.
///
/// Requests for blobs are answered from `store`. Streams of [`Steps`] go to `steps`, and never an
/// older one after a newer: whoever receives them keeps the last and drops those before. One for
/// which there is no room in the channel within the idle limit is refused, and all are where
/// `steps` is `None`.
///
/// At most `STREAMS_MAX` blobs are under way or streams waiting for room; these end with this
/// future. Steps that were handed on do not.
pub async fn serve_streams(link: &Link, store: &BlobStore, steps: Option<Sender<Steps>>) -> WireError {
    match serve(link, store, steps).await {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

async fn serve(link: &Link, store: &BlobStore, steps: Option<Sender<Steps>>) -> Result<Infallible, WireError> {
    let taker = steps.map(|sender| {
        Arc::new(Taker {
            sender,
            newest: Mutex::new(0),
        })
    });
    let mut served = JoinSet::new();
    loop {
        let (send, receive) = link
            .connection()
            .accept_bi()
            .await
            .map_err(|error| error.explain(&link.as_peer().label))?;
        // QUIC's stream limit bounds what the peer can open; this bounds what runs.
        while served.try_join_next().is_some() {}
        if served.len() >= STREAMS_MAX as usize {
            served.join_next().await;
        }
        let (peer, store, taker) = (link.as_peer().clone(), store.clone(), taker.clone());
        served.spawn(async move {
            let send = Outgoing {
                stream: send,
                reset: Some(RESET_ABANDONED),
            };
            if let Err(error) = answer(&peer, &store, taker.as_deref(), send, receive).await {
                tracing::debug!(peer = %peer.label, %error, "a stream was not served to its end");
            }
        });
    }
}

async fn answer(
    peer: &Peer,
    store: &BlobStore,
    taker: Option<&Taker>,
    mut send: Outgoing,
    mut receive: RecvStream,
) -> Result<(), WireError> {
    send.reset = Some(RESET_BAD_REQUEST);
    match StreamKind::read(peer, &mut receive).await? {
        StreamKind::Blob => transfer(peer, store, &mut send, receive).await,
        StreamKind::Steps => {
            send.reset = Some(RESET_STEPS_REFUSED);
            hand_on(peer, taker, send, receive).await;
            Ok(())
        }
        StreamKind::Control => Err(peer.breaks("it opened a second control stream")),
    }
}

async fn hand_on(peer: &Peer, taker: Option<&Taker>, mut send: Outgoing, mut receive: RecvStream) {
    let place = match taker {
        Some(taker) => timeout(peer.idle, taker.sender.reserve())
            .await
            .ok()
            .and_then(Result::ok)
            .map(|room| (room, &taker.newest)),
        None => None,
    };
    let Some((room, newest)) = place else {
        let _ = receive.stop(RESET_STEPS_REFUSED); // Fails only if the stream is already gone.
        return;
    };
    let number = receive.id().index();
    // Held while it is handed on, so that no older one can come in between.
    let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
    if *newest <= number {
        *newest = number;
        send.reset = None;
        room.send(Steps::new(peer, send, receive));
    } else {
        send.reset = Some(RESET_ABANDONED);
    }
}
