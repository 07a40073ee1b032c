//! Many updates become one.

use selvedge_models::{Coordinates, SubModel, Weights};

use crate::algorithm::{ServerState, Update, Vectors};

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
    /// Takes one update in, of a part of the model, with the weight it has in the mean. Weights are positive and finite,
    /// and all updates of one round have the same vectors, as long as their parts: the round's checks see to it.
    fn fold(&mut self, update: Update, part: &SubModel, weight: f64);

    /// The result, where nobody trained a coordinate that of `global`; `None` when nothing was folded.
    fn finish(self: Box<Self>, global: &Weights) -> Option<Aggregate>;
}

/// The weighted mean of the models, `Σ w_i y_i / Σ w_i`, each coordinate's over those who trained it, in double
/// precision: memory does not grow with the cohort, and the mean of one update is that update, bit for bit (for
/// integral weights below 2^29).
///
/// Vectors beside the models are changes, and all clients weigh alike: their plain mean, in which a client that did not
/// train a coordinate has not changed it.
#[derive(Default)]
pub struct WeightedMean {
    parameters: CoveredSum,
    buffers: CoveredSum,
    vectors: Vec<(String, Vec<f64>)>,
    updates: usize,
}

impl Aggregator for WeightedMean {
    fn fold(&mut self, update: Update, part: &SubModel, weight: f64) {
        let weights = &update.trained.weights;
        self.parameters.add(&weights.parameters, &part.parameters, weight);
        self.buffers.add(&weights.buffers, &part.buffers, weight);
        for (name, values) in &update.vectors {
            let known = self.vectors.iter().position(|(known, _)| known == name);
            let at = known.unwrap_or_else(|| {
                self.vectors.push((name.clone(), Vec::new()));
                self.vectors.len() - 1
            });
            add(&mut self.vectors[at].1, values, &part.parameters, 1.0);
        }
        self.updates += 1;
    }

    fn finish(self: Box<Self>, global: &Weights) -> Option<Aggregate> {
        let Self {
            parameters,
            buffers,
            vectors,
            updates,
        } = *self;
        let mean = |sums: Vec<f64>| sums.into_iter().map(|sum| (sum / updates as f64) as f32).collect();
        (updates > 0).then(|| Aggregate {
            weights: Weights {
                parameters: parameters.mean(&global.parameters),
                buffers: buffers.mean(&global.buffers),
            },
            vectors: vectors.into_iter().map(|(name, sums)| (name, mean(sums))).collect(),
            updates,
        })
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

/// Which coordinates the updates of a round have trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    all: bool,
    parameters: Vec<bool>,
    buffers: Vec<bool>,
}

impl Coverage {
    /// Takes note of an update of a part of the model.
    pub fn add(&mut self, part: &SubModel) {
        if self.all || part.is_whole() {
            *self = Self {
                all: true,
                ..Self::default()
            };
            return;
        }
        for (covered, places) in [
            (&mut self.parameters, &part.parameters),
            (&mut self.buffers, &part.buffers),
        ] {
            covered.resize(places.of(), false);
            places
                .ranges()
                .iter()
                .for_each(|range| covered[range.clone()].fill(true));
        }
    }

    /// Puts back what a server half has moved of coordinates that nobody trained: moments decay, and would move a
    /// coordinate long after anybody has. So do its vectors, from the second round on.
    pub fn restore(&self, state: &mut ServerState, before: &ServerState) {
        if self.all {
            return;
        }
        let put_back = |now: &mut [f32], before: &[f32], covered: &[bool]| {
            let values = now.iter_mut().zip(before).zip(covered);
            values
                .filter(|(_, covered)| !**covered)
                .for_each(|((now, before), _)| *now = *before);
        };
        put_back(
            &mut state.weights.parameters,
            &before.weights.parameters,
            &self.parameters,
        );
        put_back(&mut state.weights.buffers, &before.weights.buffers, &self.buffers);
        for (name, now) in &mut state.vectors {
            // In the first round there is no before: a new vector is what the server half made it.
            if let Some(before) = before.vectors.get(name) {
                put_back(now, before, &self.parameters);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Trained;
    use proptest::prelude::*;
    use selvedge_models::{Dense, LayerDescription, Layout, ModelDescription};

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

    #[test]
    fn a_coordinate_is_averaged_over_those_who_trained_it_and_stays_where_nobody_did() {
        let layout = layout();
        let mut mean = Box::new(WeightedMean::default());
        mean.fold(update(vec![1.0; 3], 1), &part(&layout, &[0]), 1.0);
        mean.fold(update(vec![5.0; 6], 3), &part(&layout, &[0, 1]), 3.0);
        let mut global = zeros(9);
        global.parameters = (0..9).map(|at| at as f32 + 0.1).collect();
        let result = mean.finish(&global).unwrap().weights.parameters;
        assert_eq!(result, [4.0, 4.0, 5.0, 5.0, 4.1, 5.1, 4.0, 5.0, 8.1]);
    }

    #[test]
    fn a_vector_beside_the_model_counts_as_zero_where_a_client_has_no_unit() {
        let layout = layout();
        let mut mean = Box::new(WeightedMean::default());
        for units in [&[0][..], &[0, 2]] {
            let part = part(&layout, units);
            let vectors = Vectors::from([("v".into(), vec![2.0; part.parameters.count()])]);
            let trained = update(vec![0.0; part.parameters.count()], 1).trained;
            mean.fold(Update { trained, vectors }, &part, 1.0);
        }
        let vectors = mean.finish(&zeros(9)).unwrap().vectors;
        assert_eq!(vectors["v"], [2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0]);
    }

    #[test]
    fn what_nobody_trained_is_put_back_bit_for_bit() {
        let mut coverage = Coverage::default();
        coverage.add(&part(&layout(), &[1]));
        let state = |value: f32| ServerState {
            weights: Weights {
                parameters: vec![value; 9],
                buffers: vec![],
            },
            vectors: Vectors::from([("moment".into(), vec![value; 9])]),
        };
        let (mut now, before) = (state(2.0), state(1.0));
        coverage.restore(&mut now, &before);
        let expected = [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0];
        assert_eq!(now.weights.parameters, expected);
        assert_eq!(now.vectors["moment"], expected);
    }

    proptest! {
        #[test]
        fn the_mean_of_one_update_is_that_update_bit_for_bit(
            values in prop::collection::vec(any::<f32>().prop_filter("finite", |v| v.is_finite()), 1..50),
            examples in 1u64..1 << 29,
        ) {
            let mut mean = Box::new(WeightedMean::default());
            let global = zeros(values.len());
            mean.fold(update(values.clone(), examples), &whole(values.len()), examples as f64);
            let result = mean.finish(&global).unwrap().weights.parameters;
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&result), bits(&values));
        }
    }

    #[test]
    fn the_mean_is_weighted() {
        let mut mean = Box::new(WeightedMean::default());
        let global = zeros(2);
        mean.fold(update(vec![1.0, 0.0], 1), &whole(2), 1.0);
        mean.fold(update(vec![5.0, 4.0], 3), &whole(2), 3.0);
        let aggregate = mean.finish(&global).unwrap();
        assert_eq!(aggregate.weights.parameters, [4.0, 3.0]);
        assert_eq!(aggregate.updates, 2);
    }

    #[test]
    fn vectors_are_averaged_alike() {
        let mut mean = Box::new(WeightedMean::default());
        for (examples, value) in [(1, 1.0), (3, 5.0)] {
            let vectors = Vectors::from([("v".into(), vec![value])]);
            let trained = update(vec![0.0], examples).trained;
            mean.fold(Update { trained, vectors }, &whole(1), examples as f64);
        }
        let global = zeros(1);
        assert_eq!(mean.finish(&global).unwrap().vectors["v"], [3.0]);
    }

    #[test]
    fn the_mean_of_nothing_is_nothing() {
        assert_eq!(Box::new(WeightedMean::default()).finish(&zeros(1)), None);
    }
}
