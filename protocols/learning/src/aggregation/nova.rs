//! Normalised averaging. Wang et al., *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
//! Optimization* (FedNova), NeurIPS 2020, equation 8, for plain gradient descent on the clients.

use selvedge_models::{OptimiserDescription, Weights};
use serde::{Deserialize, Serialize};

use super::{Aggregate, AggregationRule, Aggregator, Contribution, TooFew, WeightedMean};
use crate::Context;

/// `x ← x − τ_eff Σ p_i d_i`, where `d_i = (x − y_i) / τ_i` is a client's change in a step, τ_i its number of steps, p_i
/// its share of the weights, and `τ_eff = Σ p_i τ_i`: clients that make more steps do not pull the model towards their own
/// objectives. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nova {}

impl AggregationRule for Nova {
    fn begin(&self) -> Box<dyn Aggregator> {
        Box::new(Normalised::default())
    }

    fn is_weighted(&self) -> bool {
        true
    }

    fn is_coordinate_wise(&self) -> bool {
        // τ_eff is over all clients, whatever part of the model each has trained.
        false
    }

    fn problem(&self, _: usize, optimiser: &OptimiserDescription) -> Option<(&'static str, String)> {
        let is_plain = matches!(optimiser, OptimiserDescription::Sgd { momentum: 0.0, .. });
        let needs = "normalised averaging needs training.optimiser.kind = \"sgd\" without momentum: it counts steps";
        (!is_plain).then(|| ("kind", needs.into()))
    }
}

/// The mean with the weights `w_i / τ_i`, and what it takes to go on from it.
#[derive(Default)]
struct Normalised {
    mean: WeightedMean,
    /// `Σ w_i`, `Σ w_i / τ_i` and `Σ w_i τ_i`
    weights: [f64; 3],
}

impl Aggregator for Normalised {
    fn fold(&mut self, contribution: Contribution<'_>) {
        let (w, tau) = (contribution.weight, contribution.update.trained.steps.max(1) as f64);
        self.weights.iter_mut().zip([w, w / tau, w * tau]).for_each(|(sum, of_one)| *sum += of_one);
        let weight = w / tau;
        self.mean.fold(Contribution { weight, ..contribution });
    }

    fn finish(self: Box<Self>, global: &Weights, context: &mut Context<'_>) -> Result<Option<Aggregate>, TooFew> {
        let Self { mean, weights: [sum, per_step, times_steps] } = *self;
        let Some(mut aggregate) = Box::new(mean).finish(global, context)? else {
            return Ok(None);
        };
        let effective_steps = times_steps / sum;
        context.note("effective_steps", effective_steps);
        // Σ p_i d_i = Σ (p_i / τ_i) (x − m), with the mean m; where all make as many steps, x becomes m.
        let rate = effective_steps * per_step / sum;
        for (m, x) in aggregate.weights.parameters.iter_mut().zip(&global.parameters) {
            let (x, mean) = (f64::from(*x), f64::from(*m));
            *m = (x + rate * (mean - x)) as f32;
        }
        Ok(Some(aggregate))
    }
}
