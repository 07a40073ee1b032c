//! What moves the model once a round's updates are one: the algorithm's server half, then the server steps of the
//! description, in order. A new step is a new file and a line in the list below.

use std::sync::Arc;

use selvedge_models::Weights;

use crate::{
    Broadcast, Context, Memory, Metrics, Occasion, Vectors,
    aggregation::{Aggregate, Coverage},
    algorithm::Algorithm,
    choice::{Choice, choices},
    vectors::{Named, Vector},
};

choices! {
    dyn ServerStep, "server step":
    sgd::Sgd = "sgd",
    adam::Adam = "adam",
    yogi::Yogi = "yogi",
}

/// One of the steps by which the model moves, in the order of `[[server]]`.
///
/// Implementations are the settings themselves, read from an entry of `[[server]]`.
pub trait ServerStep: Send + Sync {
    /// Changes what the parameters are to become. `x` are those that the round began with; `next` is what the aggregate,
    /// and the steps before this one, have made of them: without any step the model becomes the aggregate. What the step
    /// keeps from round to round is `memory`.
    fn step(&self, x: &[f32], next: &mut [f32], memory: &mut Vectors, context: &mut Context<'_>);

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// What the coordinator holds between rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// The global model.
    pub weights: Arc<Weights>,
    /// What the algorithm's server half and the server steps keep.
    pub memory: Arc<Memory>,
}

impl From<Weights> for ServerState {
    fn from(weights: Weights) -> Self {
        Self {
            weights: Arc::new(weights),
            memory: Arc::default(),
        }
    }
}

/// The name under which the algorithm keeps things, on the server and on clients.
pub const ALGORITHM: &str = "algorithm";

impl ServerState {
    /// Whether no value is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.weights.is_finite() && self.memory.is_finite()
    }

    /// What `algorithm` sends to the clients of a round.
    pub fn broadcast(&self, algorithm: &dyn Algorithm) -> Broadcast {
        let kept = self.memory.of(ALGORITHM);
        let vector = |&(name, shape): &Named| {
            let values = kept?.get(name)?.to_vec();
            Some((name, Vector { shape, values }))
        };
        Broadcast {
            weights: self.weights.clone(),
            vectors: algorithm.broadcast_vectors().iter().filter_map(vector).collect(),
        }
    }

    /// What becomes of the state by what a round's updates came to. What nobody trained stays as it was, bit for bit, also
    /// where a step would move it (moments decay).
    #[must_use]
    pub fn moved(
        &self,
        algorithm: &dyn Algorithm,
        steps: &[Choice<dyn ServerStep>],
        mut aggregate: Aggregate,
        coverage: &Coverage,
        occasion: &Occasion<'_>,
        metrics: &mut Metrics,
    ) -> Self {
        let mut memory = Memory::clone(&self.memory);
        let context = &mut occasion.context(ALGORITHM, metrics);
        algorithm.server(&self.weights, &mut aggregate, memory.of_mut(ALGORITHM), context);
        let mut weights = aggregate.weights;
        let of_algorithm = algorithm.server_steps();
        for (at, step) in of_algorithm.iter().chain(steps).enumerate() {
            let component = format!("server.{at}");
            let context = &mut occasion.context(component.as_str(), metrics);
            let vectors = memory.of_mut(&component);
            step.step(&self.weights.parameters, &mut weights.parameters, vectors, context);
        }
        coverage.restore(&mut weights, &self.weights);
        for (component, vectors) in memory.iter_mut() {
            coverage.restore_vectors(vectors, self.memory.of(component));
        }
        Self {
            weights: Arc::new(weights),
            memory: Arc::new(memory),
        }
    }
}

/// The problem of a setting that is not above 0.
fn positive(key: &'static str, value: f32) -> Option<(&'static str, String)> {
    (!(value > 0.0 && value.is_finite())).then(|| (key, format!("{value} is not above 0")))
}

/// The problem of a decay that is not in [0, 1).
fn decay(key: &'static str, value: f32) -> Option<(&'static str, String)> {
    (!(0.0..1.0).contains(&value)).then(|| (key, format!("{value} is not in [0, 1)")))
}
