//! Rules of aggregation that choose among updates, and what they say of it.

#![allow(clippy::unwrap_used)] // What cannot go on must fail.

use proptest::prelude::*;
use selvedge_learning::{
    Metrics, Occasion, Trained,
    aggregation::{AGGREGATION, Aggregate, AggregationRule, Contribution, Krum, Mean, Median, TooFew},
};
use selvedge_models::{Coordinates, Layout, OptimiserDescription, SubModel, Weights};
use selvedge_words::{ClientName, Seed};

const OPTIMISER: OptimiserDescription = OptimiserDescription::Sgd {
    learning_rate: 0.1,
    momentum: 0.0,
    weight_decay: 0.0,
    nesterov: false,
};

/// What clients with one update each come to, and what the rule has measured.
fn aggregate(rule: &dyn AggregationRule, updates: &[Vec<f32>]) -> (Result<Option<Aggregate>, TooFew>, Metrics) {
    let length = updates.first().map_or(1, Vec::len);
    let part = SubModel {
        units: vec![],
        parameters: Coordinates::all(length),
        buffers: Coordinates::all(0),
    };
    let mut aggregator = rule.begin();
    for (client, parameters) in updates.iter().enumerate() {
        let trained = Trained {
            weights: Weights {
                parameters: parameters.clone(),
                buffers: vec![],
            },
            examples: 1,
            steps: 1,
            loss: None,
        };
        aggregator.fold(Contribution {
            client: Some(&ClientName::numbered(client)),
            version: 1,
            part: &part,
            weight: 1.0,
            update: trained.into(),
        });
    }
    let layout = Layout::default();
    let occasion = Occasion {
        seed: Seed(1),
        round: 1,
        rounds: 1,
        clients: updates.len(),
        cohort: updates.len(),
        client: None,
        layout: &layout,
        optimiser: &OPTIMISER,
    };
    let mut metrics = Metrics::default();
    let global = Weights {
        parameters: vec![0.0; length],
        buffers: vec![],
    };
    let result = aggregator.finish(&global, &mut occasion.context(AGGREGATION, &mut metrics));
    (result, metrics)
}

fn chosen(metrics: &Metrics) -> Vec<ClientName> {
    let is_chosen = |client: &&ClientName| metrics.clients[*client].contains_key("aggregation.chosen");
    metrics.clients.keys().filter(is_chosen).cloned().collect()
}

#[test]
fn krum_chooses_the_update_whose_neighbours_are_nearest_and_says_whose_it_is() {
    // n = 5, f = 1: two neighbours. Scores by hand: of 0: 1 + 4 = 5, of 1: 1 + 1 = 2, of 2: 1 + 4 = 5, of 4: 4 + 9 = 13.
    let updates = [0.0, 1.0, 2.0, 4.0, 1000.0].map(|value| vec![value]);
    let (result, metrics) = aggregate(
        &Krum {
            byzantine: 1,
            chosen: 1,
        },
        &updates,
    );
    assert_eq!(result.unwrap().unwrap().weights.parameters, [1.0]);
    assert_eq!(chosen(&metrics), [ClientName::numbered(1)]);
}

#[test]
fn multi_krum_is_the_mean_of_those_it_chooses() {
    let updates = [0.0, 1.0, 2.0, 4.0, 1000.0].map(|value| vec![value]);
    let (result, metrics) = aggregate(
        &Krum {
            byzantine: 1,
            chosen: 3,
        },
        &updates,
    );
    assert_eq!(result.unwrap().unwrap().weights.parameters, [1.0]);
    assert_eq!(chosen(&metrics), [0, 1, 2].map(ClientName::numbered));
}

#[test]
fn krum_refuses_a_round_with_too_few_updates() {
    let krum = Krum {
        byzantine: 1,
        chosen: 1,
    };
    let (result, _) = aggregate(&krum, &[1.0, 2.0, 3.0, 4.0].map(|value| vec![value]));
    assert_eq!(result, Err(TooFew { needed: 5, came: 4 }));
    assert_eq!(aggregate(&krum, &[]).0, Ok(None));
    assert!(krum.problem(4, &OPTIMISER).is_some());
    assert_eq!(krum.problem(5, &OPTIMISER), None);
}

proptest! {
    #[test]
    fn multi_krum_that_chooses_all_is_the_mean_bit_for_bit(
        updates in prop::collection::vec(prop::collection::vec(-10f32..10.0, 3), 3..8),
    ) {
        let krum = Krum { byzantine: 0, chosen: updates.len() };
        prop_assert_eq!(aggregate(&krum, &updates).0, aggregate(&Mean {}, &updates).0);
    }

    #[test]
    fn a_minority_moves_neither_median_nor_krum_out_of_the_others_range(
        honest in prop::collection::vec(-1f32..1.0, 4..7),
        byzantine in prop::collection::vec(-1e6f32..1e6, 1..2),
    ) {
        let updates: Vec<Vec<f32>> = byzantine.iter().chain(&honest).map(|value| vec![*value]).collect();
        let lowest = honest.iter().copied().fold(f32::MAX, f32::min);
        let highest = honest.iter().copied().fold(f32::MIN, f32::max);
        let krum = Krum { byzantine: 1, chosen: 1 };
        for rule in [&Median {} as &dyn AggregationRule, &krum] {
            let value = aggregate(rule, &updates).0.unwrap().unwrap().weights.parameters[0];
            prop_assert!((lowest - 1.0..=highest + 1.0).contains(&value), "{value}");
        }
    }
}
