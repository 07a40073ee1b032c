//! SCAFFOLD. Karimireddy et al., *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*, ICML 2020,
//! Algorithm 1 with option II.

use selvedge_models::OptimiserDescription;
use serde::{Deserialize, Serialize};

use crate::{
    Broadcast,
    aggregation::Aggregate,
    algorithm::{Algorithm, Federation, LocalError, LocalSteps, ServerState, Update, Vectors},
};

/// Client drift corrected by control variates: `c` on the server, `c_i` kept by each client.
///
/// The paper averages the clients' models alike: `aggregation.weighting = "uniform"`. The changes of their control
/// variates are averaged alike in any case. Local training is plain SGD, for which option II's mean gradient holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaffold {
    /// η_g, the server's learning rate. Default 1.
    #[serde(default = "default_server_learning_rate")]
    pub server_learning_rate: f32,
}

fn default_server_learning_rate() -> f32 {
    1.0
}

/// c on its way down, and c_i where a client keeps it.
const CONTROL: &str = "control";
/// Δc_i on its way up.
const CONTROL_CHANGE: &str = "control_change";

impl Algorithm for Scaffold {
    fn client(
        &self,
        broadcast: &Broadcast,
        kept: &mut Vectors,
        local: &mut dyn LocalSteps,
    ) -> Result<Update, LocalError> {
        let x = &broadcast.weights;
        let zero = vec![0.0; x.parameters.len()];
        let known = broadcast.vectors.contains_key(CONTROL) || kept.contains_key(CONTROL);
        let c = broadcast.vectors.get(CONTROL).unwrap_or(&zero);
        let c_i = kept.get(CONTROL).unwrap_or(&zero);

        // y ← y − η (g(y) − c_i + c)
        let mut correct = |_: &[f32], gradient: &mut [f32]| {
            for ((g, c_i), c) in gradient.iter_mut().zip(c_i).zip(c) {
                *g += c - c_i;
            }
        };
        let y = local.train(x, if known { Some(&mut correct) } else { None })?;

        // c_i⁺ ← c_i − c + (x − y) / (K η), and Δc_i = c_i⁺ − c_i
        let scale = (y.steps as f64 * local.learning_rate()).recip() as f32;
        let drift = x.parameters.iter().zip(&y.weights.parameters);
        let change: Vec<f32> = match y.steps {
            0 => zero.clone(),
            _ => drift.zip(c).map(|((x, y), c)| scale * (x - y) - c).collect(),
        };
        let c_i = c_i.iter().zip(&change).map(|(c_i, change)| c_i + change).collect();
        kept.insert(CONTROL.into(), c_i);
        Ok(Update { trained: y, vectors: Vectors::from([(CONTROL_CHANGE.into(), change)]) })
    }

    fn server(&self, state: &mut ServerState, aggregate: Aggregate, federation: Federation) {
        // x ← x + η_g mean(y_i − x), written so that η_g = 1 is the mean itself
        let eta = self.server_learning_rate;
        for (x, mean) in state.weights.parameters.iter_mut().zip(&aggregate.weights.parameters) {
            *x = (1.0 - eta) * *x + eta * mean;
        }
        state.weights.buffers = aggregate.weights.buffers;
        // c ← c + |S|/N mean(Δc_i)
        let share = aggregate.updates as f32 / federation.clients as f32;
        if let Some(change) = aggregate.vectors.get(CONTROL_CHANGE) {
            let c = state.vectors.entry(CONTROL.into()).or_insert_with(|| vec![0.0; change.len()]);
            c.iter_mut().zip(change).for_each(|(c, change)| *c += share * change);
        }
    }

    fn broadcast_vectors(&self) -> &'static [&'static str] {
        &[CONTROL]
    }

    fn update_vectors(&self) -> &'static [&'static str] {
        &[CONTROL_CHANGE]
    }

    fn keeps(&self) -> bool {
        true
    }

    fn problem(&self, optimiser: &OptimiserDescription) -> Option<(&'static str, String)> {
        let eta = self.server_learning_rate;
        if !matches!(optimiser, OptimiserDescription::Sgd { momentum: 0.0, .. }) {
            let needs = "scaffold needs training.optimiser.kind = \"sgd\" without momentum: its control variates are \
                         mean gradients";
            return Some(("kind", needs.into()));
        }
        let allowed = eta > 0.0 && eta.is_finite();
        (!allowed).then(|| ("server_learning_rate", format!("{eta} is not a number above 0")))
    }
}
