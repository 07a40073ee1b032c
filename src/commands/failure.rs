//! What a command fails with.

use std::{error::Error, fmt};

use selvedge_client::ClientError;
use selvedge_coordinator::{CheckpointError, ResultsError, ServerError};
use selvedge_data::DataError;
use selvedge_models::ModelError;
use selvedge_protocols::{LocalError, description::DescriptionError, wire::WireError};
use selvedge_simulations::SimulationError;

/// An error for a person: what was wrong, under a code that has a line in `docs/errors.md`.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    error: Box<dyn Error>,
}

impl Failure {
    /// Something is wrong with a file or the system that no typed error covers.
    pub(crate) fn system(error: impl Into<Box<dyn Error>>) -> Self {
        Self {
            code: "E-SYSTEM",
            error: error.into(),
        }
    }

    /// The run went through its rounds, but none of them moved the model.
    pub(crate) fn nothing_applied() -> Self {
        Self {
            code: "E-RUN-NOTHING",
            error: "no round moved the model; rounds.jsonl and the report say why, round by round".into(),
        }
    }

    /// The run ended before its time.
    pub(crate) fn too_few_clients() -> Self {
        Self {
            code: "E-RUN-CLIENTS",
            error: "there were too few clients for `network.wait_seconds`; what was done until then is saved".into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error [{}]: {}", self.code, self.error)?;
        let mut said = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let reason = error.to_string();
            if !said.contains(&reason) {
                write!(f, ": {reason}")?;
                said.push_str(&reason);
            }
            cause = error.source();
        }
        Ok(())
    }
}

/// Errors that know their own code.
macro_rules! coded {
    ($($Error:ty),*) => {
        $(impl From<$Error> for Failure {
            fn from(error: $Error) -> Self {
                Self { code: error.code(), error: error.into() }
            }
        })*
    };
}

coded!(
    CheckpointError,
    DescriptionError,
    DataError,
    ResultsError,
    WireError,
    ClientError
);

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self {
            code: "E-MODEL",
            error: error.into(),
        }
    }
}

impl From<LocalError> for Failure {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::Model(error) => error.into(),
            LocalError::Data(error) => error.into(),
            LocalError::Abandoned | LocalError::Diverged => Self {
                code: "E-INTERNAL",
                error: error.into(),
            },
        }
    }
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Local(error) => error.into(),
            SimulationError::Description(error) => error.into(),
            SimulationError::Thread(_) => Self::system(error),
            SimulationError::Partition { .. } => Self {
                code: "E-RUN-RANGE",
                error: error.into(),
            },
            SimulationError::NoShares => Self {
                code: "E-RUN-CAPACITIES",
                error: error.into(),
            },
            SimulationError::Stalled | SimulationError::WorkerEnded => Self {
                code: "E-INTERNAL",
                error: error.into(),
            },
        }
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Wire(error) => error.into(),
            ServerError::Local(error) => error.into(),
            ServerError::Description(error) => error.into(),
            ServerError::TooLong(_) => Self {
                code: "E-RUN-RANGE",
                error: error.into(),
            },
            _ => Self {
                code: "E-INTERNAL",
                error: error.into(),
            },
        }
    }
}
