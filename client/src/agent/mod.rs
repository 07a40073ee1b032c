//! The agent on a device: joins a federation, trains what it is told on its own examples, and comes back when the
//! connection is lost.

mod assignment;
mod connections;
mod duty;
mod event;
mod final_model;
mod moment;
mod outcome;
mod patience;
mod run;
mod session;
mod stepping;
mod training_thread;
mod work;

pub use moment::Moment;

use std::{path::PathBuf, time::Duration};

use selvedge_models::ModelError;
use selvedge_protocols::{
    InvalidName, Registry, Resources,
    description::DescriptionError,
    wire::{Credentials, WireError},
};

use crate::{
    holding::{HoldingError, Supply},
    kept::KeptError,
};

/// A client that is about to take part.
#[derive(Clone)]
pub struct Agent {
    /// The coordinator, as `HOST:PORT`.
    pub coordinator: String,
    /// The client's certificate, which holds its name.
    pub credentials: Credentials,
    /// Its examples.
    pub supply: Supply,
    /// What the coordinator's description may choose beside what comes with Selvedge.
    pub registry: Registry,
    /// Bytes of memory for training, if it is to be held within a limit.
    pub memory: Option<u64>,
    /// Floating-point operations a second in training, if the coordinator is to know.
    pub speed: Option<f64>,
    /// The folder for what the algorithm keeps on the client from round to round, and after the run; without one it is kept
    /// in memory.
    pub state: Option<PathBuf>,
    /// The file for the final model, if it is to be kept.
    pub keep_model: Option<PathBuf>,
    /// How long it goes on trying to reach a coordinator before it gives up.
    pub give_up_after: Duration,
}

/// How an agent's work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is over, for this reason.
    Finished(String),
    /// It was stopped, and has told the coordinator that it leaves.
    Stopped,
}

/// Why an agent gave up.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The certificate's name is not a client's.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The coordinator cannot be worked with, and trying again would not help.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The coordinator does not want this client.
    #[error("the coordinator turned this client away: {0}")]
    TurnedAway(String),
    /// There was no coordinator for too long.
    #[error("no coordinator for {} s, the time after which to give up; last: {last}", after.as_secs_f64())]
    NoCoordinator {
        /// For how long.
        after: Duration,
        /// What came of the last attempt.
        last: WireError,
    },
    /// The coordinator's description cannot be understood.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The model cannot be built.
    #[error("the model of the run: {0}")]
    Model(#[from] ModelError),
    /// The client has no examples for this run.
    #[error(transparent)]
    Holding(#[from] HoldingError),
    /// What the client keeps cannot be read or written.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The run is over, but its final model could not be fetched or written.
    #[error("the run is over, but its final model cannot be kept: {0}; the coordinator has it too")]
    FinalModel(String),
    /// The coordinator says something out of place.
    #[error("the coordinator breaks the protocol: {0}")]
    OutOfPlace(String),
}

impl AgentError {
    /// A short, stable name for the kind of error; the book has a line on each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "E-WIRE-NAME",
            Self::Wire(error) => error.code(),
            Self::OutOfPlace(_) => "E-WIRE-PROTOCOL",
            Self::TurnedAway(_) => "E-CLIENT-TURNED-AWAY",
            Self::NoCoordinator { .. } => "E-CLIENT-NO-COORDINATOR",
            Self::Description(error) => error.code(),
            Self::Model(_) => "E-MODEL",
            Self::Holding(_) => "E-CLIENT-EXAMPLES",
            Self::Kept(_) => "E-CLIENT-STATE",
            Self::FinalModel(_) => "E-CLIENT-MODEL",
        }
    }
}

impl Agent {
    /// What the coordinator is told of this device.
    fn resources(&self) -> Resources {
        let examples = match &self.supply {
            Supply::Own(dataset) => Some(dataset.len() as u64),
            // Its share is known once the description is.
            Supply::Dealt(_) => None,
        };
        Resources {
            memory: self.memory,
            speed: self.speed,
            examples,
        }
    }
}
