//! The weighted mean. McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized Data*, AISTATS
//! 2017, Algorithm 1.

use selvedge_models::{Coordinates, Weights};
use serde::{Deserialize, Serialize};

use super::{Aggregate, AggregationRule, Aggregator, Contribution, TooFew};
use crate::{Context, Shape, Vectors, vectors::Vector};

/// `Σ w_i y_i / Σ w_i`, each coordinate's over those who trained it. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mean {}

impl AggregationRule for Mean {
    fn begin(&self) -> Box<dyn Aggregator> {
        Box::new(WeightedMean::default())
    }

    fn is_weighted(&self) -> bool {
        true
    }
}

/// The weighted mean of the models, in double precision: memory does not grow with the cohort, and the mean of one update
/// is that update, bit for bit (for integral weights below 2^29).
///
/// Vectors beside the models are changes, and all clients weigh alike: their plain mean, in which a client that did not
/// train a coordinate has not changed it.
#[derive(Default)]
pub struct WeightedMean {
    parameters: CoveredSum,
    buffers: CoveredSum,
    vectors: Vec<(String, Shape, Vec<f64>)>,
    updates: usize,
}

impl Aggregator for WeightedMean {
    fn fold(&mut self, contribution: Contribution<'_>) {
        let Contribution { update, part, weight, .. } = contribution;
        let weights = &update.trained.weights;
        self.parameters.add(&weights.parameters, &part.parameters, weight);
        self.buffers.add(&weights.buffers, &part.buffers, weight);
        for (name, Vector { shape, values }) in update.vectors.iter() {
            let known = self.vectors.iter().position(|(known, ..)| known == name);
            let at = known.unwrap_or_else(|| {
                self.vectors.push((name.to_owned(), *shape, Vec::new()));
                self.vectors.len() - 1
            });
            let all = Coordinates::all(values.len());
            let places = match shape {
                Shape::Parameters => &part.parameters,
                Shape::Buffers => &part.buffers,
                Shape::Free(_) => &all,
            };
            add(&mut self.vectors[at].2, values, places, 1.0);
        }
        self.updates += 1;
    }

    fn finish(self: Box<Self>, global: &Weights, _: &mut Context<'_>) -> Result<Option<Aggregate>, TooFew> {
        let Self {
            parameters,
            buffers,
            vectors,
            updates,
        } = *self;
        let mean = |(name, shape, sums): (String, Shape, Vec<f64>)| {
            let values = sums.into_iter().map(|sum| (sum / updates as f64) as f32).collect();
            (name, Vector { shape, values })
        };
        Ok((updates > 0).then(|| Aggregate {
            weights: Weights {
                parameters: parameters.mean(&global.parameters),
                buffers: buffers.mean(&global.buffers),
            },
            vectors: vectors.into_iter().map(mean).collect::<Vectors>(),
            updates,
        }))
    }
}

/// Weighted sums of the coordinates of a vector, and what each of them weighs.
#[derive(Default)]
struct CoveredSum {
    values: Vec<f64>,
    /// The weight of those who trained all coordinates.
    whole: f64,
    /// Of each coordinate, the weight of the others who trained it; empty until there is one.
    partial: Vec<f64>,
}

impl CoveredSum {
    fn add(&mut self, values: &[f32], places: &Coordinates, weight: f64) {
        add(&mut self.values, values, places, weight);
        if places.is_all() {
            self.whole += weight;
            return;
        }
        self.partial.resize(places.of(), 0.0);
        for range in places.ranges() {
            self.partial[range.clone()].iter_mut().for_each(|sum| *sum += weight);
        }
    }

    fn mean(self, global: &[f32]) -> Vec<f32> {
        let Self { values, whole, partial } = self;
        if partial.is_empty() {
            return values.into_iter().map(|sum| (sum / whole) as f32).collect();
        }
        let mean = |((sum, partial), global): ((f64, f64), &f32)| match whole + partial {
            0.0 => *global,
            weight => (sum / weight) as f32,
        };
        values.into_iter().zip(partial).zip(global).map(mean).collect()
    }
}

fn add(sums: &mut Vec<f64>, values: &[f32], places: &Coordinates, weight: f64) {
    if sums.is_empty() && places.is_all() {
        return sums.extend(values.iter().map(|&value| weight * f64::from(value)));
    }
    sums.resize(places.of(), 0.0);
    for (range, values) in places.places(values) {
        for (sum, value) in sums[range].iter_mut().zip(values) {
            *sum += weight * f64::from(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_words::Seed;
    use crate::{Metrics, Occasion, Update, aggregation::{AGGREGATION, Coverage}, local::Trained};
    use proptest::prelude::*;
    use selvedge_models::{Dense, LayerDescription, Layout, ModelDescription, OptimiserDescription, SubModel};

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

    /// The mean of updates of parts with weights; without an update, nothing.
    fn mean(updates: Vec<(Update, SubModel, f64)>, global: &Weights) -> Option<Aggregate> {
        let mut mean = Mean {}.begin();
        for (update, part, weight) in updates {
            mean.fold(Contribution {
                client: None,
                version: 1,
                part: &part,
                weight,
                update,
            });
        }
        let optimiser: OptimiserDescription = toml::from_str("kind = 'sgd'\nlearning_rate = 0.1").unwrap();
        let occasion = Occasion {
            seed: Seed(1),
            round: 1,
            rounds: 1,
            clients: 1,
            cohort: 1,
            client: None,
            layout: &layout(),
            optimiser: &optimiser,
        };
        mean.finish(global, &mut occasion.context(AGGREGATION, &mut Metrics::default()))
            .unwrap()
    }

    fn zeros(parameters: usize) -> Weights {
        Weights {
            parameters: vec![0.0; parameters],
            buffers: vec![],
        }
    }

    /// Some of a model's parameters.
    fn part(layout: &Layout, units: &[u32]) -> SubModel {
        SubModel::new(layout, vec![units.to_vec()]).unwrap()
    }

    fn whole(parameters: usize) -> SubModel {
        SubModel {
            units: vec![],
            parameters: Coordinates::all(parameters),
            buffers: Coordinates::all(0),
        }
    }

    /// A layer of three units with two inputs, and one that sums them: parameters 0 to 5 and 6 to 8.
    fn layout() -> Layout {
        let dense = |units| LayerDescription::Dense(Dense { units, bias: false });
        let model = ModelDescription {
            input: vec![2],
            layers: vec![dense(3), dense(1)],
            first_layer: 0,
        };
        model.layout().unwrap()
    }

    fn vectors(values: Vec<f32>) -> Vectors {
        [("v", Vector { shape: Shape::Parameters, values })].into_iter().collect()
    }

    #[test]
    fn a_coordinate_is_averaged_over_those_who_trained_it_and_stays_where_nobody_did() {
        let layout = layout();
        let updates = vec![
            (update(vec![1.0; 3], 1), part(&layout, &[0]), 1.0),
            (update(vec![5.0; 6], 3), part(&layout, &[0, 1]), 3.0),
        ];
        let mut global = zeros(9);
        global.parameters = (0..9).map(|at| at as f32 + 0.1).collect();
        let result = mean(updates, &global).unwrap().weights.parameters;
        assert_eq!(result, [4.0, 4.0, 5.0, 5.0, 4.1, 5.1, 4.0, 5.0, 8.1]);
    }

    #[test]
    fn a_vector_beside_the_model_counts_as_zero_where_a_client_has_no_unit() {
        let layout = layout();
        let update = |units: &[u32]| {
            let part = part(&layout, units);
            let trained = update(vec![0.0; part.parameters.count()], 1).trained;
            let vectors = vectors(vec![2.0; part.parameters.count()]);
            (Update { trained, vectors }, part, 1.0)
        };
        let result = mean(vec![update(&[0]), update(&[0, 2])], &zeros(9)).unwrap().vectors;
        assert_eq!(result.get("v").unwrap(), [2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0]);
    }

    #[test]
    fn what_nobody_trained_is_put_back_bit_for_bit() {
        let mut coverage = Coverage::default();
        coverage.add(&part(&layout(), &[1]));
        let weights = |value: f32| Weights {
            parameters: vec![value; 9],
            buffers: vec![],
        };
        let (mut now, mut moments) = (weights(2.0), vectors(vec![2.0; 9]));
        coverage.restore(&mut now, &weights(1.0));
        coverage.restore_vectors(&mut moments, Some(&vectors(vec![1.0; 9])));
        let expected = [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0];
        assert_eq!(now.parameters, expected);
        assert_eq!(moments.get("v").unwrap(), expected);
    }

    proptest! {
        #[test]
        fn the_mean_of_one_update_is_that_update_bit_for_bit(
            values in prop::collection::vec(any::<f32>().prop_filter("finite", |v| v.is_finite()), 1..50),
            examples in 1u64..1 << 29,
        ) {
            let all = whole(values.len());
            let updates = vec![(update(values.clone(), examples), all, examples as f64)];
            let result = mean(updates, &zeros(values.len())).unwrap().weights.parameters;
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&result), bits(&values));
        }
    }

    #[test]
    fn the_mean_is_weighted() {
        let updates = vec![
            (update(vec![1.0, 0.0], 1), whole(2), 1.0),
            (update(vec![5.0, 4.0], 3), whole(2), 3.0),
        ];
        let aggregate = mean(updates, &zeros(2)).unwrap();
        assert_eq!(aggregate.weights.parameters, [4.0, 3.0]);
        assert_eq!(aggregate.updates, 2);
    }

    #[test]
    fn vectors_are_averaged_alike() {
        let update = |(examples, value): (u64, f32)| {
            let trained = update(vec![0.0], examples).trained;
            let vectors = vectors(vec![value]);
            (Update { trained, vectors }, whole(1), examples as f64)
        };
        let updates = [(1, 1.0), (3, 5.0)].map(update).into();
        assert_eq!(mean(updates, &zeros(1)).unwrap().vectors.get("v").unwrap(), [3.0]);
    }

    #[test]
    fn the_mean_of_nothing_is_nothing() {
        assert_eq!(mean(vec![], &zeros(1)), None);
    }
}
