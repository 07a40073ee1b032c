//! The server's part of a cut model: several clients' batches in one pass.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use candle_core::{Device, Tensor};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{BatchTargets, Cut, Loss, ModelDescription, OptimiserDescription, Pieces, SubModel, Weights};
use selvedge_splitting::{
    Alignment, Arrival, Back, SplitMethod,
    alignment::{Placement, Towards},
    methods::{Gapsl, Parallel},
};

const MODEL: &str = "input = [6]
    layers = [
        { kind = 'dense', units = 5 },
        { kind = 'tanh' },
        { kind = 'dense', units = 7 },
        { kind = 'tanh' },
        { kind = 'dense', units = 3 },
    ]";

/// A back after the second layer, with values of its own, and what clients send.
struct Stage {
    model: ModelDescription,
    weights: Weights,
    random: ChaCha8Rng,
}

impl Stage {
    fn new() -> Self {
        let model: ModelDescription = toml::from_str(MODEL).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(3);
        Self {
            weights: Weights::initial(&model, &mut random).unwrap(),
            model,
            random,
        }
    }

    fn back(&self, fronts: &[u32]) -> Back {
        let pieces = Pieces::of(
            &self.model,
            Cut {
                front: fronts[0],
                head: 0,
            },
        )
        .unwrap();
        let own = pieces.of_server(&SubModel::whole(&self.model.layout().unwrap()));
        let fronts: BTreeSet<u32> = fronts.iter().copied().collect();
        let mut back = Back::new(&self.model, &fronts, 0, &OptimiserDescription::sgd(0.5)).unwrap();
        back.load(&own.extract(&self.weights)).unwrap();
        back
    }

    /// What a client sends of so many examples, and their classes.
    fn batch(&mut self, rows: usize, front: u32) -> (Arrival, Vec<u32>) {
        let width = if front == 2 { 5 } else { 7 };
        let values: Vec<f32> = (0..rows * width).map(|_| self.random.random_range(-1.0..1.0)).collect();
        let smashed = Tensor::from_vec(values, (rows, width), &Device::Cpu).unwrap();
        let classes = (0..rows).map(|_| self.random.random_range(0..3)).collect();
        (Arrival { front, smashed }, classes)
    }

    /// A step of these clients: the cut gradients.
    fn step(
        &self,
        back: &mut Back,
        clients: &[(Arrival, Vec<u32>)],
        how: impl Fn(&mut Back, &[Option<Tensor>]) -> Vec<Tensor>,
    ) -> Vec<Vec<f32>> {
        let arrivals = clients.iter().map(|(arrival, _)| arrival.clone()).collect();
        let outputs = back.forward(arrivals, 1, self.random.clone()).unwrap();
        let gradients: Vec<_> = outputs
            .iter()
            .zip(clients)
            .map(|(outputs, (_, classes))| {
                Some(
                    Loss::CrossEntropy
                        .evaluate(outputs, BatchTargets::Classes(classes))
                        .unwrap()
                        .gradient,
                )
            })
            .collect();
        let returned = how(back, &gradients);
        back.update();
        returned
            .iter()
            .map(|tensor| tensor.flatten_all().unwrap().to_vec1().unwrap())
            .collect()
    }
}

fn plain(back: &mut Back, gradients: &[Option<Tensor>]) -> Vec<Tensor> {
    back.backward(gradients).unwrap()
}

/// Parallel split learning with this share of the gradients at the outputs aggregated.
fn aggregating(last_layer_aggregation: f64) -> impl Fn(&mut Back, &[Option<Tensor>]) -> Vec<Tensor> {
    let method = Parallel { last_layer_aggregation };
    move |back, gradients| method.backward(back, gradients).unwrap()
}

fn near(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!((one - other).abs() < 1e-6, "{one} is not {other}");
    }
}

#[test]
fn equal_batches_of_several_clients_move_the_back_as_one_batch_of_all_of_them() {
    let mut stage = Stage::new();
    let clients: Vec<_> = (0..4).map(|_| stage.batch(5, 2)).collect();
    let mut together = stage.back(&[2]);
    stage.step(&mut together, &clients, plain);
    let smashed: Vec<&Tensor> = clients.iter().map(|(arrival, _)| &arrival.smashed).collect();
    let one = Arrival {
        front: 2,
        smashed: Tensor::cat(&smashed, 0).unwrap(),
    };
    let classes = clients.iter().flat_map(|(_, classes)| classes.clone()).collect();
    let mut alone = stage.back(&[2]);
    stage.step(&mut alone, &[(one, classes)], plain);
    near(&together.weights().parameters, &alone.weights().parameters);
}

#[test]
fn each_client_s_cut_gradient_is_of_its_own_mean_loss_whatever_the_others_send() {
    let mut stage = Stage::new();
    let clients: Vec<_> = [3, 8, 1].into_iter().map(|rows| stage.batch(rows, 2)).collect();
    let together = stage.step(&mut stage.back(&[2]), &clients, plain);
    for (client, gradient) in clients.iter().zip(&together) {
        let alone = stage.step(&mut stage.back(&[2]), std::slice::from_ref(client), plain);
        near(gradient, &alone[0]);
    }
}

#[test]
fn a_client_that_is_lost_after_the_forward_counts_as_not_there() {
    let mut stage = Stage::new();
    let clients: Vec<_> = (0..3).map(|_| stage.batch(4, 2)).collect();
    let mut with_loss = stage.back(&[2]);
    let returned = stage.step(&mut with_loss, &clients, |back, gradients| {
        plain(back, &[gradients[0].clone(), None, gradients[2].clone()])
    });
    let mut without = stage.back(&[2]);
    let others = [clients[0].clone(), clients[2].clone()];
    let expected = stage.step(&mut without, &others, plain);
    near(&with_loss.weights().parameters, &without.weights().parameters);
    near(&returned[0], &expected[0]);
    near(&returned[2], &expected[1]);
    assert!(returned[1].iter().all(|value| *value == 0.0));
}

#[test]
fn cuts_at_two_places_train_each_layer_with_those_who_go_through_it() {
    let mut stage = Stage::new();
    let clients = [stage.batch(4, 4), stage.batch(4, 2)];
    let mut both = stage.back(&[2, 4]);
    let returned = stage.step(&mut both, &clients, plain);
    // What the deeper client's cut gives is what it gives by itself, and so is the other's.
    for (front, (client, gradient)) in [4, 2].into_iter().zip(clients.iter().zip(&returned)) {
        let alone = stage.step(&mut stage.back(&[front]), std::slice::from_ref(client), plain);
        near(gradient, &alone[0]);
    }
    // The layer that only one goes through is moved by half of what it is when that one is alone.
    let (mut alone, before) = (stage.back(&[2]), stage.back(&[2]).weights());
    stage.step(&mut alone, &clients[1..], plain);
    let moved = |back: &Back| -> Vec<f32> {
        let after = back.weights().parameters;
        after
            .iter()
            .zip(&before.parameters)
            .map(|(after, before)| after - before)
            .take(5 * 7 + 7)
            .collect()
    };
    let half: Vec<f32> = moved(&alone).iter().map(|moved| moved / 2.0).collect();
    near(&moved(&both), &half);
}

#[test]
fn aggregated_at_the_last_layer_clients_that_are_one_get_what_they_get_without() {
    let mut stage = Stage::new();
    let one = stage.batch(6, 2);
    let clients = vec![one; 3];
    let mut plainly = stage.back(&[2]);
    let expected = stage.step(&mut plainly, &clients, plain);
    for aggregated in [1, 4, 6] {
        let mut back = stage.back(&[2]);
        let how = aggregating(f64::from(aggregated) / 6.0);
        let returned = stage.step(&mut back, &clients, how);
        near(&back.weights().parameters, &plainly.weights().parameters);
        returned
            .iter()
            .zip(&expected)
            .for_each(|(returned, expected)| near(returned, expected));
    }
}

#[test]
fn what_is_aggregated_is_the_same_for_all_and_the_rest_each_client_s_own() {
    let mut stage = Stage::new();
    let clients: Vec<_> = [6, 4, 5].into_iter().map(|rows| stage.batch(rows, 2)).collect();
    // Two of the four that the client with the fewest has.
    let how = aggregating(0.5);
    let returned = stage.step(&mut stage.back(&[2]), &clients, how);
    let expected = stage.step(&mut stage.back(&[2]), &clients, plain);
    for (client, (returned, expected)) in returned.iter().zip(&expected).enumerate() {
        assert_eq!(returned[..10], clients_first(&stage, &clients)[..10], "client {client}");
        near(&returned[10..], &expected[10..]);
    }
}

fn clients_first(stage: &Stage, clients: &[(Arrival, Vec<u32>)]) -> Vec<f32> {
    // Two of the four that the client with the fewest has.
    let how = aggregating(0.5);
    stage.step(&mut stage.back(&[2]), clients, how).swap_remove(0)
}

#[test]
fn aligning_the_back_with_a_lambda_next_to_0_moves_it_as_without_and_otherwise_towards_the_leaders() {
    let mut stage = Stage::new();
    let clients: Vec<_> = [6, 4, 5].into_iter().map(|rows| stage.batch(rows, 2)).collect();
    let aligned = |lambda: f64| {
        let alignment = Alignment {
            lambda,
            placement: Placement::Back,
            towards: Towards::Project { keep_norm: false },
            ..Alignment::default()
        };
        let mut back = stage.back(&[2]);
        let how = |back: &mut Back, gradients: &[Option<Tensor>]| Gapsl(alignment).backward(back, gradients).unwrap();
        let returned = stage.step(&mut back, &clients, how);
        (back, returned)
    };
    let mut plainly = stage.back(&[2]);
    let expected = stage.step(&mut plainly, &clients, plain);
    let (back, returned) = aligned(1e-12);
    near(&back.weights().parameters, &plainly.weights().parameters);
    returned
        .iter()
        .zip(&expected)
        .for_each(|(returned, expected)| near(returned, expected));
    let before = stage.back(&[2]).weights().parameters;
    let along = |back: &Back| -> f64 {
        let leader = back.leader.direction().unwrap();
        let after = back.weights().parameters;
        let moved = before
            .iter()
            .zip(&after)
            .map(|(before, after)| f64::from(before - after));
        moved
            .zip(leader)
            .map(|(moved, leader)| moved * f64::from(*leader))
            .sum()
    };
    let (turned, _) = aligned(1.0);
    assert!(along(&turned) > along(&back));
}
