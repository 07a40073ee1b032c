//! Local training: the steps that an algorithm may run on a client, and what comes of them.

use selvedge_data::DataError;
use selvedge_models::{ModelError, Weights};

use crate::Vectors;

/// What local training gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The model after the last step.
    pub weights: Weights,
    /// How many examples the client holds for training.
    pub examples: u64,
    /// How many steps it made.
    pub steps: u64,
    /// The loss, averaged over all examples of all steps; `None` when there was no step.
    pub loss: Option<f64>,
}

/// What a client returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// What local training gave.
    pub trained: Trained,
    /// The vectors that the algorithm names in [`Algorithm::update_vectors`](crate::Algorithm::update_vectors).
    pub vectors: Vectors,
}

impl From<Trained> for Update {
    fn from(trained: Trained) -> Self {
        Self {
            trained,
            vectors: Vectors::new(),
        }
    }
}

/// Why a client cannot train or evaluate.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The model does not run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The examples are not what the loss needs.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The values that were trained are no numbers any more.
    #[error("training has diverged: its values are not finite; a lower learning rate may help")]
    Diverged,
    /// The run has ended meanwhile.
    #[error("local training was abandoned: the run is over")]
    Abandoned,
}

/// Changes a gradient before the optimiser applies it: `(parameters, gradient)`.
pub type Correction<'a> = &'a mut dyn FnMut(&[f32], &mut [f32]);

/// The local steps that a client half may run. How many, on which batches and with which optimiser is the
/// description's affair, not the algorithm's.
pub trait LocalSteps {
    /// Trains from `start` on the client's own examples, with `correction` on every gradient.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    fn train(&mut self, start: &Weights, correction: Option<Correction<'_>>) -> Result<Trained, LocalError>;

    /// The learning rate of the local optimiser.
    fn learning_rate(&self) -> f64;
}
