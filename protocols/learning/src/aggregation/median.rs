//! Coordinate-wise median. Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*,
//! ICML 2018, Algorithm 1 (option I).

use std::borrow::Cow;

use selvedge_models::{Coordinates, SubModel, Weights};
use serde::{Deserialize, Serialize};

use super::{Aggregate, AggregationRule, Aggregator, Contribution, TooFew};
use crate::{Context, Shape, Update, vectors::Vector};

/// Each coordinate becomes the median of the clients' coordinates, whatever their weights: fewer than half of the clients
/// that trained it cannot carry it away. Holds all updates of a round at once. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Median {}

impl AggregationRule for Median {
    fn begin(&self) -> Box<dyn Aggregator> {
        Box::new(Gathered(Vec::new()))
    }
}

/// All updates of a round.
struct Gathered(Vec<(Update, SubModel)>);

impl Aggregator for Gathered {
    fn fold(&mut self, contribution: Contribution<'_>) {
        self.0.push((contribution.update, contribution.part.clone()));
    }

    fn finish(self: Box<Self>, global: &Weights, _: &mut Context<'_>) -> Result<Option<Aggregate>, TooFew> {
        let Some((first, _)) = self.0.first() else {
            return Ok(None);
        };
        let weights = Weights {
            parameters: medians(&global.parameters, self.0.iter().map(|(update, part)| {
                (&*update.trained.weights.parameters, &part.parameters)
            })),
            buffers: medians(&global.buffers, self.0.iter().map(|(update, part)| {
                (&*update.trained.weights.buffers, &part.buffers)
            })),
        };
        // A client has not changed what it has no coordinate of.
        let vectors = first.vectors.iter().map(|(name, Vector { shape, .. })| {
            let of = |part: &SubModel| match shape {
                Shape::Parameters => part.parameters.clone(),
                Shape::Buffers => part.buffers.clone(),
                Shape::Free(length) => Coordinates::all(*length),
            };
            let columns: Vec<_> = self.0.iter().map(|(update, part)| (update.vectors.get(name).unwrap_or_default(), of(part))).collect();
            let zeros = vec![0.0; columns.first().map_or(0, |(_, places)| places.of())];
            let values = medians(&zeros, columns.iter().map(|(values, places)| (*values, places)));
            (name, Vector { shape: *shape, values })
        });
        Ok(Some(Aggregate { weights, vectors: vectors.collect(), updates: self.0.len() }))
    }
}

/// The medians of the values at each place; where nobody has one, that of `otherwise`.
fn medians<'a>(otherwise: &[f32], columns: impl Iterator<Item = (&'a [f32], &'a Coordinates)>) -> Vec<f32> {
    // What a client did not train is not a number.
    let spread = |(values, places): (&'a [f32], &'a Coordinates)| {
        if places.is_all() {
            return Cow::Borrowed(values);
        }
        let mut whole = vec![f32::NAN; places.of()];
        places.merge(values, &mut whole);
        Cow::Owned(whole)
    };
    let columns: Vec<Cow<'_, [f32]>> = columns.map(spread).collect();
    let mut there = Vec::with_capacity(columns.len());
    let median = |(at, &otherwise): (usize, &f32)| {
        there.clear();
        there.extend(columns.iter().map(|values| values[at]).filter(|value| !value.is_nan()));
        if there.is_empty() { otherwise } else { median(&mut there) }
    };
    otherwise.iter().enumerate().map(median).collect()
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
