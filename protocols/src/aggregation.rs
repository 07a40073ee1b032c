//! Many updates become one.

use selvedge_models::Weights;

use crate::algorithm::{Update, Vectors};

/// What the updates of a round came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The combined model.
    pub weights: Weights,
    /// The combined vectors, by name.
    pub vectors: Vectors,
    /// How many updates went in.
    pub updates: usize,
}

/// Combines updates. They come one by one, always in the order of the clients' names, so that a result never depends
/// on who was quick.
pub trait Aggregator: Send {
    /// Takes one update in, with the weight it has in the mean. Weights are positive and finite, and all updates of
    /// one round have the same lengths and vectors: the round's checks see to it.
    fn fold(&mut self, update: Update, weight: f64);

    /// The result; `None` when nothing was folded.
    fn finish(self: Box<Self>) -> Option<Aggregate>;
}

/// The weighted mean of the models, `Σ w_i y_i / Σ w_i`, and the plain mean of the vectors beside them, in double
/// precision: memory does not grow with the cohort, and the mean of one update is that update, bit for bit (for
/// integral weights below 2^29).
#[derive(Default)]
pub struct WeightedMean {
    parameters: Vec<f64>,
    buffers: Vec<f64>,
    vectors: Vec<(String, Vec<f64>)>,
    weight: f64,
    updates: usize,
}

impl Aggregator for WeightedMean {
    fn fold(&mut self, update: Update, weight: f64) {
        let weights = &update.trained.weights;
        add(&mut self.parameters, &weights.parameters, weight);
        add(&mut self.buffers, &weights.buffers, weight);
        for (name, values) in &update.vectors {
            let known = self.vectors.iter().position(|(known, _)| known == name);
            let at = known.unwrap_or_else(|| {
                self.vectors.push((name.clone(), Vec::new()));
                self.vectors.len() - 1
            });
            add(&mut self.vectors[at].1, values, 1.0);
        }
        self.weight += weight;
        self.updates += 1;
    }

    fn finish(self: Box<Self>) -> Option<Aggregate> {
        let Self {
            parameters,
            buffers,
            vectors,
            weight,
            updates,
        } = *self;
        let mean = |sums: Vec<f64>, weight: f64| sums.into_iter().map(|sum| (sum / weight) as f32).collect();
        (updates > 0).then(|| Aggregate {
            weights: Weights {
                parameters: mean(parameters, weight),
                buffers: mean(buffers, weight),
            },
            vectors: vectors
                .into_iter()
                .map(|(name, sums)| (name, mean(sums, updates as f64)))
                .collect(),
            updates,
        })
    }
}

fn add(sums: &mut Vec<f64>, values: &[f32], weight: f64) {
    let weighted = values.iter().map(|&value| weight * f64::from(value));
    if sums.is_empty() {
        sums.extend(weighted);
    } else {
        sums.iter_mut().zip(weighted).for_each(|(sum, value)| *sum += value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Trained;
    use proptest::prelude::*;

    fn update(parameters: Vec<f32>, examples: u64) -> Update {
        Trained {
            weights: Weights {
                parameters,
                buffers: vec![],
            },
            examples,
            steps: 1,
            loss: None,
        }
        .into()
    }

    proptest! {
        #[test]
        fn the_mean_of_one_update_is_that_update_bit_for_bit(
            values in prop::collection::vec(any::<f32>().prop_filter("finite", |v| v.is_finite()), 1..50),
            examples in 1u64..1 << 29,
        ) {
            let mut mean = Box::new(WeightedMean::default());
            mean.fold(update(values.clone(), examples), examples as f64);
            let result = mean.finish().unwrap().weights.parameters;
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&result), bits(&values));
        }
    }

    #[test]
    fn the_mean_is_weighted() {
        let mut mean = Box::new(WeightedMean::default());
        mean.fold(update(vec![1.0, 0.0], 1), 1.0);
        mean.fold(update(vec![5.0, 4.0], 3), 3.0);
        let aggregate = mean.finish().unwrap();
        assert_eq!(aggregate.weights.parameters, [4.0, 3.0]);
        assert_eq!(aggregate.updates, 2);
    }

    #[test]
    fn vectors_are_averaged_alike() {
        let mut mean = Box::new(WeightedMean::default());
        for (examples, value) in [(1, 1.0), (3, 5.0)] {
            let vectors = Vectors::from([("v".into(), vec![value])]);
            let trained = update(vec![0.0], examples).trained;
            mean.fold(Update { trained, vectors }, examples as f64);
        }
        assert_eq!(mean.finish().unwrap().vectors["v"], [3.0]);
    }

    #[test]
    fn the_mean_of_nothing_is_nothing() {
        assert_eq!(Box::new(WeightedMean::default()).finish(), None);
    }
}
