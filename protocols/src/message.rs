//! What coordinator and clients say to each other. Tensors do not travel in messages: a message names them by hash
//! and size, and the receiver fetches them on a stream of their own.

use selvedge_models::{Layout, Weights};
use serde::{Deserialize, Serialize};

use crate::{
    ServerState,
    algorithm::{Algorithm, Broadcast, Vectors},
    sections::{Encoding, Section, SectionHeader, Values},
    update::{Rejection, TrainingReport},
    wire::BlobReference,
};

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The first message on a connection.
    Join {
        /// Name and version of the client's software, for the log.
        software: String,
    },
    /// An update is ready to be fetched.
    Offer {
        /// The round it is for.
        round: u32,
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
        /// What the broadcast's blob holds.
        sections: Vec<SectionHeader>,
        /// The broadcast's blob.
        blob: BlobReference,
    },
    /// The update was taken in: what the client keeps for the next round is now valid, and its blob can go.
    Accepted {
        /// The round.
        round: u32,
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
    },
}

/// What a client of a cohort is to do with the model it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Train it, and return an update.
    Train,
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
        self.correct <= self.examples && self.loss.is_finite()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        self.examples = self.examples.saturating_add(other.examples);
        self.correct = self.correct.saturating_add(other.correct);
        self.loss += other.loss;
    }
}

impl Broadcast {
    /// What the sections are, without their values.
    pub fn headers(&self) -> Vec<SectionHeader> {
        let header = |name: &str, values: &[f32]| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
            values: values.len() as u64,
        };
        let mut headers = vec![header("parameters", &self.weights.parameters)];
        if !self.weights.buffers.is_empty() {
            headers.push(header("buffers", &self.weights.buffers));
        }
        headers.extend(self.vectors.iter().map(|(name, values)| header(name, values)));
        headers
    }

    /// The broadcast as sections.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section::new("parameters", self.weights.parameters.clone())];
        if !self.weights.buffers.is_empty() {
            sections.push(Section::new("buffers", self.weights.buffers.clone()));
        }
        sections.extend(
            self.vectors
                .iter()
                .map(|(name, values)| Section::new(name.as_str(), values.clone())),
        );
        sections
    }

    /// The broadcast that `sections` are, for a model of this layout; `None` when they cannot be one.
    pub fn from_sections(sections: Vec<Section>, layout: &Layout, algorithm: &dyn Algorithm) -> Option<Self> {
        let mut weights = Weights {
            parameters: Vec::new(),
            buffers: Vec::new(),
        };
        let mut vectors = Vectors::new();
        for Section { name, values } in sections {
            let Values::F32(values) = values else {
                return None;
            };
            match name.as_str() {
                "parameters" => weights.parameters = values,
                "buffers" => weights.buffers = values,
                other if algorithm.broadcast_vectors().contains(&other) => drop(vectors.insert(name, values)),
                _ => return None,
            }
        }
        let parameters = layout.parameter_count();
        let fits = weights.parameters.len() == parameters
            && weights.buffers.len() == layout.buffer_count()
            && vectors.values().all(|vector| vector.len() == parameters);
        fits.then_some(Self { weights, vectors })
    }
}

impl ServerState {
    /// The state as sections, for a checkpoint.
    pub fn sections(&self) -> Vec<Section> {
        Broadcast {
            weights: self.weights.clone(),
            vectors: self.vectors.clone(),
        }
        .sections()
    }
}
