//! Ditto (Li et al., *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML 2021, Algorithm 1), written
//! once more as anybody could: only what `selvedge` exports is used.

use selvedge::{
    Algorithm, Context, Shape, Vectors, Weights,
    protocols::{Broadcast, LocalError, LocalSteps, Update, choice::Settings},
};
use serde::{Deserialize, Serialize};

/// FedAvg, and a model of each client's own, held near the global one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnDitto {
    /// λ, how strongly.
    pub lambda: f32,
}

impl Settings for OwnDitto {
    const KIND: &'static str = "own-ditto";
}

impl Algorithm for OwnDitto {
    fn client(
        &self,
        broadcast: &Broadcast,
        memory: &mut Vectors,
        local: &mut dyn LocalSteps,
        context: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        let w = &broadcast.weights;
        let update = local.train(w, None)?;
        let own = memory.get("own").map_or_else(|| w.parameters.clone(), <[f32]>::to_vec);
        // v ← v − η (∇F(v) + λ (v − w))
        let mut towards = |v: &[f32], gradient: &mut [f32]| {
            for ((g, v), w) in gradient.iter_mut().zip(v).zip(&w.parameters) {
                *g += self.lambda * (v - w);
            }
        };
        let v = local
            .train(
                &Weights {
                    parameters: own,
                    buffers: vec![],
                },
                Some(&mut towards),
            )?
            .weights;
        let apart = v
            .parameters
            .iter()
            .zip(&w.parameters)
            .map(|(v, w)| f64::from(v - w).powi(2))
            .sum::<f64>();
        context.note("distance", apart.sqrt());
        memory.insert("own", Shape::Parameters, v.parameters);
        Ok(update.into())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn personalise(&self, _: &Broadcast, memory: &Vectors, _: &mut Context<'_>) -> Option<Weights> {
        let parameters = memory.get("own")?.to_vec();
        Some(Weights {
            parameters,
            buffers: vec![],
        })
    }
}
