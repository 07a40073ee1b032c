//! What an agent tells whoever watches it.

use std::{fmt, path::PathBuf, time::Duration};

use selvedge_protocols::{Rejection, Width, message::Task};

/// A moment of an agent's work; its text is for a person.
#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    /// It has joined a run.
    Joined {
        /// The run's name.
        name: String,
        /// How many rounds it has.
        rounds: u32,
        /// How many examples this client trains on.
        examples: usize,
    },
    /// A file of what it keeps is damaged; it goes on with an older one.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
        /// Of which round is the newest that is whole.
        newest: u32,
    },
    /// It begins to do what it was asked.
    Begun {
        /// The round.
        round: u32,
        /// What it was asked.
        task: Task,
        /// How much of the model it is given.
        width: Width,
    },
    /// Its update is ready to be fetched.
    Offered {
        /// The round.
        round: u32,
        /// How large it is.
        bytes: u64,
    },
    /// Its update was taken in.
    Accepted {
        /// The round.
        round: u32,
    },
    /// Its update was not taken in.
    Rejected {
        /// The round.
        round: u32,
        /// Why.
        reason: Rejection,
    },
    /// What came of its work is dropped: the coordinator has gone on without it.
    Dropped {
        /// The round.
        round: u32,
    },
    /// It could not do what it was asked.
    Failed {
        /// The round.
        round: u32,
        /// Why.
        reason: String,
    },
    /// It has written the final model.
    ModelKept {
        /// The file.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
    },
    /// The final model was to be kept, but there is none to be had.
    NoModel {
        /// Why.
        reason: String,
    },
    /// There is no connection; it will try again.
    Lost {
        /// Why.
        error: String,
        /// After this time.
        pause: Duration,
    },
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { name, rounds, examples } => {
                write!(f, "joined {name:?}: {rounds} rounds; {examples} examples here")
            }
            Self::Damaged { path, detail, newest } => write!(
                f,
                "{}: is not what this client keeps in this run ({detail}); it goes on with what it has of round {newest}",
                path.display()
            ),
            Self::Begun { round, task, width } => {
                let doing = match task {
                    Task::Train => "training",
                    Task::Calibrate => "calibrating",
                    Task::Evaluate => "evaluating",
                };
                write!(f, "round {round}: {doing}")?;
                match *width == Width::WHOLE {
                    true => Ok(()),
                    false => write!(f, " a sub-model of width {width}"),
                }
            }
            Self::Offered { round, bytes } => {
                write!(f, "round {round}: update of {bytes} bytes is ready")
            }
            Self::Accepted { round } => write!(f, "round {round}: update accepted"),
            Self::Rejected { round, reason } => {
                write!(f, "round {round}: update rejected: {reason}")
            }
            Self::Dropped { round } => write!(
                f,
                "round {round}: the result is dropped, the coordinator has gone on without it"
            ),
            Self::Failed { round, reason } => write!(f, "round {round}: failed: {reason}"),
            Self::ModelKept { path, bytes } => write!(f, "{}: the final model, {bytes} bytes", path.display()),
            Self::NoModel { reason } => write!(f, "no final model is kept: {reason}"),
            Self::Lost { error, pause } => {
                write!(f, "{error}; trying again in {:.1} s", pause.as_secs_f64())
            }
        }
    }
}
