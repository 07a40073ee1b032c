//! What an algorithm is: a client half and a server half.

use std::collections::BTreeMap;

use selvedge_data::DataError;
use selvedge_models::{ModelError, OptimiserDescription, Weights, all_finite};

use crate::{
    Broadcast,
    aggregation::{Aggregate, Aggregator, WeightedMean},
};

/// Vectors that an algorithm names and keeps or sends beside the model, each as long as the model's parameters:
/// control variates, moments, ….
pub type Vectors = BTreeMap<String, Vec<f32>>;

/// What the coordinator holds between rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// The global model.
    pub weights: Weights,
    /// The algorithm's own vectors, by name.
    pub vectors: Vectors,
}

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
    /// The vectors that the algorithm names in [`Algorithm::update_vectors`].
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

/// What the server half may know of the federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Federation {
    /// How many clients there are, selected or not.
    pub clients: usize,
}

/// A federated algorithm: what each client does in a round, how updates are combined, and how the global model moves.
///
/// Implementations are the settings themselves (`mu`, `beta1`, …), read from `[algorithm]` of the description.
pub trait Algorithm: Send + Sync {
    /// The client half: from what was broadcast, and what this client kept from its last round, to its update.
    ///
    /// # Errors
    /// When local training fails.
    fn client(
        &self,
        broadcast: &Broadcast,
        kept: &mut Vectors,
        local: &mut dyn LocalSteps,
    ) -> Result<Update, LocalError>;

    /// The server half: moves the state by what the clients' updates came to.
    fn server(&self, state: &mut ServerState, aggregate: Aggregate, federation: Federation);

    /// How updates are combined. The weighted mean, unless the algorithm says otherwise.
    fn aggregator(&self) -> Box<dyn Aggregator> {
        Box::new(WeightedMean::default())
    }

    /// Which of the server's vectors clients receive with the model.
    fn broadcast_vectors(&self) -> &'static [&'static str] {
        &[]
    }

    /// Which vectors every update carries beside the model.
    fn update_vectors(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether clients keep vectors of the algorithm's from round to round.
    fn keeps(&self) -> bool {
        false
    }

    /// What is wrong with the settings, or with the local optimiser beside them, if anything: (key under `[algorithm]`,
    /// what it must be).
    fn problem(&self, optimiser: &OptimiserDescription) -> Option<(&'static str, String)> {
        let _ = optimiser;
        None
    }
}

impl ServerState {
    /// Whether no value is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.weights.is_finite() && self.vectors.values().all(|values| all_finite(values))
    }

    /// What `algorithm` sends to the clients of a round.
    pub fn broadcast(&self, algorithm: &dyn Algorithm) -> Broadcast {
        let vectors = algorithm
            .broadcast_vectors()
            .iter()
            .filter_map(|&name| Some((name.to_owned(), self.vectors.get(name)?.clone())))
            .collect();
        Broadcast {
            weights: self.weights.clone(),
            vectors,
        }
    }
}
