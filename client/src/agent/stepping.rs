//! The steps of a round, for a client whose model is cut: what the front has to say goes out, what the coordinator answers
//! comes in.

use std::sync::Arc;

use bytes::Bytes;
use selvedge_protocols::{
    LocalError,
    split::FromServer,
    wire::{Link, Steps, WireError, open_steps},
};

use super::{outcome::Outcome, run::Run};
use crate::{Front, Said};

/// How the steps of a round ended.
pub(super) enum Stepped {
    /// All were made; or the model cannot be run, and why, for a person.
    Ended(Result<Outcome, String>),
    /// The connection was lost: they can go on with the next one.
    Broken(Box<Front>, WireError),
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
            Said::Finished => {
                let finished = front.finish();
                let outcome = finished.map(|(sealed, kept)| Outcome::trained(&sealed, Some(kept)));
                return Stepped::Ended(outcome.map_err(|error| error.to_string()));
            }
        }
        let (message, payload) = match reader.read(|_: &FromServer| limit).await {
            Ok(step) => step,
            Err(error) => return Stepped::Broken(front, error),
        };
        let stepping = run.clone();
        let heard = run.thread.run(move || {
            let said = front.hear(stepping.holding.share(), message, &payload)?;
            Ok::<_, LocalError>((front, said))
        });
        (front, said) = match heard.await {
            Ok(Ok(heard)) => heard,
            Ok(Err(error)) => return Stepped::Ended(Err(error.to_string())),
            Err(error) => return Stepped::Ended(Err(format!("training ended unexpectedly: {error}"))),
        };
    }
}
