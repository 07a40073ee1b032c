//! Coordinate-wise median. Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*,
//! ICML 2018, Algorithm 1 (option I), with local training in place of one gradient.

use selvedge_models::{Coordinates, SubModel, Weights};
use serde::{Deserialize, Serialize};

use crate::{
    Broadcast,
    aggregation::{Aggregate, Aggregator},
    algorithm::{Algorithm, Federation, LocalError, LocalSteps, ServerState, Update, Vectors},
};

/// Each coordinate of the global model becomes the median of the clients' coordinates, whatever their weights: fewer
/// than half of the clients that trained it cannot carry it away. Needs all updates of a round at once. No settings of
/// its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Median {}

impl Algorithm for Median {
    fn client(
        &self,
        broadcast: &Broadcast,
        _kept: &mut Vectors,
        local: &mut dyn LocalSteps,
    ) -> Result<Update, LocalError> {
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    fn server(&self, state: &mut ServerState, aggregate: Aggregate, _: Federation) {
        state.weights = aggregate.weights;
    }

    fn aggregator(&self) -> Box<dyn Aggregator> {
        Box::new(Gathered(Vec::new()))
    }
}

/// All updates of a round, as whole models; what a client did not train is not a number.
struct Gathered(Vec<Weights>);

impl Aggregator for Gathered {
    fn fold(&mut self, update: Update, part: &SubModel, _weight: f64) {
        let spread = |values: Vec<f32>, places: &Coordinates| match places.is_all() {
            true => values,
            false => {
                let mut whole = vec![f32::NAN; places.of()];
                places.merge(&values, &mut whole);
                whole
            }
        };
        let Weights { parameters, buffers } = update.trained.weights;
        self.0.push(Weights {
            parameters: spread(parameters, &part.parameters),
            buffers: spread(buffers, &part.buffers),
        });
    }

    fn finish(self: Box<Self>, global: &Weights) -> Option<Aggregate> {
        self.0.first()?;
        let coordinates = |values: fn(&Weights) -> &[f32]| {
            let mut column = Vec::with_capacity(self.0.len());
            let median = |(at, &global): (usize, &f32)| {
                column.clear();
                column.extend(self.0.iter().map(|weights| values(weights)[at]).filter(|value| !value.is_nan()));
                if column.is_empty() { global } else { median(&mut column) }
            };
            values(global).iter().enumerate().map(median).collect()
        };
        let weights = Weights {
            parameters: coordinates(|weights| &weights.parameters),
            buffers: coordinates(|weights| &weights.buffers),
        };
        Some(Aggregate { weights, vectors: Vectors::new(), updates: self.0.len() })
    }
}

/// The middle value; of an even count, the mean of the two in the middle. `values` is not empty.
fn median(values: &mut [f32]) -> f32 {
    let count = values.len();
    let (below, &mut upper, _) = values.select_nth_unstable_by(count / 2, f32::total_cmp);
    match (count % 2, below.iter().copied().max_by(f32::total_cmp)) {
        (0, Some(lower)) => lower / 2.0 + upper / 2.0,
        _ => upper,
    }
}
