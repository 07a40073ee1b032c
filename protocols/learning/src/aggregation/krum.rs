//! Krum. Blanchard et al., *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent*, NeurIPS 2017.

use selvedge_models::{OptimiserDescription, SubModel, Weights};
use selvedge_words::ClientName;
use serde::{Deserialize, Serialize};

use super::{Aggregate, AggregationRule, Aggregator, Contribution, TooFew, WeightedMean};
use crate::{Context, Update};

/// Of n updates the one whose n − f − 2 nearest others are nearest, by the sum of their squared distances; or the mean of
/// the `chosen` first (Multi-Krum). Whoever was chosen has the metric `aggregation.chosen`. Holds all updates of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Krum {
    /// f, how many of the clients may send anything; n must be at least 2 f + 3.
    pub byzantine: usize,
    /// How many updates are averaged, from 1 to n − f. Default 1.
    #[serde(default = "one")]
    pub chosen: usize,
}

fn one() -> usize {
    1
}

impl AggregationRule for Krum {
    fn begin(&self) -> Box<dyn Aggregator> {
        Box::new(Gathered { krum: self.clone(), updates: Vec::new() })
    }

    fn is_coordinate_wise(&self) -> bool {
        false
    }

    fn problem(&self, cohort: usize, _: &OptimiserDescription) -> Option<(&'static str, String)> {
        let &Self { byzantine: f, chosen } = self;
        let (needed, most) = (f.saturating_mul(2).saturating_add(3), cohort.saturating_sub(f));
        let few = format!("with {f} byzantine clients a round needs {needed}, and has {cohort}");
        let wrong = format!("{chosen} is not from 1 to {most}");
        (cohort < needed).then_some(("byzantine", few)).or((!(1..=most).contains(&chosen)).then_some(("chosen", wrong)))
    }
}

struct Gathered {
    krum: Krum,
    updates: Vec<(Option<ClientName>, SubModel, Update)>,
}

impl Aggregator for Gathered {
    fn fold(&mut self, contribution: Contribution<'_>) {
        let Contribution { client, part, update, .. } = contribution;
        self.updates.push((client.cloned(), part.clone(), update));
    }

    fn finish(self: Box<Self>, global: &Weights, context: &mut Context<'_>) -> Result<Option<Aggregate>, TooFew> {
        let Self { krum: Krum { byzantine: f, chosen }, updates } = *self;
        let (came, needed) = (updates.len(), 2 * f + 3);
        if came < needed {
            return if came == 0 { Ok(None) } else { Err(TooFew { needed, came }) };
        }
        let parameters = |at: usize| &updates[at].2.trained.weights.parameters;
        let distance = |i, j| parameters(i).iter().zip(parameters(j)).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        // s(i) = Σ_{i → j} ‖V_i − V_j‖²
        let score = |i| {
            let mut nearest: Vec<f64> = (0..came).filter(|j| *j != i).map(|j| distance(i, j)).collect();
            nearest.sort_unstable_by(f64::total_cmp);
            nearest[..came - f - 2].iter().sum::<f64>()
        };
        let scores: Vec<f64> = (0..came).map(score).collect();
        let mut order: Vec<usize> = (0..came).collect();
        order.sort_by(|i, j| scores[*i].total_cmp(&scores[*j]));
        let chosen = &order[..chosen.min(came)];
        let (mut mean, version) = (WeightedMean::default(), context.round);
        let updates = updates.into_iter().enumerate().filter(|(at, _)| chosen.contains(at));
        for (_, (client, part, update)) in updates {
            client.iter().for_each(|client| context.note_of(client, "chosen", 1.0));
            mean.fold(Contribution { client: client.as_ref(), version, part: &part, weight: 1.0, update });
        }
        Box::new(mean).finish(global, context)
    }
}
