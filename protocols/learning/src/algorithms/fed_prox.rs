//! FedProx. Li et al., *Federated Optimization in Heterogeneous Networks*, MLSys 2020, Algorithm 2.

use selvedge_models::OptimiserDescription;
use serde::{Deserialize, Serialize};

use crate::{Broadcast, Context, Vectors, algorithm::Algorithm, local::{LocalError, LocalSteps, Update}};

/// Each client minimises `F_k(w) + (µ/2) ‖w − wᵗ‖²`; the server averages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedProx {
    /// µ, how strongly a client is held near the global model; 0 is FedAvg. The paper tries 0.001 to 1. Default 0.01.
    #[serde(default = "default_mu")]
    pub mu: f32,
}

fn default_mu() -> f32 {
    0.01
}

impl Algorithm for FedProx {
    fn client(
        &self,
        broadcast: &Broadcast,
        _: &mut Vectors,
        local: &mut dyn LocalSteps,
        _: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        let global = &broadcast.weights;
        // ∇ ← ∇F_k(w) + µ (w − wᵗ)
        let mut proximal = |w: &[f32], gradient: &mut [f32]| {
            for ((g, w), global) in gradient.iter_mut().zip(w).zip(&global.parameters) {
                *g += self.mu * (w - global);
            }
        };
        Ok(match self.mu {
            0.0 => local.train(global, None)?,
            _ => local.train(global, Some(&mut proximal))?,
        }
        .into())
    }

    fn problem(&self, _: &OptimiserDescription) -> Option<(&'static str, String)> {
        let allowed = self.mu >= 0.0 && self.mu.is_finite();
        (!allowed).then(|| ("mu", format!("{} is not a number of at least 0", self.mu)))
    }
}
