//! What coordinator and clients say to each other. Tensors do not travel in messages: a message names them by hash
//! and size, and the receiver fetches them on a stream of their own.

use std::time::Duration;

use selvedge_learning::{
    sections::SectionHeader,
    update::{MOST_EXAMPLES, TrainingReport},
};
use selvedge_parts::Card;
use selvedge_wire::BlobReference;
use selvedge_words::Rejection;
use serde::{Deserialize, Serialize};

use crate::Resources;

/// From how many rounds a coordinator may begin anew.
pub const MOST_RESUMABLE: usize = 4;

/// How long clients are given to fetch the final model.
pub const FINAL_MODEL_WITHIN: Duration = Duration::from_secs(120);

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The first message on a connection.
    Join {
        /// Name and version of the client's software, for the log.
        software: String,
        /// What the client's device has.
        resources: Resources,
        /// Whether it wants the final model, where the run has one.
        keeps_model: bool,
    },
    /// An update is ready to be fetched.
    Offer {
        /// The round it is for.
        round: u32,
        /// What was done for it.
        task: Task,
        /// What the client says about its training.
        report: TrainingReport,
        /// What the update's blob holds.
        sections: Vec<SectionHeader>,
        /// The update's blob.
        blob: BlobReference,
    },
    /// What evaluation on the client's own held-out examples gave.
    Evaluated {
        /// The round it is for.
        round: u32,
        /// The result.
        evaluation: Evaluation,
    },
    /// The client could not do what it was asked.
    Failed {
        /// The round it is for.
        round: u32,
        /// What it was asked.
        task: Task,
        /// Why, for a person.
        reason: String,
    },
    /// The client leaves for good.
    Leave,
}

/// What the coordinator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// The client is in.
    Welcome {
        /// Tells this run from others that the client has taken part in.
        run: String,
        /// The run's description, as TOML.
        description: String,
        /// Tells this beginning of the run from others: a coordinator may begin anew from a state that it saved.
        beginning: u64,
    },
    /// The client is not let in.
    TurnedAway {
        /// Why, for a person.
        reason: String,
    },
    /// The client is to train or to evaluate.
    Task {
        /// The round it is for.
        round: u32,
        /// What is to be done.
        task: Task,
        /// With which part of the model.
        card: Card,
        /// What the broadcast's blob holds.
        sections: Vec<SectionHeader>,
        /// The broadcast's blob.
        blob: BlobReference,
    },
    /// The update was taken in, and is the last of this client that counts: what the client keeps for the next round is now
    /// valid, and its blob can go. Round 0 says that none counts.
    Accepted {
        /// The round.
        round: u32,
        /// The rounds after which the coordinator may begin anew, at most [`MOST_RESUMABLE`]: the client keeps what it
        /// needs to go back with it.
        resumable: Vec<u32>,
    },
    /// The update was not taken in.
    Rejected {
        /// The round.
        round: u32,
        /// Why.
        reason: Rejection,
    },
    /// The run is over.
    Finished {
        /// How it ended, for a person.
        reason: String,
        /// The final model as a safetensors file, for a client that wants it; within [`FINAL_MODEL_WITHIN`] it can be
        /// fetched.
        model: Option<BlobReference>,
    },
}

/// What a client of a cohort is to do with the model it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Train it, and return an update.
    Train,
    /// Run the training examples through it, and return the moments of what its batch norms meet.
    Calibrate,
    /// Evaluate it on the examples held out, and return the counts.
    Evaluate,
}

/// Counts from which loss and accuracy can be pooled over clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How many examples were evaluated.
    pub examples: u64,
    /// On how many the model was right.
    pub correct: u64,
    /// The sum of their losses.
    pub loss: f64,
}

impl Evaluation {
    /// The share of examples on which the model was right; `None` without examples.
    pub fn accuracy(&self) -> Option<f64> {
        (self.examples > 0).then(|| self.correct as f64 / self.examples as f64)
    }

    /// The mean loss; `None` without examples.
    pub fn mean_loss(&self) -> Option<f64> {
        (self.examples > 0).then(|| self.loss / self.examples as f64)
    }

    /// Whether the counts can be true.
    pub fn is_possible(&self) -> bool {
        self.examples < MOST_EXAMPLES && self.correct <= self.examples && self.loss >= 0.0 && self.loss.is_finite()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        self.examples = self.examples.saturating_add(other.examples);
        self.correct = self.correct.saturating_add(other.correct);
        self.loss += other.loss;
    }
}
