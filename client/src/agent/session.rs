//! One connection to the coordinator: what is heard on it and said.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use selvedge_protocols::{
    ClientName,
    message::{MOST_RESUMABLE, ToClient, ToCoordinator},
    wire::{BlobReference, Control, FrameWriter, Link, WireError, serve_streams},
};
use tokio::{select, time::timeout};

use super::{
    Agent, AgentError, Moment, assignment::Assignment, event::Event, final_model, patience::Patience, run::Run,
    work::Work,
};

const SOFTWARE: &str = concat!("selvedge ", env!("CARGO_PKG_VERSION"));
/// How long the coordinator may take to let this client join. Its own limits are known only afterwards.
const IDLE: Duration = Duration::from_secs(30);
/// How long the coordinator is given to take note that this client leaves.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a connection ended without an error.
pub(super) enum Parted {
    /// The run is over, for this reason.
    Finished(String),
    /// The agent was stopped.
    Stopped,
}

/// A connection, and who is on this end of it.
pub(super) struct Session<'a> {
    pub(super) agent: &'a Agent,
    pub(super) client: &'a ClientName,
    pub(super) link: &'a Link,
    pub(super) patience: &'a mut Patience,
    pub(super) observe: &'a mut (dyn FnMut(Moment) + Send),
}

impl Session<'_> {
    /// Joins, and does what the coordinator says until one of the two ends it. `work` is what goes on from connection
    /// to connection.
    pub(super) async fn attend(
        mut self,
        mut control: Control,
        work: &mut Option<Work>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Parted, AgentError> {
        let join = ToCoordinator::Join {
            software: SOFTWARE.into(),
            resources: self.agent.resources(),
            keeps_model: self.agent.keep_model.is_some(),
        };
        control.writer.write(&join).await?;
        let welcome = select! {
            welcome = timeout(IDLE, control.reader.read()) => welcome,
            () = stop.as_mut() => return Ok(Parted::Stopped),
        };
        let welcome = welcome.unwrap_or_else(|_| {
            Err(WireError::Stalled {
                peer: self.agent.coordinator.clone(),
                doing: "letting us join",
                after: IDLE,
            })
        })?;
        let (run, description, beginning) = match welcome {
            ToClient::Welcome {
                run,
                description,
                beginning,
            } => (run, description, beginning),
            ToClient::TurnedAway { reason } => return Err(AgentError::TurnedAway(reason)),
            ToClient::Finished { reason, model } => {
                return self.finish(work.as_ref().map(Work::what_stays), reason, model).await;
            }
            other => return Err(out_of_place(&other)),
        };
        // What was begun before the connection was lost, or new work.
        let begun = work.take().filter(|work| work.run() == run);
        let begun = match begun {
            Some(begun) => begun,
            None => {
                match Work::begin(self.agent, self.client, self.link, (run, beginning), &description) {
                    Ok(begun) => {
                        begun.damaged().for_each(&mut *self.observe);
                        begun
                    }
                    Err(error) => {
                        // It cannot take part, so nobody need wait for it.
                        let _ = leave(self.link, &mut control.writer).await;
                        return Err(error);
                    }
                }
            }
        };
        let work = work.insert(begun);
        let is_anew = work.meet(beginning);
        (self.observe)(work.attach(self.link));
        work.hear(Event::Connected { is_anew }, self.observe)?;
        let parted = self.converse(control, work, stop).await;
        self.patience.renew();
        parted
    }

    /// The run is over: keeps its final model, if that is wanted.
    async fn finish(
        &mut self,
        run: Option<Arc<Run>>,
        reason: String,
        model: Option<BlobReference>,
    ) -> Result<Parted, AgentError> {
        if let Some(file) = &self.agent.keep_model {
            let moment = match (run, model) {
                (Some(run), Some(blob)) => {
                    let bytes = final_model::keep(self.link, blob, run.parts.layout(), file).await?;
                    let path = file.clone();
                    Moment::ModelKept { path, bytes }
                }
                (Some(run), None) if !run.description.has_one_model() => Moment::NoModel {
                    reason: "in this run clients have parts of the model of their own, and there is no one model"
                        .into(),
                },
                _ => Moment::NoModel {
                    reason: "the coordinator offers none to this client".into(),
                },
            };
            (self.observe)(moment);
        }
        Ok(Parted::Finished(reason))
    }

    async fn converse(
        &mut self,
        control: Control,
        work: &mut Work,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Parted, AgentError> {
        let Control { mut reader, mut writer } = control;
        let store = work.store();
        let mut serving = pin!(serve_streams(self.link, &store, None));
        loop {
            let event = select! {
                // What is done already comes before what is new.
                biased;
                () = stop.as_mut() => {
                    leave(self.link, &mut writer).await?;
                    return Ok(Parted::Stopped);
                }
                done = work.done() => done,
                message = reader.read() => match message? {
                    ToClient::Finished { reason, model } => return self.finish(Some(work.what_stays()), reason, model).await,
                    ToClient::TurnedAway { reason } => {
                        return Err(AgentError::TurnedAway(reason));
                    }
                    ToClient::Task { round, task, card, sections, blob } => Event::Asked {
                        front_is_kept: work.front_is_kept(round),
                        assignment: Assignment { round, task, card, sections, blob, kept: work.kept(round, task) },
                    },
                    ToClient::Accepted { round, resumable } if resumable.len() <= MOST_RESUMABLE => {
                        Event::Accepted { round, resumable }
                    }
                    ToClient::Rejected { round, reason } => Event::Rejected { round, reason },
                    other @ (ToClient::Welcome { .. } | ToClient::Accepted { .. }) => return Err(out_of_place(&other)),
                },
                error = &mut serving => return Err(error.into()),
            };
            if let Some(message) = work.hear(event, self.observe)? {
                writer.write(&message).await?;
            }
        }
    }
}

/// Says that this client leaves. The coordinator hangs up when it has read that.
async fn leave(link: &Link, writer: &mut FrameWriter) -> Result<(), AgentError> {
    writer.write(&ToCoordinator::Leave).await?;
    let _ = timeout(FAREWELL, link.closed()).await;
    Ok(())
}

fn out_of_place(message: &ToClient) -> AgentError {
    let mut message = format!("{message:?}");
    message.truncate(message.floor_char_boundary(80));
    AgentError::OutOfPlace(message)
}
