//! The steps of a round, for a client whose model is cut: what the front has to say goes out, what the coordinator answers
//! comes in.

use std::sync::Arc;

use bytes::Bytes;
use selvedge_protocols::{
    LocalError,
    split::FromServer,
    wire::{Link, Steps, WireError, open_steps},
};
use tokio::task::spawn_blocking;

use super::run::Run;
use crate::{Front, Said};

/// How the steps of a round ended.
pub(super) enum Stepped {
    /// All were made.
    Finished(Box<Front>),
    /// The connection was lost: they can go on with the next one.
    Broken(Box<Front>, WireError),
    /// The model cannot be run; why, for a person.
    Failed(String),
}

/// Makes the steps of a round on a stream of their own.
pub(super) async fn step(run: Arc<Run>, link: Link, mut front: Box<Front>) -> Stepped {
    let limit = run.description.largest_step();
    let Steps { mut reader, mut writer } = match open_steps(&link).await {
        Ok(steps) => steps,
        Err(error) => return Stepped::Broken(front, error),
    };
    let mut said = front.enter();
    loop {
        match said {
            Said::Message(message, payload) => {
                if let Err(error) = writer.write(&message, Bytes::from(payload)).await {
                    return Stepped::Broken(front, error);
                }
            }
            Said::Nothing => {}
            Said::Finished => return Stepped::Finished(front),
        }
        let (message, payload) = match reader.read(|_: &FromServer| limit).await {
            Ok(step) => step,
            Err(error) => return Stepped::Broken(front, error),
        };
        let run = run.clone();
        let heard = spawn_blocking(move || {
            let said = front.hear(run.holding.share(), message, &payload)?;
            Ok::<_, LocalError>((front, said))
        });
        (front, said) = match heard.await {
            Ok(Ok(heard)) => heard,
            Ok(Err(error)) => return Stepped::Failed(error.to_string()),
            Err(error) => return Stepped::Failed(format!("training ended unexpectedly: {error}")),
        };
    }
}
