//! One connection: who it is, what it says, what it is told.

use std::convert::Infallible;

use selvedge_protocols::{
    ClientName, Resources,
    message::{ToClient, ToCoordinator},
    wire::{Arrival, BlobStore, Control, FrameReader, FrameWriter, Limits, Link, serve_streams},
};
use tokio::{
    select,
    sync::{
        OwnedSemaphorePermit,
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    time::timeout,
};

/// Messages that may wait for a client. In a round it is told three or four.
const TOLD: usize = 16;

/// A client that is connected, as the driver holds it. When it is dropped, the client is told what is still queued, and
/// the connection ends.
#[derive(Debug)]
pub(super) struct Session {
    /// Tells a client's connections apart.
    pub(super) number: u64,
    pub(super) link: Link,
    pub(super) told: Sender<ToClient>,
    /// Ends the reception of its update, when dropped.
    pub(super) receiving: Option<oneshot::Sender<Infallible>>,
}

/// What the driver hears.
#[derive(Debug)]
pub(super) enum Signal {
    /// A client has joined, on a device that has this.
    Joined(ClientName, Resources, Session),
    /// It says something; never `Join` or `Leave`.
    Said(ClientName, u64, ToCoordinator),
    /// Its connection ended.
    Left {
        client: ClientName,
        number: u64,
        for_good: bool,
        /// Why, for a person.
        reason: String,
    },
    /// Somebody was not let in.
    TurnedAway(String),
}

/// How a connection ended.
struct End {
    for_good: bool,
    reason: String,
}

impl<E: std::error::Error> From<E> for End {
    fn from(error: E) -> Self {
        Self {
            for_good: false,
            reason: error.to_string(),
        }
    }
}

/// What a connection needs of the server.
pub(super) struct Hosting {
    pub(super) number: u64,
    pub(super) limits: Limits,
    pub(super) store: BlobStore,
    pub(super) signals: Sender<Signal>,
}

impl Hosting {
    /// The life of a connection. The permit is given back once it is clear who this is.
    pub(super) async fn host(self, arrival: Arrival, permit: OwnedSemaphorePermit) {
        let (client, resources, link, control) = match self.greet(arrival).await {
            Ok(joined) => joined,
            Err(reason) => return self.signal(Signal::TurnedAway(reason)).await,
        };
        drop(permit);
        let (told, queue) = mpsc::channel(TOLD);
        let session = Session {
            number: self.number,
            link: link.clone(),
            told,
            receiving: None,
        };
        self.signal(Signal::Joined(client.clone(), resources, session)).await;
        let Control { reader, writer } = control;
        let End { for_good, reason } = select! {
            end = self.listen(&client, reader) => end,
            end = self.tell(&link, writer, queue) => end,
            error = serve_streams(&link, &self.store, None) => error.into(),
        };
        link.close(&reason).await;
        self.signal(Signal::Left {
            client,
            number: self.number,
            for_good,
            reason,
        })
        .await;
    }

    /// Verifies who has come: a certificate with a client's name, then `Join`.
    async fn greet(&self, arrival: Arrival) -> Result<(ClientName, Resources, Link, Control), String> {
        let address = arrival.address();
        let turned_away = |reason: String| format!("{address} was turned away: {reason}");
        let completed = arrival.complete().await;
        let (link, mut control) = completed.map_err(|error| turned_away(error.to_string()))?;
        let joined = match ClientName::new(&link.peer().name) {
            Err(error) => Err(error.to_string()),
            Ok(client) => match timeout(self.limits.idle, control.reader.read()).await {
                Err(_) => Err("it did not say that it joins".into()),
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(ToCoordinator::Join { software, resources })) => {
                    tracing::info!(%client, %address, software, ?resources, "joined");
                    Ok((client, resources))
                }
                Ok(Ok(_)) => Err("its first message was not that it joins".into()),
            },
        };
        match joined {
            Ok((client, resources)) => Ok((client, resources, link, control)),
            Err(reason) => {
                link.close(&reason).await;
                Err(turned_away(reason))
            }
        }
    }

    /// Passes on what the client says, until it leaves or says what cannot be understood.
    async fn listen(&self, client: &ClientName, mut reader: FrameReader) -> End {
        loop {
            let message = match reader.read().await {
                Ok(message) => message,
                Err(error) => return error.into(),
            };
            match message {
                ToCoordinator::Leave => {
                    return End {
                        for_good: true,
                        reason: "it leaves".into(),
                    };
                }
                ToCoordinator::Join { .. } => {
                    return End {
                        for_good: false,
                        reason: "it joins a second time on one connection".into(),
                    };
                }
                message => {
                    self.signal(Signal::Said(client.clone(), self.number, message)).await;
                }
            }
        }
    }

    /// Tells the client what the driver has for it. After the last, it is for the client to end the connection: if it
    /// were ended here, what is still under way would be lost.
    async fn tell(&self, link: &Link, mut writer: FrameWriter, mut queue: Receiver<ToClient>) -> End {
        while let Some(message) = queue.recv().await {
            if let Err(error) = writer.write(&message).await {
                return error.into();
            }
        }
        match timeout(self.limits.connect, link.closed()).await {
            Ok(error) => error.into(),
            Err(_) => End {
                for_good: false,
                reason: "there is nothing more to say".into(),
            },
        }
    }

    async fn signal(&self, signal: Signal) {
        // Fails only once the driver has ended, and with it the run.
        let _ = self.signals.send(signal).await;
    }
}
