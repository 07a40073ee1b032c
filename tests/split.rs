//! Runs in which models are cut: clients train the front, the coordinator the back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::sync::Arc;

use selvedge_coordinator::{Progress, RoundRecord, engine::Fronts};
use selvedge_data::TrainAndTest;
use selvedge_models::{Preset, Weights};
use selvedge_protocols::{Description, Purpose, ServerState};
use selvedge_simulations::Simulation;

/// A few clients, a model with norms and dropout on both sides of most cuts, the built-in images.
const DESCRIPTION: &str = r#"
    rounds = 2
    clients = 4
    data = { source = "fashion-mnist-small" }
    partition = { kind = "dirichlet", alpha = 0.5 }
    evaluation = { every = 1000 }
    [model]
    input = [1, 28, 28]
    layers = [
        { kind = "average-pool2d", kernel = 4 },
        { kind = "conv2d", channels = 4, kernel = 3, padding = 1 },
        { kind = "batch-norm" },
        { kind = "relu" },
        { kind = "dropout", rate = 0.2 },
        { kind = "conv2d", channels = 8, kernel = 3, padding = 1 },
        { kind = "batch-norm" },
        { kind = "flatten" },
        { kind = "dense", units = 12 },
        { kind = "dropout", rate = 0.5 },
        { kind = "dense", units = 10 },
    ]
    [training]
    steps = 3
    batch_size = 8
    optimiser = { kind = "sgd", learning_rate = 0.1, momentum = 0.5 }
"#;

/// For methods that run the back on a batch more than once: there is no dropout in it.
const WITHOUT_DROPOUT: &str = "model={ preset = 'lenet-5' }";

const METHODS: [&str; 6] = [
    "{ kind = 'sequential' }",
    "{ kind = 'splitfed-v1' }",
    "{ kind = 'splitfed-v2' }",
    "{ kind = 'parallel' }",
    "{ kind = 'parallel', last_layer_aggregation = 0.5 }",
    "{ kind = 'gapsl', refresh = 2, sketch = 16 }",
];

fn description(set: &[&str]) -> Arc<Description> {
    let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(Description::parse(DESCRIPTION, "test", &set).unwrap())
}

fn split(method: &str, rest: &str) -> String {
    format!("split={{ method = {method}, {rest} }}")
}

/// What is left of a run.
struct Ran {
    state: ServerState,
    records: Vec<RoundRecord>,
    fronts: Fronts,
}

impl Ran {
    /// The model of a client: the back with the front that it keeps, if it does.
    fn model(&self, client: usize) -> Weights {
        let mut weights = Weights::clone(&self.state.weights);
        if let Some((part, front)) = self.fronts.values().nth(client) {
            part.coordinates.merge(front, &mut weights);
        }
        weights
    }
}

fn simulate(description: &Arc<Description>, workers: usize) -> Ran {
    run(description, workers, false)
}

fn run(description: &Arc<Description>, workers: usize, is_tested: bool) -> Ran {
    let split: TrainAndTest = description.data.load("".as_ref()).unwrap();
    let dealt = description.deal(&split.train).unwrap();
    let simulation = Simulation {
        description: description.clone(),
        train: &split.train,
        test: split.test.as_ref().filter(|_| is_tested),
        shares: &dealt.shares,
        held_out: &dealt.held_out,
        workers,
        initial: None,
        resume: None,
        snapshots: false,
        stop: None,
    };
    let (mut records, mut last) = (Vec::new(), Fronts::new());
    let (state, _) = simulation
        .run(&mut |progress| {
            if let Progress::Record { record, fronts, .. } = progress {
                last.clone_from(fronts);
                let mut record = record.clone();
                record.seconds = 0.0;
                records.push(record);
            }
        })
        .unwrap();
    Ran {
        state,
        records,
        fronts: last,
    }
}

#[test]
fn with_one_client_every_preset_cut_anywhere_is_the_uncut_model_bit_for_bit() {
    for preset in Preset::ALL {
        let preset = format!("model={{ preset = '{preset}' }}");
        let set = [
            &preset,
            "clients=1",
            "rounds=1",
            "training.steps=1",
            "training.batch_size=2",
        ];
        let uncut = simulate(&description(&set), 1);
        let layers = description(&set).model.layers.len();
        for cut in 1..layers {
            let v1 = split("{ kind = 'splitfed-v1' }", &format!("cut = {cut}"));
            let text = [&set[..], &[&v1]].concat();
            let Ok(description) = Description::parse(
                DESCRIPTION,
                "test",
                &text.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>(),
            ) else {
                // It leaves the server nothing to train.
                continue;
            };
            assert!(
                simulate(&Arc::new(description), 1).state == uncut.state,
                "{preset} cut after {cut}"
            );
        }
    }
}

#[test]
fn with_one_client_every_method_is_the_uncut_run_bit_for_bit() {
    let uncut = simulate(&description(&["clients=1"]), 1);
    for method in &METHODS[..4] {
        for cut in 1..=10 {
            let cut_run = simulate(&description(&["clients=1", &split(method, &format!("cut = {cut}"))]), 1);
            assert!(cut_run.model(0) == *uncut.state.weights, "{method} cut after {cut}");
            let losses = |ran: &Ran| ran.records.iter().map(|record| record.train_loss).collect::<Vec<_>>();
            assert_eq!(losses(&cut_run), losses(&uncut), "{method} cut after {cut}");
            assert_eq!(cut_run.records[0].steps.as_ref().unwrap().made, 3);
        }
    }
}

#[test]
fn fronts_that_are_sent_to_be_evaluated_go_on_from_where_they_are() {
    // But for the one that runs the back again, for which there is dropout in the model.
    for method in METHODS.iter().filter(|method| !method.contains("aggregation")) {
        let run = |every: &str| {
            let set = ["rounds=3", "clients=2", every, &split(method, "cut = 4")];
            simulate(&description(&set), 1)
        };
        let (often, once) = (run("evaluation.every=1"), run("evaluation.every=3"));
        assert_eq!(often.state.weights, once.state.weights, "{method}");
        assert!(often.model(1) == once.model(1), "{method}");
    }
}

#[test]
fn in_a_u_shape_everything_is_as_with_labels_sent_bit_for_bit() {
    // With aggregation at the last layer, dropout in the server's layers meets its examples in another order.
    for method in METHODS.into_iter().filter(|method| !method.contains("aggregation")) {
        for head in [1, 3] {
            let sent = simulate(&description(&[&split(method, "cut = 4")]), 2);
            let u_shape = format!("cut = 4, labels = 'u-shape', head = {head}");
            let at_home = simulate(&description(&["clients=1", &split(method, &u_shape)]), 2);
            let one = simulate(&description(&["clients=1", &split(method, "cut = 4")]), 2);
            assert!(at_home.model(0) == one.model(0), "{method}, {head}");
            // With several clients each has a head of its own: no longer the same model, but one that is trained.
            let several = simulate(&description(&[&split(method, &u_shape)]), 2);
            assert!(several.model(0) != initial(&description(&[])));
            assert_eq!(several.records.len(), sent.records.len());
        }
    }
}

fn initial(description: &Description) -> Weights {
    let mut random = description.seed.stream(Purpose::Initialisation);
    Weights::initial(&description.model, &mut random).unwrap()
}

#[test]
fn splitfed_v1_is_fedavg_bit_for_bit_wherever_each_client_s_model_is_cut() {
    let fedavg = simulate(&description(&[]), 2);
    for cut in [
        "1",
        "6",
        "10",
        "[{ after = 2, share = 0.5 }, { after = 7, share = 0.5 }]",
    ] {
        let v1 = simulate(
            &description(&[&split("{ kind = 'splitfed-v1' }", &format!("cut = {cut}"))]),
            2,
        );
        assert!(v1.state == fedavg.state, "cut {cut}");
    }
    // Some train the whole model, and some the front of it.
    let cut = "cut = [{ after = 3, share = 0.5 }, { share = 0.5 }]";
    let mixed = simulate(&description(&[&split("{ kind = 'splitfed-v1' }", cut)]), 2);
    assert!(mixed.state == fedavg.state, "mixed");
    // With FedAdam on the server too.
    let adam = "algorithm={ kind = 'fedadam', server_learning_rate = 0.01 }";
    let whole = simulate(&description(&[adam]), 2);
    let v1 = simulate(&description(&[adam, &split("{ kind = 'splitfed-v1' }", "cut = 4")]), 2);
    assert!(v1.state == whole.state);
}

#[test]
fn a_whole_model_a_sub_model_and_a_front_sit_in_one_round() {
    for scaler in [false, true] {
        three_kinds(scaler);
    }
}

fn three_kinds(scaler: bool) {
    let widths = format!(
        "sub_models={{ plan = {{ kind = 'rolling' }}, scaler = {scaler}, \
         capacities = [{{ width = 0.5, share = 0.5 }}, {{ width = 1.0, share = 0.5 }}] }}"
    );
    let widths = widths.as_str();
    let without = simulate(&description(&["clients=8", widths]), 2);
    // Cuts and widths are dealt apart, so that all four kinds are there: cut or not, thinned or not.
    let cut = "cut = [{ after = 3, share = 0.5 }, { share = 0.5 }]";
    let set = ["clients=8", widths, &split("{ kind = 'splitfed-v1' }", cut)];
    let mixed = simulate(&description(&set), 2);
    assert!(mixed.state == without.state);
    assert!(mixed.records[0].steps.as_ref().unwrap().made > 0);
    assert_eq!(mixed.records[0].completed, 8);
    for workers in [1, 4] {
        let again = simulate(&description(&set), workers);
        assert!(
            again.state == mixed.state && again.records == mixed.records,
            "{workers} workers"
        );
    }
}

#[test]
fn with_one_local_step_splitfed_v1_is_one_step_down_the_gradient_of_all_examples() {
    let set = [
        "rounds=1",
        "training.steps=1",
        "training.optimiser={ kind = 'sgd', learning_rate = 0.1 }",
    ];
    let fedsgd = simulate(&description(&set), 1);
    let v1 = simulate(
        &description(&[&set[..], &[&split("{ kind = 'splitfed-v1' }", "cut = 6")]].concat()),
        1,
    );
    assert!(v1.state == fedsgd.state);
    assert!(*v1.state.weights != initial(&description(&set)));
}

#[test]
fn two_unequal_cuts_in_one_federation_give_the_same_back() {
    let set = ["model={ preset = 'lenet-5' }", "rounds=1", "training.steps=1"];
    for method in ["{ kind = 'parallel' }", "{ kind = 'splitfed-v2' }"] {
        let one = simulate(&description(&[&set[..], &[&split(method, "cut = 6")]].concat()), 2);
        let cut = "cut = [{ after = 3, share = 0.5 }, { after = 6, share = 0.5 }]";
        let two = simulate(&description(&[&set[..], &[&split(method, cut)]].concat()), 2);
        let parts = description(&set).parts().unwrap();
        let back = parts
            .layout()
            .parameters
            .iter()
            .find(|entry| entry.name.starts_with("7."))
            .unwrap();
        let back = |ran: &Ran| ran.state.weights.parameters[back.offset..].to_vec();
        assert!(back(&one) == back(&two), "{method}");
    }
}

#[test]
fn every_method_gives_the_same_with_1_2_and_4_workers() {
    for method in METHODS {
        for rest in ["cut = 4", "cut = 4, smashed = 'int8', gradients = 'bf16'"] {
            let split = split(method, rest);
            let set = [WITHOUT_DROPOUT, &split];
            let description = description(if method.contains("aggregation") {
                &set
            } else {
                &set[1..]
            });
            let one = simulate(&description, 1);
            for workers in [2, 4] {
                let other = simulate(&description, workers);
                assert!(one.state == other.state, "{method}");
                assert_eq!(one.records, other.records, "{method}");
                assert!(one.model(2) == other.model(2), "{method}");
            }
        }
    }
}

#[test]
fn alignment_with_lambda_0_and_aggregation_of_nothing_are_parallel_split_learning_bit_for_bit() {
    let plain = simulate(&description(&[&split("{ kind = 'parallel' }", "cut = 4")]), 2);
    for method in [
        "{ kind = 'gapsl', lambda = 0.0, placement = 'both' }",
        "{ kind = 'parallel', last_layer_aggregation = 0.0 }",
        "{ kind = 'gapsl', lambda = 0.0 }",
        "{ kind = 'gapsl', lambda = 0.0, towards = { kind = 'regulariser' } }",
    ] {
        let other = simulate(&description(&[&split(method, "cut = 4")]), 2);
        assert!(other.state == plain.state, "{method}");
        assert_eq!(other.fronts.len(), 4);
        (0..4).for_each(|client| assert!(other.model(client) == plain.model(client), "{method}"));
    }
}

#[test]
fn every_selector_placement_and_way_of_turning_trains() {
    let plain = simulate(&description(&[&split("{ kind = 'parallel' }", "cut = 4")]), 2);
    for setting in [
        "selector = { kind = 'above-mean' }",
        "selector = { kind = 'threshold', cosine = 0.1 }",
        "selector = { kind = 'cosine-to-mean', cosine = 0.1 }",
        "selector = { kind = 'greedy-clique', cosine = 0.1 }",
        "selector = { kind = 'all' }",
        "towards = { kind = 'pcgrad' }",
        "towards = { kind = 'project', keep_norm = true }",
        "towards = { kind = 'regulariser' }",
        "placement = 'back'",
        "placement = 'both'",
    ] {
        let method = format!("{{ kind = 'gapsl', lambda = 1.0, {setting} }}");
        let split = split(&method, "cut = 4");
        let set = [WITHOUT_DROPOUT, &split];
        let is_run_twice = method.contains("placement") || method.contains("regulariser");
        let aligned = simulate(&description(if is_run_twice { &set } else { &set[1..] }), 2);
        let record = &aligned.records[1];
        assert_eq!(
            (record.completed, record.steps.as_ref().unwrap().made),
            (4, 3),
            "{setting}"
        );
        assert!(record.steps.as_ref().unwrap().lost.is_empty());
        assert!(aligned.model(0) != plain.model(0), "{setting}");
        assert!(aligned.state.is_finite());
    }
}

#[test]
fn who_led_and_how_much_gradients_agreed_is_written_down() {
    let method = "{ kind = 'gapsl', refresh = 2, selector = { kind = 'all' } }";
    let ran = simulate(&description(&[&split(method, "cut = 4")]), 2);
    for record in &ran.records {
        let steps = record.steps.as_ref().unwrap();
        // All of the four, in the first and in the third of three steps.
        assert_eq!(steps.led.values().copied().collect::<Vec<_>>(), [2; 4]);
        assert!(steps.agreement.is_some_and(|cosine| cosine.abs() <= 1.0), "{steps:?}");
    }
    let plain = simulate(&description(&[&split("{ kind = 'parallel' }", "cut = 4")]), 2);
    let steps = plain.records[0].steps.as_ref().unwrap();
    assert!(steps.led.is_empty() && steps.agreement.is_none());
}

#[test]
fn global_batches_go_through_all_examples() {
    let set = [
        "training={ epochs = 1, batch_size = 64, optimiser = { kind = 'sgd', learning_rate = 0.05 } }",
        "rounds=1",
    ];
    let rest = "cut = 4, batches = 'global'";
    let ran = simulate(
        &description(&[&set[..], &[&split("{ kind = 'parallel' }", rest)]].concat()),
        2,
    );
    let steps = ran.records[0].steps.as_ref().unwrap();
    assert_eq!((steps.made, steps.lost.len()), (10_000u64.div_ceil(4 * 64), 0));
}

#[test]
fn stitched_models_are_evaluated_with_their_own_classes_in_mind() {
    let set = [
        "evaluation.every=2",
        "partition={ kind = 'shards', per_client = 2 }",
        "training.steps=20",
    ];
    let ran = run(
        &description(&[&set[..], &[&split("{ kind = 'parallel' }", "cut = 4")]].concat()),
        2,
        true,
    );
    assert!(ran.records[0].stitched.is_empty() && ran.records[0].test_accuracy.is_none());
    let record = &ran.records[1];
    assert_eq!(record.stitched.len(), 4);
    let mean = record
        .stitched
        .iter()
        .map(|stitched| stitched.accuracy.unwrap())
        .sum::<f64>()
        / 4.0;
    assert_eq!(record.test_accuracy, Some(mean));
    for stitched in &record.stitched {
        // The test set has almost as many of each class, so that both are almost one.
        let accuracy = stitched.accuracy.unwrap();
        assert!((accuracy - stitched.balanced_accuracy.unwrap()).abs() < 0.02);
        assert!(stitched.own_accuracy.unwrap() > accuracy, "{stitched:?}");
        assert!((0.1..=1.0).contains(&stitched.majority.unwrap()));
    }
    // Fronts go to the server only to be evaluated.
    assert!(record.bytes_up > ran.records[0].bytes_up && record.bytes_down < ran.records[0].bytes_down);
}

#[test]
fn fronts_and_whole_models_in_any_order_wait_for_no_window() {
    // Updates so large that only a few may wait, among clients that are cut or not, in whatever order.
    let set = [
        "model={ input = [1, 28, 28], layers = [{ kind = 'flatten' }, { kind = 'dense', units = 2700 }, { kind = 'relu' }, \
         { kind = 'dense', units = 10 }] }",
        "clients=14",
        "rounds=3",
        "training.steps=1",
        "partition={ kind = 'iid' }",
    ];
    let cut = "cut = [{ after = 2, share = 0.5 }, { share = 0.5 }]";
    let mixed = simulate(
        &description(&[&set[..], &[&split("{ kind = 'splitfed-v1' }", cut)]].concat()),
        2,
    );
    let whole = simulate(&description(&set), 2);
    assert!(mixed.state == whole.state);
}
