use std::future::pending;

use selvedge_client::Supply;
use selvedge_coordinator::{Outcome, RoundRecord};

use crate::federation::{Federation, all_finished, send};

/// The records without what the clock measured.
fn timeless(records: &[RoundRecord]) -> Vec<RoundRecord> {
    let mut records = records.to_vec();
    for record in &mut records {
        record.seconds = 0.0;
        if let Some(steps) = &mut record.steps {
            steps.seconds = None;
        }
    }
    records
}

async fn the_same(set: &[&str]) {
    let federation = Federation::new(&[&["clients=5"], set].concat());
    let simulated = federation.simulate();
    let (listener, address) = federation.listen();
    let agents = federation.agents(&address, 0..5);
    let served = federation.serve(listener, pending(), |_| {}).await;
    all_finished(agents).await;
    assert_eq!(served.outcome, Outcome::Completed);
    assert_eq!(served.state, simulated.state);
    assert_eq!(timeless(&served.records), timeless(&simulated.records));
    let first = &served.records[0];
    assert!(first.applied, "{first:?}");
    // A coordinator without the personal layers has nothing to test.
    let is_tested = federation.description.algorithm.personal_layers().is_empty();
    assert!(
        served
            .records
            .last()
            .is_some_and(|last| last.test_loss.is_some() == is_tested)
    );
    assert_eq!(first.failed.values().sum::<usize>(), 0, "{first:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fedavg() {
    the_same(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_scaffold_which_keeps_state_on_the_clients() {
    the_same(&["algorithm.kind=scaffold", "rounds=5"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_some_clients_in_each_round_clipping_and_bf16() {
    the_same(&[
        "cohort.size=3",
        "rounds=6",
        "filters=[{ kind = \"clip\", norm = 0.5 }, { kind = \"bf16\" }]",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_evaluation_by_clients_on_what_they_hold_out() {
    the_same(&["evaluation.by_clients=true", "evaluation.holdout=0.3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_rules_steps_and_filters_that_keep_and_measure() {
    let combinations: [&[&str]; 7] = [
        &[
            "algorithm.kind=scaffold",
            "aggregation={ kind = \"krum\", byzantine = 1, chosen = 3 }",
            "server=[{ kind = \"yogi\" }, { kind = \"sgd\", momentum = 0.5 }]",
            "filters=[{ kind = \"bf16\" }]",
        ],
        &[
            "aggregation.kind=nova",
            "cohort.size=3",
            "filters=[{ kind = \"top-k\", share = 0.2 }]",
        ],
        &[
            "algorithm={ kind = \"fedper\", personal = [\"0\"] }",
            WIDE_LAST,
            "evaluation.by_clients=true",
            "evaluation.holdout=0.3",
        ],
        &[
            "algorithm={ kind = \"fedper\", personal = [\"0\"] }",
            WIDE_LAST,
            "filters=[{ kind = \"top-k\", share = 0.3 }]",
        ],
        &[
            "algorithm.kind=ditto",
            "evaluation.by_clients=true",
            "evaluation.holdout=0.3",
        ],
        &[
            "broadcast.precision=bf16",
            "algorithm.kind=scaffold",
            "server=[{ kind = \"adam\" }]",
            "filters=[{ kind = \"top-k\", share = 0.5 }]",
            "evaluation.by_clients=true",
            "evaluation.holdout=0.3",
        ],
        &[
            "broadcast.precision=bf16",
            WIDE,
            "sub_models.plan.kind=rolling",
            "sub_models.capacities=[{ width = 1.0, share = 0.5 }, { width = 0.5, share = 0.5 }]",
            "filters=[{ kind = \"clip\", norm = 0.5 }, { kind = \"bf16\" }]",
        ],
    ];
    for combination in combinations {
        the_same(&[&["rounds=4"], combination].concat()).await;
    }
}

/// A model whose first layer can be personal.
const WIDE_LAST: &str = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'tanh' }, \
                         { kind = 'dense', units = 3 }] }";

/// A model with a width group of 8 and one of 6, and running statistics.
const WIDE: &str = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'batch-norm' }, \
                    { kind = 'relu' }, { kind = 'dense', units = 6 }, { kind = 'tanh' }, { kind = 'dense', units = 3 }] }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sub_models_of_two_widths_by_every_plan() {
    let plans = [
        "{ kind = 'static' }",
        "{ kind = 'ordered' }",
        "{ kind = 'rolling' }",
        "{ kind = 'random' }",
        "{ kind = 'partitioned', blocks = 2 }",
        "{ kind = 'partitioned', blocks = 2, dealing = 'latin-square' }",
        "{ kind = 'partitioned', blocks = 2, dealing = 'same-for-all' }",
        "{ kind = 'partitioned', blocks = 2, dealing = 'with-replacement', pairing = 'fixed' }",
    ];
    for plan in plans {
        the_same(&[
            WIDE,
            "algorithm.kind=scaffold",
            &format!("sub_models.plan={plan}"),
            "sub_models.capacities=[{ width = 1.0, share = 0.5 }, { width = 0.5, share = 0.5 }]",
        ])
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_units_ranked_by_the_server_static_batch_norm_clipping_and_evaluation_by_clients() {
    the_same(&[
        WIDE,
        "sub_models.plan.kind=magnitude",
        "sub_models.capacities=[{ width = 1.0, share = 0.4 }, { width = 0.5, share = 0.6 }]",
        "sub_models.batch_norm=static",
        "sub_models.scaler=true",
        "sub_models.masked_loss=true",
        "filters=[{ kind = \"clip\", norm = 0.5 }, { kind = \"bf16\" }]",
        "evaluation.by_clients=true",
        "evaluation.holdout=0.3",
        "rounds=6",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_client_whose_own_all_examples_are() {
    let federation = Federation::new(&["clients=1"]);
    let simulated = federation.simulate();
    let (listener, address) = federation.listen();
    let mut agent = federation.agent(&address, 0);
    let Supply::Dealt(examples) = agent.supply else {
        panic!("agents are dealt to");
    };
    agent.supply = Supply::Own(examples);
    let agent = send(agent);
    let served = federation.serve(listener, pending(), |_| {}).await;
    all_finished(vec![agent]).await;
    assert_eq!(served.state, simulated.state);
}

/// A model that can be cut, with running statistics on both sides.
const CUT: &str = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'batch-norm' }, \
                   { kind = 'relu' }, { kind = 'dense', units = 6 }, { kind = 'batch-norm' }, { kind = 'tanh' }, \
                   { kind = 'dense', units = 3 }] }";

/// One in which an example's way depends on nothing else, for methods that run a batch twice.
const PLAIN: &str = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'relu' }, \
                     { kind = 'dense', units = 6 }, { kind = 'tanh' }, { kind = 'dense', units = 3 }] }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_models_that_are_cut_by_every_method() {
    for split in [
        "{ method = { kind = 'sequential' }, cut = 2 }",
        "{ method = { kind = 'splitfed-v1' }, cut = 3 }",
        "{ method = { kind = 'splitfed-v2' }, cut = 3, smashed = 'int8', gradients = 'bf16' }",
        "{ method = { kind = 'splitfed-v2' }, cut = [{ after = 1, share = 0.5 }, { after = 4, share = 0.5 }] }",
        "{ method = { kind = 'parallel' }, cut = 2 }",
        "{ method = { kind = 'gapsl', refresh = 2, sketch = 8 }, cut = 2 }",
        "{ method = { kind = 'parallel' }, cut = 2, labels = 'u-shape' }",
        "{ method = { kind = 'sequential' }, cut = 2, labels = 'u-shape', head = 2 }",
    ] {
        the_same(&[CUT, &format!("split={split}")]).await;
    }
    for split in [
        "{ method = { kind = 'parallel', last_layer_aggregation = 0.5 }, cut = 2, batches = 'global' }",
        "{ method = { kind = 'gapsl', lambda = 1.0, towards = { kind = 'regulariser' } }, cut = 2 }",
        "{ method = { kind = 'gapsl', placement = 'both' }, cut = 2 }",
    ] {
        the_same(&[PLAIN, &format!("split={split}")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_whole_models_sub_models_and_fronts_in_one_round() {
    the_same(&[
        CUT,
        "sub_models={ plan = { kind = 'rolling' }, scaler = true, \
         capacities = [{ width = 0.5, share = 0.5 }, { width = 1.0, share = 0.5 }] }",
        "split={ method = { kind = 'splitfed-v1' }, cut = [{ after = 2, share = 0.6 }, { share = 0.4 }] }",
        "filters=[{ kind = \"clip\", norm = 0.5 }, { kind = \"bf16\" }]",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fronts_of_some_clients_in_each_round() {
    the_same(&[
        CUT,
        "cohort.size=3",
        "rounds=6",
        "evaluation.every=2",
        "split={ method = { kind = 'gapsl', refresh = 2, sketch = 8 }, cut = 2 }",
    ])
    .await;
}
