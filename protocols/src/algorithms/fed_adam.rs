//! FedAdam. Reddi et al., *Adaptive Federated Optimization*, ICLR 2021, Algorithm 2.

use selvedge_models::OptimiserDescription;
use serde::{Deserialize, Serialize};

use crate::{
    Broadcast,
    aggregation::Aggregate,
    algorithm::{Algorithm, Federation, LocalError, LocalSteps, ServerState, Update, Vectors},
};

/// FedAvg whose averaged change is a gradient to Adam on the server. As in the paper, no bias correction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FedAdam {
    /// η, the server's learning rate. Default 0.01.
    pub server_learning_rate: f32,
    /// β₁, the decay of the first moment, in [0, 1). Default 0.9.
    pub beta1: f32,
    /// β₂, the decay of the second moment, in [0, 1). Default 0.99.
    pub beta2: f32,
    /// τ, the degree of adaptivity, above 0. Default 0.001.
    pub tau: f32,
}

impl Default for FedAdam {
    fn default() -> Self {
        Self { server_learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 0.001 }
    }
}

impl Algorithm for FedAdam {
    fn client(
        &self,
        broadcast: &Broadcast,
        _kept: &mut Vectors,
        local: &mut dyn LocalSteps,
    ) -> Result<Update, LocalError> {
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    fn server(&self, state: &mut ServerState, aggregate: Aggregate, _: Federation) {
        let &Self { server_learning_rate: eta, beta1, beta2, tau } = self;
        let x = &mut state.weights.parameters;
        // m₀ = 0 and v₀ = τ²
        let mut m = state.vectors.remove("first_moment").unwrap_or_else(|| vec![0.0; x.len()]);
        let mut v = state.vectors.remove("second_moment").unwrap_or_else(|| vec![tau * tau; x.len()]);
        for (((x, mean), m), v) in x.iter_mut().zip(&aggregate.weights.parameters).zip(&mut m).zip(&mut v) {
            let delta = mean - *x;
            *m = beta1 * *m + (1.0 - beta1) * delta;
            *v = beta2 * *v + (1.0 - beta2) * delta * delta;
            *x += eta * *m / (v.sqrt() + tau);
        }
        state.vectors.insert("first_moment".into(), m);
        state.vectors.insert("second_moment".into(), v);
        // Buffers are statistics, not parameters: they are averaged and never seen by the optimiser.
        state.weights.buffers = aggregate.weights.buffers;
    }

    fn problem(&self, _: &OptimiserDescription) -> Option<(&'static str, String)> {
        let positive = |value: f32| (!(value > 0.0 && value.is_finite())).then(|| format!("{value} is not above 0"));
        let decay = |value: f32| (!(0.0..1.0).contains(&value)).then(|| format!("{value} is not in [0, 1)"));
        None.or(positive(self.server_learning_rate).map(|problem| ("server_learning_rate", problem)))
            .or(decay(self.beta1).map(|problem| ("beta1", problem)))
            .or(decay(self.beta2).map(|problem| ("beta2", problem)))
            .or(positive(self.tau).map(|problem| ("tau", problem)))
    }
}
