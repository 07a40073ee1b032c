//! SCAFFOLD. Karimireddy et al., *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*, ICML 2020,
//! Algorithm 1 with option II.

use selvedge_models::{OptimiserDescription, Weights};
use selvedge_words::choice::Choice;
use serde::{Deserialize, Serialize};

use crate::{Broadcast, Context, Shape, Vectors, aggregation::Aggregate, algorithm::Algorithm, local::{LocalError, LocalSteps, Update}, server::{ServerStep, Sgd}, vectors::Named};

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
        memory: &mut Vectors,
        local: &mut dyn LocalSteps,
        _: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        let x = &broadcast.weights;
        let zero = vec![0.0; x.parameters.len()];
        let (c, c_i) = (broadcast.vectors.get(CONTROL), memory.get(CONTROL));
        let known = c.is_some() || c_i.is_some();
        let (c, c_i) = (c.unwrap_or(&zero), c_i.unwrap_or(&zero));

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
        memory.insert(CONTROL, Shape::Parameters, c_i);
        let mut update = Update::from(y);
        update.vectors.insert(CONTROL_CHANGE, Shape::Parameters, change);
        Ok(update)
    }

    fn server(&self, _: &Weights, aggregate: &mut Aggregate, memory: &mut Vectors, context: &mut Context<'_>) {
        // c ← c + |S|/N mean(Δc_i)
        let share = aggregate.updates as f32 / context.clients as f32;
        if let Some(change) = aggregate.vectors.get(CONTROL_CHANGE) {
            let c = memory.entry(CONTROL, Shape::Parameters, || vec![0.0; change.len()]);
            c.iter_mut().zip(change).for_each(|(c, change)| *c += share * change);
        }
    }

    fn server_steps(&self) -> Vec<Choice<dyn ServerStep>> {
        // x ← x + η_g mean(y_i − x)
        let learning_rate = self.server_learning_rate;
        vec![Choice::of(Sgd { learning_rate, ..Sgd::default() })]
    }

    fn broadcast_vectors(&self) -> &'static [Named] {
        &[(CONTROL, Shape::Parameters)]
    }

    fn update_vectors(&self) -> &'static [Named] {
        &[(CONTROL_CHANGE, Shape::Parameters)]
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
