//! Rules of aggregation, server steps, filters and algorithms that a description combines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

mod simulated;

use std::collections::BTreeMap;

use selvedge_coordinator::RoundRecord;
use selvedge_protocols::ServerState;

use self::simulated::Ran;

const DESCRIPTION: &str = r#"
    rounds = 3
    clients = 6
    data = { source = "fashion-mnist-small" }
    model = { input = [4], layers = [{ kind = "dense", units = 8 }, { kind = "relu" }, { kind = "dense", units = 3 }] }
    training = { steps = 4, batch_size = 5, optimiser = { kind = "sgd", learning_rate = 0.1 } }
"#;

/// Parameters of the model: 40 and 27.
const PARAMETERS: u64 = 67;
const LAST_LAYER: u64 = 27;

fn problems(set: &[&str]) -> String {
    simulated::parse(DESCRIPTION, set).unwrap_err()
}

fn simulate(set: &[&str]) -> (ServerState, Vec<RoundRecord>) {
    let Ran { state, records, .. } = simulated::run(DESCRIPTION, set, 2);
    (state, records)
}

#[test]
fn a_name_for_a_combination_is_that_combination_bit_for_bit() {
    let names = [
        (
            "algorithm={ kind = 'fedadam', server_learning_rate = 0.1, beta1 = 0.5 }",
            "server=[{ kind = 'adam', learning_rate = 0.1, beta1 = 0.5 }]",
        ),
        ("algorithm.kind=fedyogi", "server=[{ kind = 'yogi' }]"),
        ("algorithm.kind=fedavgm", "server=[{ kind = 'sgd', momentum = 0.9 }]"),
        ("algorithm.kind=median", "aggregation.kind=median"),
        ("algorithm.kind=fednova", "aggregation.kind=nova"),
    ];
    for (name, combination) in names {
        let unequal = "partition={ kind = 'dirichlet', alpha = 0.3 }";
        assert_eq!(
            simulate(&[unequal, name]).0,
            simulate(&[unequal, combination]).0,
            "{name}"
        );
    }
}

#[test]
fn server_steps_are_applied_in_order() {
    let half = "{ kind = 'sgd', learning_rate = 0.5 }";
    let adam = "{ kind = 'adam' }";
    let run = |steps: &str| simulate(&[&format!("server=[{steps}]")]).0.weights;
    assert_ne!(run(&format!("{half}, {adam}")), run(&format!("{adam}, {half}")));
    // A step that goes all the way changes nothing.
    assert_eq!(run("{ kind = 'sgd' }"), simulate(&[]).0.weights);
}

#[test]
fn algorithms_rules_and_steps_are_combined_freely() {
    for algorithm in ["fedprox", "scaffold", "ditto", "fedavg"] {
        for rule in [
            "{ kind = 'krum', byzantine = 1 }",
            "{ kind = 'median' }",
            "{ kind = 'nova' }",
        ] {
            let algorithm = format!("algorithm.kind={algorithm}");
            let (aggregation, server) = (format!("aggregation={rule}"), "server=[{ kind = 'yogi' }]");
            let (state, records) = simulate(&[&algorithm, &aggregation, server]);
            assert!(records.iter().all(|record| record.applied), "{algorithm} {rule}");
            assert!(state.memory.of("algorithm").is_none_or(|kept| kept.is_finite()));
        }
    }
}

#[test]
fn krum_says_in_the_records_whom_it_chose() {
    let (_, records) = simulate(&["aggregation={ kind = 'krum', byzantine = 1, chosen = 2 }"]);
    for record in records {
        let chosen = record
            .client_metrics
            .values()
            .filter(|metrics| metrics["aggregation.chosen"] == 1.0);
        assert_eq!(chosen.count(), 2, "{record:?}");
    }
}

#[test]
fn scaffold_with_bf16_sends_half_of_what_it_sends_without() {
    let bytes = |set: &[&str]| simulate(&[&["algorithm.kind=scaffold"], set].concat()).1[1].bytes_up;
    // Sections begin on 64-byte boundaries: of 67 values, 268 bytes and 320, or 134 and 192.
    assert_eq!(bytes(&[]), 6 * (320 + 4 * PARAMETERS));
    assert_eq!(bytes(&["filters=[{ kind = 'bf16' }]"]), 6 * (192 + 2 * PARAMETERS));
}

#[test]
fn a_broadcast_in_16_bits_takes_half_the_bytes_and_steps_smaller_than_they_can_tell_add_up() {
    let run = |set: &[&str]| simulate(&[&["algorithm.kind=scaffold"], set].concat());
    let narrow = "broadcast.precision=bf16";
    let bytes = |set: &[&str]| run(set).1[1].bytes_down;
    assert_eq!(bytes(&[]), 6 * (320 + 4 * PARAMETERS));
    assert_eq!(bytes(&[narrow]), 6 * (192 + 2 * PARAMETERS));

    // A round moves no parameter by as much as two neighbouring bf16 differ, but for those next to 0.
    let slowly = ["rounds=40", "training.optimiser.learning_rate=1e-5"];
    let moved = |set: &[&str]| {
        let after = |rounds: &str| run(&[&slowly, set, &[rounds]].concat()).0.weights.parameters.clone();
        let (first, last) = (after("rounds=1"), after("rounds=40"));
        first
            .iter()
            .zip(last)
            .map(|(first, last)| last - first)
            .collect::<Vec<_>>()
    };
    let (as_it_is, narrowly) = (moved(&[]), moved(&[narrow]));
    let norm = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>().sqrt();
    let apart: Vec<f32> = as_it_is.iter().zip(&narrowly).map(|(one, other)| one - other).collect();
    assert!(
        norm(&apart) < 0.1 * norm(&as_it_is),
        "{} of {}",
        norm(&apart),
        norm(&as_it_is)
    );
}

#[test]
fn personal_layers_cost_no_bytes_and_clients_are_better_off_with_their_own() {
    let skewed = [
        "partition={ kind = 'shards', per_client = 1 }",
        "evaluation.by_clients=true",
        "evaluation.holdout=0.3",
    ];
    let skewed = &skewed[..];
    let (shared, common) = simulate(&[skewed, &["rounds=8"]].concat());
    let fed_per = ["algorithm={ kind = 'fedper', personal = ['2'] }", "rounds=8"];
    let (own, personal) = simulate(&[skewed, &fed_per].concat());
    for (common, personal) in common.iter().zip(&personal) {
        assert_eq!(common.bytes_up, 6 * 4 * PARAMETERS);
        assert_eq!(personal.bytes_up, 6 * 4 * (PARAMETERS - LAST_LAYER));
        assert!(personal.bytes_down < common.bytes_down);
    }
    let last = |records: &[RoundRecord]| records.last().and_then(|record| record.clients_accuracy).unwrap();
    assert!(last(&personal) > last(&common), "{} {}", last(&personal), last(&common));
    // The coordinator's own layer is as it was drawn.
    let places = own.weights.parameters.len() - LAST_LAYER as usize..;
    assert_ne!(
        own.weights.parameters[..places.start],
        shared.weights.parameters[..places.start]
    );
    let (untrained, _) = simulate(&["rounds=1", "training.optimiser.learning_rate=1e-30"]);
    assert_eq!(
        own.weights.parameters[places.clone()],
        untrained.weights.parameters[places]
    );
}

#[test]
fn ditto_moves_the_global_model_as_fedavg_does_and_clients_evaluate_their_own() {
    let skewed = [
        "partition={ kind = 'shards', per_client = 1 }",
        "evaluation.by_clients=true",
        "evaluation.holdout=0.3",
    ];
    let (avg, common) = simulate(&skewed);
    let (ditto, own) = simulate(&[&skewed[..], &["algorithm.kind=ditto"]].concat());
    assert_eq!(ditto.weights, avg.weights);
    assert_ne!(own[2].clients_loss, common[2].clients_loss);
}

#[test]
fn top_k_sends_a_share_of_the_bytes_and_of_all_of_them_nothing_is_lost() {
    let (_, records) = simulate(&["filters=[{ kind = 'top-k', share = 0.1 }]"]);
    // 7 of 67 values, with their places.
    assert!(records.iter().all(|record| record.bytes_up == 6 * 7 * 8), "{records:?}");
    let all = simulate(&["filters=[{ kind = 'top-k', share = 1.0 }]"]).0.weights;
    for (sparse, dense) in all.parameters.iter().zip(&simulate(&[]).0.weights.parameters) {
        assert!((sparse - dense).abs() < 1e-6, "{sparse} {dense}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_what_to_do() {
    let refused: BTreeMap<&[&str], &str> = BTreeMap::from([
        (
            &["algorithm.kind=median", "aggregation.kind=nova"][..],
            "is a name for `median`",
        ),
        (
            &["aggregation.kind=median", "aggregation.weighting=examples"],
            "all updates count alike",
        ),
        (
            &["algorithm.kind=median", "aggregation.weighting=examples"],
            "all updates count alike",
        ),
        (
            &["aggregation={ kind = 'krum', byzantine = 2 }"],
            "a round needs 7, and has 6",
        ),
        (
            &["aggregation={ kind = 'krum', byzantine = 1, chosen = 6 }"],
            "6 is not from 1 to 5",
        ),
        (
            &["aggregation={ kind = 'krum' }"],
            "aggregation: missing key `byzantine`",
        ),
        (&["aggregation={ kind = 'kram' }"], "did you mean `krum`"),
        (
            &["server=[{ kind = 'sgd', momentum = 1.0 }]"],
            "server[0].momentum: 1 is not in [0, 1)",
        ),
        (&["server=[{ kind = 'adam', beta = 1.0 }]"], "did you mean `beta1`"),
        (
            &["filters=[{ kind = 'clip', norm = 1.0 }, { kind = 'top-k', share = 0.1 }]"],
            "can send any",
        ),
        (
            &["filters=[{ kind = 'top-k', share = 0.1 }, { kind = 'bf16' }]"],
            "nothing can follow",
        ),
        (
            &["algorithm={ kind = 'fedper', personal = ['1'] }"],
            "no layer \"1\" with parameters",
        ),
        (
            &["algorithm={ kind = 'fedper', personal = ['0', '2'] }"],
            "nothing is left",
        ),
        (
            &[
                "aggregation.kind=nova",
                "sub_models={ plan = { kind = 'rolling' }, capacities = [{ width = 0.5, share = 1.0 }] }",
            ],
            "compares whole models",
        ),
        (
            &[
                "algorithm.kind=ditto",
                "sub_models={ plan = { kind = 'rolling' }, capacities = [{ width = 0.5, share = 1.0 }] }",
            ],
            "have models of their own",
        ),
    ]);
    for (set, message) in refused {
        let said = problems(set);
        assert!(said.contains(message), "{set:?}: {said}");
    }
}
