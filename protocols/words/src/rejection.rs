//! Why a client's answer does not count.

use serde::{Deserialize, Serialize};

/// Why an update or evaluation was not taken in. The text after the colon is what a person reads; the code is what is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// A value is NaN or infinite.
    #[error("a value in {0} is not finite")]
    NotFinite(String),
    /// A value of a step is larger than any can be.
    #[error("a value of a step is larger than {0:e}")]
    TooLarge(f32),
    /// A section is missing, unexpected, or of another length or encoding than assigned.
    #[error("wrong shape: {0}")]
    WrongShape(String),
    /// The bytes that came are not as many as announced.
    #[error("wrong size: {0}")]
    WrongSize(String),
    /// The report cannot be true.
    #[error("impossible report: {0}")]
    ImpossibleReport(String),
    /// The bytes are not those that were announced, or could not be fetched.
    #[error("transfer failed: {0}")]
    TransferFailed(String),
    /// The change is larger than the bound that the client was to keep.
    #[error("the change has norm {norm}, but is to be clipped to {bound}")]
    NormTooLarge {
        /// The change's Euclidean norm.
        norm: f64,
        /// The bound.
        bound: f64,
    },
    /// The client could not do what it was asked.
    #[error("the client could not: {0}")]
    ClientFailed(String),
    /// The client holds no examples.
    #[error("no examples")]
    NoExamples,
    /// The round is over, or has not begun.
    #[error("the update is for round {update}, but this is round {now}")]
    WrongRound {
        /// The update's round.
        update: u32,
        /// The current round.
        now: u32,
    },
    /// A part of a step that is not under way.
    #[error("a part of step {step}, but this is step {now}, or another part of it")]
    WrongStep {
        /// The step that it is of.
        step: u32,
        /// The step that is under way.
        now: u32,
    },
    /// The client has answered already.
    #[error("a second answer in one round")]
    Duplicate,
    /// The client was given up in this round: it was too late, away for too long, or had failed already.
    #[error("this round goes on without the client, which was given up before")]
    GivenUp,
    /// The client is not in the round's cohort.
    #[error("not selected for this round")]
    NotSelected,
    /// The update was in order, but the round did not move the model: too few clients answered, or it would have
    /// broken.
    #[error("the round did not move the model")]
    NotApplied,
    /// The deadline passed.
    #[error("nothing came before the deadline")]
    Deadline,
    /// The connection to the client was lost and not made again.
    #[error("the connection was lost")]
    Disconnected,
    /// The model has moved too often since the client was sent it.
    #[error("the model has moved {staleness} times since the client was sent it, and may have moved {most} times")]
    Stale {
        /// How often it has moved.
        staleness: u32,
        /// How often it may have.
        most: u32,
    },
}

impl Rejection {
    /// A short, stable name, under which rejections are counted.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFinite(_) => "not-finite",
            Self::TooLarge(_) => "too-large",
            Self::WrongShape(_) => "wrong-shape",
            Self::WrongSize(_) => "wrong-size",
            Self::ImpossibleReport(_) => "impossible-report",
            Self::TransferFailed(_) => "transfer-failed",
            Self::NormTooLarge { .. } => "norm-too-large",
            Self::ClientFailed(_) => "client-failed",
            Self::NoExamples => "no-examples",
            Self::WrongRound { .. } => "wrong-round",
            Self::WrongStep { .. } => "wrong-step",
            Self::Duplicate => "duplicate",
            Self::GivenUp => "given-up",
            Self::NotSelected => "not-selected",
            Self::NotApplied => "not-applied",
            Self::Deadline => "deadline",
            Self::Disconnected => "disconnected",
            Self::Stale { .. } => "stale",
        }
    }
}
