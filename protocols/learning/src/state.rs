//! What the coordinator holds between rounds, and how a round moves it: the algorithm's server half, then the server steps.

use std::sync::Arc;

use selvedge_models::Weights;
use selvedge_words::Choice;

use crate::{
    Algorithm, Broadcast, Memory, Metrics, Occasion, Precision,
    aggregation::{Aggregate, Coverage},
    server::ServerStep,
    vectors::{Named, Vector},
};

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
            precision: Precision::F32,
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
