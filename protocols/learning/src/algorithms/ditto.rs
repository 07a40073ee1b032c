//! Ditto. Li et al., *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML 2021, Algorithm 1.

use selvedge_models::{OptimiserDescription, Weights};
use serde::{Deserialize, Serialize};

use crate::{Broadcast, Context, Shape, Vectors, algorithm::Algorithm, local::{LocalError, LocalSteps, Update}};

/// FedAvg, and beside it a model of each client's own, held near the global one: `v_k ← v_k − η (∇F_k(v_k) + λ (v_k − wᵗ))`,
/// with as many steps. Clients evaluate their own models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ditto {
    /// λ, how strongly; 0 is training alone. The paper tries 0.05 to 2. Default 0.1.
    #[serde(default = "default_lambda")]
    pub lambda: f32,
}

fn default_lambda() -> f32 {
    0.1
}

/// v_k where the client keeps it, and its running statistics.
const OWN: &str = "own";
const OWN_BUFFERS: &str = "own_buffers";

impl Algorithm for Ditto {
    fn client(
        &self,
        broadcast: &Broadcast,
        memory: &mut Vectors,
        local: &mut dyn LocalSteps,
        _: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        let w = &broadcast.weights;
        let update = local.train(w, None)?;
        let v = own(memory).unwrap_or_else(|| Weights::clone(w));
        // ∇ ← ∇F_k(v_k) + λ (v_k − wᵗ)
        let mut towards = |v: &[f32], gradient: &mut [f32]| {
            for ((g, v), w) in gradient.iter_mut().zip(v).zip(&w.parameters) {
                *g += self.lambda * (v - w);
            }
        };
        let v = local.train(&v, Some(&mut towards))?.weights;
        memory.insert(OWN, Shape::Parameters, v.parameters);
        memory.insert(OWN_BUFFERS, Shape::Buffers, v.buffers);
        Ok(update.into())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn needs_whole_model(&self) -> bool {
        true
    }

    fn personalise(&self, _: &Broadcast, memory: &Vectors, _: &mut Context<'_>) -> Option<Weights> {
        own(memory)
    }

    fn problem(&self, _: &OptimiserDescription) -> Option<(&'static str, String)> {
        let allowed = self.lambda >= 0.0 && self.lambda.is_finite();
        (!allowed).then(|| ("lambda", format!("{} is not a number of at least 0", self.lambda)))
    }
}

fn own(memory: &Vectors) -> Option<Weights> {
    Some(Weights {
        parameters: memory.get(OWN)?.to_vec(),
        buffers: memory.get(OWN_BUFFERS)?.to_vec(),
    })
}
