//! One connection to the coordinator: what is heard on it and said.

use std::{pin::Pin, time::Duration};

use selvedge_protocols::{
    ClientName, Description,
    message::{ToClient, ToCoordinator},
    wire::{Control, Link, serve_blobs},
};
use tokio::{select, time::timeout};

use super::{Agent, AgentError, Moment, work::Work};

const SOFTWARE: &str = concat!("selvedge ", env!("CARGO_PKG_VERSION"));
/// How long the coordinator is given to take note that this client leaves.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a connection ended without an error.
pub(super) enum Parted {
    /// The run is over, for this reason.
    Finished(String),
    /// The agent was stopped.
    Stopped,
}

/// Joins, and does what the coordinator says until one of the two ends it. `work` is what goes on from connection to
/// connection.
pub(super) async fn converse(
    agent: &Agent,
    client: &ClientName,
    link: &Link,
    control: Control,
    work: &mut Option<Work>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    observe: &mut (dyn FnMut(Moment) + Send),
) -> Result<Parted, AgentError> {
    let Control {
        mut reader,
        mut writer,
    } = control;
    let software = SOFTWARE.into();
    writer.write(&ToCoordinator::Join { software }).await?;
    let welcome = select! {
        welcome = reader.read() => welcome?,
        () = stop.as_mut() => return Ok(Parted::Stopped),
    };
    let work = match welcome {
        ToClient::Welcome { run, description } => {
            admitted(agent, client, work, run, &description, observe)?
        }
        ToClient::TurnedAway { reason } => return Err(AgentError::TurnedAway(reason)),
        ToClient::Finished { reason } => return Ok(Parted::Finished(reason)),
        other => return Err(out_of_place(&other)),
    };

    let store = work.store();
    let mut serving = Box::pin(serve_blobs(link, &store));
    loop {
        let answer = select! {
            message = reader.read() => match message? {
                ToClient::Finished { reason } => return Ok(Parted::Finished(reason)),
                ToClient::TurnedAway { reason } => return Err(AgentError::TurnedAway(reason)),
                ToClient::Task { round, task, sections, blob } => {
                    work.asked(round, task, sections, blob, link)
                }
                ToClient::Accepted { round } => {
                    work.accepted(round, observe)?;
                    None
                }
                ToClient::Rejected { round, reason } => {
                    work.rejected(round, reason, observe);
                    None
                }
                welcome @ ToClient::Welcome { .. } => return Err(out_of_place(&welcome)),
            },
            done = work.done() => work.finished(done, observe)?,
            error = &mut serving => return Err(error.into()),
            () = stop.as_mut() => {
                writer.write(&ToCoordinator::Leave).await?;
                // The coordinator hangs up when it has read that.
                let _ = timeout(FAREWELL, link.closed()).await;
                return Ok(Parted::Stopped);
            }
        };
        if let Some(answer) = answer {
            writer.write(&answer).await?;
        }
    }
}

/// The work for the run that the coordinator names: what was begun before the connection was lost, or new work.
fn admitted<'a>(
    agent: &Agent,
    client: &ClientName,
    work: &'a mut Option<Work>,
    run: String,
    description: &str,
    observe: &mut (dyn FnMut(Moment) + Send),
) -> Result<&'a mut Work, AgentError> {
    let same = work.take().filter(|work| work.run() == run);
    let mut current = match same {
        Some(same) => same,
        None => {
            let description =
                Description::parse(description, "the coordinator's description", &[])?;
            Work::begin(agent, client, run, description)?
        }
    };
    observe(current.resume());
    Ok(work.insert(current))
}

fn out_of_place(message: &ToClient) -> AgentError {
    let mut message = format!("{message:?}");
    message.truncate(message.floor_char_boundary(80));
    AgentError::OutOfPlace(message)
}
