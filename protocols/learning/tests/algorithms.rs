//! The algorithms against rounds worked by hand, and the equalities that hold between them bit for bit.
//!
//! Clients here have models of one or two parameters and losses `f_i(w) = ½ (w − target_i)²`, so that every number can
//! be followed on paper.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use proptest::prelude::*;
use selvedge_learning::{
    Algorithm, LocalError, LocalSteps, Metrics, Occasion, ServerState, Trained, Update, Vectors,
    aggregation::{Contribution, Coverage},
    algorithms::{Ditto, FedAdam, FedAvg, FedAvgM, FedNova, FedProx, FedYogi, Median, Scaffold},
    local::Correction,
};
use selvedge_models::{Coordinates, Layout, OptimiserDescription, SubModel, Weights};
use selvedge_words::Seed;

/// A client with the loss `½ ‖w − target‖²`, training by plain gradient descent.
struct Quadratic {
    target: Vec<f32>,
    examples: u64,
    steps: u64,
    learning_rate: f32,
}

impl LocalSteps for Quadratic {
    fn train(&mut self, start: &Weights, mut correction: Option<Correction<'_>>) -> Result<Trained, LocalError> {
        let mut weights = start.clone();
        for _ in 0..self.steps {
            let w = &mut weights.parameters;
            let mut gradient: Vec<f32> = w.iter().zip(&self.target).map(|(w, target)| w - target).collect();
            if let Some(correct) = &mut correction {
                correct(w, &mut gradient);
            }
            w.iter_mut()
                .zip(&gradient)
                .for_each(|(w, g)| *w -= self.learning_rate * g);
        }
        Ok(Trained {
            weights,
            examples: self.examples,
            steps: self.steps,
            loss: None,
        })
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate.into()
    }
}

fn client(target: f32) -> Quadratic {
    Quadratic {
        target: vec![target],
        examples: 1,
        steps: 1,
        learning_rate: 0.5,
    }
}

fn state(parameters: &[f32]) -> ServerState {
    ServerState::from(Weights {
        parameters: parameters.to_vec(),
        buffers: vec![],
    })
}

/// All of a model.
fn whole(weights: &Weights) -> SubModel {
    SubModel {
        units: vec![],
        parameters: Coordinates::all(weights.parameters.len()),
        buffers: Coordinates::all(weights.buffers.len()),
    }
}

const OPTIMISER: OptimiserDescription = OptimiserDescription::Sgd {
    learning_rate: 0.5,
    momentum: 0.0,
    weight_decay: 0.0,
    nesterov: false,
};

/// One round with everybody in, by the algorithm's own rule and steps, or else the mean.
fn round(algorithm: &dyn Algorithm, state: &mut ServerState, clients: &mut [(Quadratic, Vectors)], federation: usize) {
    let layout = Layout::default();
    let occasion = Occasion {
        seed: Seed(1),
        round: 1,
        rounds: 1,
        clients: federation,
        cohort: clients.len(),
        client: None,
        layout: &layout,
        optimiser: &OPTIMISER,
    };
    let mut metrics = Metrics::default();
    let broadcast = state.broadcast(algorithm);
    let part = whole(&state.weights);
    let mut aggregator = algorithm.rule().unwrap_or_default().begin();
    let mut coverage = Coverage::default();
    for (local, kept) in clients {
        let context = &mut occasion.context("algorithm", &mut metrics);
        let update: Update = algorithm.client(&broadcast, kept, local, context).unwrap();
        coverage.add(&part);
        aggregator.fold(Contribution {
            client: None,
            version: 1,
            part: &part,
            weight: update.trained.examples as f64,
            update,
        });
    }
    let context = &mut occasion.context("aggregation", &mut metrics);
    let aggregate = aggregator.finish(&state.weights, context).unwrap().unwrap();
    *state = state.moved(algorithm, &[], aggregate, &coverage, &occasion, &mut metrics);
}

/// What the server keeps.
fn kept<'a>(state: &'a ServerState, component: &str, name: &str) -> &'a [f32] {
    state
        .memory
        .of(component)
        .and_then(|vectors| vectors.get(name))
        .unwrap()
}

#[test]
fn scaffold_agrees_with_three_rounds_worked_by_hand() {
    // Two of four clients take part, with targets 0 and 4; η = ½, one step, x₀ = 1.
    let mut clients = [(client(0.0), Vectors::new()), (client(4.0), Vectors::new())];
    let mut state = state(&[1.0]);
    // (x, c, c₁, c₂) after each round
    let by_hand = [
        (1.5, -0.5, 1.0, -3.0),
        (1.5, -0.25, 1.5, -2.5),
        (1.625, -0.25, 1.5, -2.5),
    ];
    for (x, c, c_1, c_2) in by_hand {
        round(
            &Scaffold {
                server_learning_rate: 1.0,
            },
            &mut state,
            &mut clients,
            4,
        );
        assert_eq!(state.weights.parameters, [x]);
        assert_eq!(*kept(&state, "algorithm", "control"), [c]);
        assert_eq!(*clients[0].1.get("control").unwrap(), [c_1]);
        assert_eq!(*clients[1].1.get("control").unwrap(), [c_2]);
    }
}

#[test]
fn scaffold_averages_the_gradient_over_several_steps() {
    // One client, target 0, two steps of η = ½ from 1: y = ¼, and c₁ = (1 − ¼) / (2 · ½) = ¾, the mean of 1 and ½.
    let mut clients = [(
        Quadratic {
            steps: 2,
            ..client(0.0)
        },
        Vectors::new(),
    )];
    let mut state = state(&[1.0]);
    round(
        &Scaffold {
            server_learning_rate: 1.0,
        },
        &mut state,
        &mut clients,
        1,
    );
    assert_eq!(state.weights.parameters, [0.25]);
    assert_eq!(*clients[0].1.get("control").unwrap(), [0.75]);
}

#[test]
fn fed_adam_agrees_with_three_rounds_worked_by_hand() {
    // β₁ = ½, β₂ = ¾, τ = ½ (so v₀ = ¼), η = ½; the clients' mean change is 1, −1, then 2.
    let adam = FedAdam {
        server_learning_rate: 0.5,
        beta1: 0.5,
        beta2: 0.75,
        tau: 0.5,
    };
    let mut state = state(&[0.0]);
    // (change, m, v, x)
    let by_hand = [
        (1.0, 0.5, 0.4375, 0.215_250_44),
        (-1.0, -0.25, 0.578_125, 0.116_071_27),
        (2.0, 0.875, 1.433_593_8, 0.373_829_4),
    ];
    for (change, m, v, x) in by_hand {
        // A step of ½ towards x + 2 · change moves by the change itself.
        let target = state.weights.parameters[0] + 2.0 * change;
        round(&adam, &mut state, &mut [(client(target), Vectors::new())], 1);
        for (found, worked) in [
            (kept(&state, "server.0", "first_moment")[0], m),
            (kept(&state, "server.0", "second_moment")[0], v),
            (state.weights.parameters[0], x),
        ] {
            assert!((found - worked).abs() < 1e-6_f32, "{found} is not {worked}");
        }
    }
}

#[test]
fn fed_yogi_agrees_with_three_rounds_worked_by_hand() {
    // The same changes: v moves by ¼ of the squared change, up where it is smaller and down where it is larger.
    let yogi = FedYogi {
        server_learning_rate: 0.5,
        beta1: 0.5,
        beta2: 0.75,
        tau: 0.5,
    };
    let mut state = state(&[0.0]);
    // (change, m, v, x)
    let by_hand = [
        (1.0, 0.5, 0.5, 0.207_106_78),
        (-0.5, 0.0, 0.4375, 0.207_106_78),
        (2.0, 1.0, 1.4375, 0.501_404_8),
    ];
    for (change, m, v, x) in by_hand {
        let target = state.weights.parameters[0] + 2.0 * change;
        round(&yogi, &mut state, &mut [(client(target), Vectors::new())], 1);
        for (found, worked) in [
            (kept(&state, "server.0", "first_moment")[0], m),
            (kept(&state, "server.0", "second_moment")[0], v),
            (state.weights.parameters[0], x),
        ] {
            assert!((found - worked).abs() < 1e-6_f32, "{found} is not {worked}");
        }
    }
}

#[test]
fn fed_avg_m_agrees_with_three_rounds_worked_by_hand() {
    // β = ½, η = 1; the clients' mean change is 1, 1, then −1: v is 1, 1½, −¼.
    let momentum = FedAvgM {
        server_learning_rate: 1.0,
        momentum: 0.5,
    };
    let mut state = state(&[0.0]);
    for (change, x) in [(1.0, 1.0), (1.0, 2.5), (-1.0, 2.25)] {
        let target = state.weights.parameters[0] + 2.0 * change;
        round(&momentum, &mut state, &mut [(client(target), Vectors::new())], 1);
        assert_eq!(state.weights.parameters, [x]);
    }
}

#[test]
fn fed_nova_agrees_with_a_round_worked_by_hand() {
    // η = ½ from 0: one step towards 4 makes 2, two steps towards −4 make −3; d = 2 and −1½ a step, of equal weights.
    // τ_eff = 1½, and x = 1½ · (2 − 1½) / 2.
    let two_steps = Quadratic {
        steps: 2,
        ..client(-4.0)
    };
    let mut clients = [(client(4.0), Vectors::new()), (two_steps, Vectors::new())];
    let mut state = state(&[0.0]);
    round(&FedNova {}, &mut state, &mut clients, 2);
    assert_eq!(state.weights.parameters, [0.375]);
}

#[test]
fn ditto_agrees_with_two_rounds_worked_by_hand() {
    // Targets 4 and 0, λ = 1, η = ½: w is the mean of 2 and 0, then of 2½ and ½; the first client's v is half-way from 0
    // to 4, then, held near w = 1, 2 + ½ (4 − 2) − ½ (2 − 1).
    let mut clients = [(client(4.0), Vectors::new()), (client(0.0), Vectors::new())];
    let mut state = state(&[0.0]);
    for (w, v) in [(1.0, 2.0), (1.5, 2.5)] {
        round(&Ditto { lambda: 1.0 }, &mut state, &mut clients, 2);
        assert_eq!(state.weights.parameters, [w]);
        assert_eq!(*clients[0].1.get("own").unwrap(), [v]);
    }
}

#[test]
fn the_median_agrees_with_three_rounds_worked_by_hand() {
    // Targets 0, 2 and 100: half-way there from 4 is 2, 3, 52; from 3: 1.5, 2.5, 51.5; from 2.5: 1.25, 2.25, 51.25.
    let mut clients = [0.0, 2.0, 100.0].map(|target| (client(target), Vectors::new()));
    let mut state = state(&[4.0]);
    for x in [3.0, 2.5, 2.25] {
        round(&Median {}, &mut state, &mut clients, 3);
        assert_eq!(state.weights.parameters, [x]);
    }
}

#[test]
fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
    let mut clients = [0.0, 2.0, 6.0, 1000.0].map(|target| (client(target), Vectors::new()));
    let mut state = state(&[0.0]);
    round(&Median {}, &mut state, &mut clients, 4);
    assert_eq!(state.weights.parameters, [2.0]);
}

#[test]
fn fed_prox_holds_clients_near_the_global_model() {
    // One client, target 0, µ = 1, two steps of ½ from 4: to 2, then 2 − ½ (2 + (2 − 4)) = 2.
    let mut clients = [(
        Quadratic {
            steps: 2,
            ..client(0.0)
        },
        Vectors::new(),
    )];
    let mut state = state(&[4.0]);
    round(&FedProx { mu: 1.0 }, &mut state, &mut clients, 1);
    assert_eq!(state.weights.parameters, [2.0]);
}

/// The state's parameters after `rounds` rounds, as bits.
fn bits(algorithm: &dyn Algorithm, targets: &[f32], rounds: usize) -> Vec<u32> {
    let client = |(at, &target): (usize, &f32)| {
        let local = Quadratic {
            target: vec![target, 1.0],
            examples: at as u64 + 1,
            steps: 3,
            learning_rate: 0.3,
        };
        (local, Vectors::new())
    };
    let mut clients: Vec<_> = targets.iter().enumerate().map(client).collect();
    let mut state = state(&[0.7, -0.1]);
    for _ in 0..rounds {
        round(algorithm, &mut state, &mut clients, targets.len());
    }
    state.weights.parameters.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn fed_prox_with_mu_zero_is_fed_avg(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        prop_assert_eq!(bits(&FedProx { mu: 0.0 }, &targets, 3), bits(&FedAvg {}, &targets, 3));
    }

    #[test]
    fn fed_nova_is_fed_avg_where_all_make_as_many_steps(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        // To the rounding of a mean.
        let values = |algorithm: &dyn Algorithm| bits(algorithm, &targets, 3).into_iter().map(f32::from_bits);
        for (nova, avg) in values(&FedNova {}).zip(values(&FedAvg {})) {
            prop_assert!((nova - avg).abs() <= 1e-6 * avg.abs().max(1.0), "{nova} is not {avg}");
        }
    }

    #[test]
    fn ditto_moves_the_global_model_as_fed_avg_does(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        prop_assert_eq!(bits(&Ditto { lambda: 0.5 }, &targets, 3), bits(&FedAvg {}, &targets, 3));
    }

    #[test]
    fn fed_avg_m_without_momentum_is_fed_avg(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        let still = FedAvgM { server_learning_rate: 1.0, momentum: 0.0 };
        prop_assert_eq!(bits(&still, &targets, 3), bits(&FedAvg {}, &targets, 3));
    }

    #[test]
    fn scaffold_begins_with_a_round_of_fed_avg(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        let scaffold = Scaffold { server_learning_rate: 1.0 };
        prop_assert_eq!(bits(&scaffold, &targets, 1), bits(&FedAvg {}, &targets, 1));
    }

    #[test]
    fn one_client_alone_is_plain_gradient_descent(target in -10f32..10.0) {
        let mut local = Quadratic { target: vec![target, 1.0], examples: 1, steps: 3, learning_rate: 0.3 };
        let start = Weights { parameters: vec![0.7, -0.1], buffers: vec![] };
        let plain = local.train(&start, None).unwrap().weights.parameters;
        let plain: Vec<_> = plain.iter().map(|value| value.to_bits()).collect();
        prop_assert_eq!(bits(&FedAvg {}, &[target], 1), plain);
    }
}
