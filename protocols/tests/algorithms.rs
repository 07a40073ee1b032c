//! The algorithms against rounds worked by hand, and the equalities that hold between them bit for bit.
//!
//! Clients here have models of one or two parameters and losses `f_i(w) = ½ (w − target_i)²`, so that every number can
//! be followed on paper.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use proptest::prelude::*;
use selvedge_models::{Coordinates, SubModel, Weights};
use selvedge_protocols::{
    Algorithm, Federation, LocalError, LocalSteps, ServerState, Trained, Update, Vectors,
    algorithm::Correction,
    algorithms::{FedAdam, FedAvg, FedProx, Median, Scaffold},
};

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
    let weights = Weights {
        parameters: parameters.to_vec(),
        buffers: vec![],
    };
    ServerState {
        weights,
        vectors: Vectors::new(),
    }
}

/// All of a model.
fn whole(weights: &Weights) -> SubModel {
    SubModel {
        units: vec![],
        parameters: Coordinates::all(weights.parameters.len()),
        buffers: Coordinates::all(weights.buffers.len()),
    }
}

/// One round with everybody in.
fn round(
    algorithm: &dyn Algorithm,
    state: &mut ServerState,
    clients: &mut [(Quadratic, Vectors)],
    federation: Federation,
) {
    let broadcast = state.broadcast(algorithm);
    let mut aggregator = algorithm.aggregator();
    for (local, kept) in clients {
        let update: Update = algorithm.client(&broadcast, kept, local).unwrap();
        let examples = update.trained.examples as f64;
        aggregator.fold(update, &whole(&state.weights), examples);
    }
    let aggregate = aggregator.finish(&state.weights).unwrap();
    algorithm.server(state, aggregate, federation);
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
            Federation { clients: 4 },
        );
        assert_eq!(state.weights.parameters, [x]);
        assert_eq!(state.vectors["control"], [c]);
        assert_eq!(clients[0].1["control"], [c_1]);
        assert_eq!(clients[1].1["control"], [c_2]);
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
        Federation { clients: 1 },
    );
    assert_eq!(state.weights.parameters, [0.25]);
    assert_eq!(clients[0].1["control"], [0.75]);
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
        round(
            &adam,
            &mut state,
            &mut [(client(target), Vectors::new())],
            Federation { clients: 1 },
        );
        for (found, worked) in [
            (state.vectors["first_moment"][0], m),
            (state.vectors["second_moment"][0], v),
            (state.weights.parameters[0], x),
        ] {
            assert!((found - worked).abs() < 1e-6_f32, "{found} is not {worked}");
        }
    }
}

#[test]
fn the_median_agrees_with_three_rounds_worked_by_hand() {
    // Targets 0, 2 and 100: half-way there from 4 is 2, 3, 52; from 3: 1.5, 2.5, 51.5; from 2.5: 1.25, 2.25, 51.25.
    let mut clients = [0.0, 2.0, 100.0].map(|target| (client(target), Vectors::new()));
    let mut state = state(&[4.0]);
    for x in [3.0, 2.5, 2.25] {
        round(&Median {}, &mut state, &mut clients, Federation { clients: 3 });
        assert_eq!(state.weights.parameters, [x]);
    }
}

#[test]
fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
    let mut clients = [0.0, 2.0, 6.0, 1000.0].map(|target| (client(target), Vectors::new()));
    let mut state = state(&[0.0]);
    round(&Median {}, &mut state, &mut clients, Federation { clients: 4 });
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
    round(
        &FedProx { mu: 1.0 },
        &mut state,
        &mut clients,
        Federation { clients: 1 },
    );
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
        round(
            algorithm,
            &mut state,
            &mut clients,
            Federation { clients: targets.len() },
        );
    }
    state.weights.parameters.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn fed_prox_with_mu_zero_is_fed_avg(targets in prop::collection::vec(-10f32..10.0, 1..8)) {
        prop_assert_eq!(bits(&FedProx { mu: 0.0 }, &targets, 3), bits(&FedAvg {}, &targets, 3));
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
