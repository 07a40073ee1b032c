//! One connection: who it is, what it says, what it is told.

use std::convert::Infallible;

use bytes::Bytes;
use selvedge_protocols::{
    ClientName, Rejection, Resources,
    message::{FINAL_MODEL_WITHIN, ToClient, ToCoordinator},
    split::{FromClient, FromServer},
    wire::{
        BlobStore, Caller, Control, FrameReader, FrameWriter, Limits, Link, StepReader, StepWriter, Steps, WireError,
        serve_streams,
    },
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

/// Steps' messages that may wait for a client: it is told one at a time, and at most that it was left out of some.
const STEPS_TOLD: usize = 8;

/// A client that is connected, as the driver holds it. When it is dropped, the client is told what is still queued, and
/// the connection ends.
#[derive(Debug)]
pub(super) struct Session {
    /// Tells a client's connections apart.
    pub(super) number: u64,
    pub(super) link: Link,
    /// Whether it wants the final model.
    pub(super) keeps_model: bool,
    pub(super) told: Sender<ToClient>,
    /// What it is told in its steps, with payloads.
    pub(super) steps: Sender<(FromServer, Bytes)>,
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
    /// It says something in its steps.
    Stepped(ClientName, u64, FromClient, Bytes),
    /// What it says cannot be of its steps.
    Misstepped(ClientName, u64, Rejection),
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
    /// The most bytes of a step's payload; 0 when the run has no steps.
    pub(super) largest_step: u64,
    pub(super) signals: Sender<Signal>,
}

impl Hosting {
    /// The life of a connection. The permit is given back once it is clear who this is.
    pub(super) async fn host(self, arrival: Caller, permit: OwnedSemaphorePermit) {
        let (client, (resources, keeps_model), link, control) = match self.greet(arrival).await {
            Ok(joined) => joined,
            Err(reason) => return self.signal(Signal::TurnedAway(reason)).await,
        };
        drop(permit);
        let (told, queue) = mpsc::channel(TOLD);
        let (steps, step_queue) = mpsc::channel(STEPS_TOLD);
        let (opened, streams) = mpsc::channel(1);
        let opened = (self.largest_step > 0).then_some(opened);
        let session = Session {
            number: self.number,
            link: link.clone(),
            keeps_model,
            told,
            steps,
            receiving: None,
        };
        self.signal(Signal::Joined(client.clone(), resources, session)).await;
        let Control { reader, writer } = control;
        let End { for_good, reason } = select! {
            end = self.listen(&client, reader) => end,
            end = self.tell(&link, writer, queue, keeps_model) => end,
            error = serve_streams(&link, &self.store, opened) => error.into(),
            end = self.step(&client, streams, step_queue) => end,
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
    async fn greet(&self, arrival: Caller) -> Result<(ClientName, (Resources, bool), Link, Control), String> {
        let address = arrival.address();
        let turned_away = |reason: String| format!("{address} was turned away: {reason}");
        let completed = arrival.complete().await;
        let (link, mut control) = completed.map_err(|error| turned_away(error.to_string()))?;
        let joined = match ClientName::new(&link.peer().name) {
            Err(error) => Err(error.to_string()),
            Ok(client) => match timeout(self.limits.idle, control.reader.read()).await {
                Err(_) => Err("it did not say that it joins".into()),
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(ToCoordinator::Join {
                    software,
                    resources,
                    keeps_model,
                })) => {
                    tracing::info!(%client, %address, software, ?resources, "joined");
                    Ok((client, (resources, keeps_model)))
                }
                Ok(Ok(_)) => Err("its first message was not that it joins".into()),
            },
        };
        match joined {
            Ok((client, joined)) => Ok((client, joined, link, control)),
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
    async fn tell(
        &self,
        link: &Link,
        mut writer: FrameWriter,
        mut queue: Receiver<ToClient>,
        keeps_model: bool,
    ) -> End {
        while let Some(message) = queue.recv().await {
            if let Err(error) = writer.write(&message).await {
                return error.into();
            }
        }
        let limit = match keeps_model {
            true => FINAL_MODEL_WITHIN.max(self.limits.connect),
            false => self.limits.connect,
        };
        match timeout(limit, link.closed()).await {
            Ok(error) => error.into(),
            Err(_) => End {
                for_good: false,
                reason: "there is nothing more to say".into(),
            },
        }
    }

    /// Passes steps on, both ways. Of several streams the client has opened the last one counts.
    async fn step(
        &self,
        client: &ClientName,
        mut streams: Receiver<Steps>,
        mut queue: Receiver<(FromServer, Bytes)>,
    ) -> End {
        let mut current: Option<Steps> = None;
        loop {
            let Some(Steps { reader, writer }) = &mut current else {
                match streams.recv().await {
                    Some(steps) => current = Some(steps),
                    // This run has no steps, or the connection is about to end.
                    None => std::future::pending().await,
                }
                continue;
            };
            current = select! {
                error = self.hear_steps(client, reader) => {
                    if let Some(reason) = misstep(&error) {
                        self.signal(Signal::Misstepped(client.clone(), self.number, reason)).await;
                    }
                    None
                }
                ended = tell_steps(writer, &mut queue) => match ended {
                    Ok(()) => std::future::pending().await,
                    // The client has to open another.
                    Err(_) => None,
                },
                Some(steps) = streams.recv() => Some(steps),
            };
        }
    }

    async fn hear_steps(&self, client: &ClientName, reader: &mut StepReader) -> WireError {
        loop {
            let limit = |message: &FromClient| match message {
                FromClient::Enter { .. } => 0,
                FromClient::Send { .. } => self.largest_step,
            };
            match reader.read(limit).await {
                Ok((message, payload)) => {
                    self.signal(Signal::Stepped(client.clone(), self.number, message, payload))
                        .await;
                }
                Err(error) => return error,
            }
        }
    }

    async fn signal(&self, signal: Signal) {
        // Fails only once the driver has ended, and with it the run.
        let _ = self.signals.send(signal).await;
    }
}

async fn tell_steps(writer: &mut StepWriter, queue: &mut Receiver<(FromServer, Bytes)>) -> Result<(), WireError> {
    while let Some((message, payload)) = queue.recv().await {
        writer.write(&message, payload).await?;
    }
    Ok(())
}

/// What the client did wrong; `None` when its stream has just ended.
fn misstep(error: &WireError) -> Option<Rejection> {
    match error {
        WireError::PayloadTooLarge { .. } | WireError::FrameTooLarge { .. } => {
            Some(Rejection::WrongSize(error.to_string()))
        }
        WireError::Malformed { .. } => Some(Rejection::WrongShape(error.to_string())),
        _ => None,
    }
}
