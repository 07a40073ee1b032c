//! Local training against a loop written out by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use candle_core::{Device, Tensor};
use rand::seq::SliceRandom;
use selvedge_client::{Examples, Trainer};
use selvedge_data::{Dataset, Inputs, Targets};
use selvedge_models::{Mode, Network, Optimiser, SubModel, Weights};
use selvedge_protocols::{
    Broadcast, ClientName, Description, Memory, Metrics, Purpose,
    aggregation::{AGGREGATION, AggregationRule, Contribution, Mean},
    sections::Values,
    update::{SealedUpdate, expected_sections},
};

const DESCRIPTION: &str = r#"
    rounds = 1
    clients = 1
    data = { source = "fashion-mnist-small" }
    model = { input = [4], layers = [{ kind = "dense", units = 5 }, { kind = "relu" }, { kind = "dense", units = 3 }] }
    training = { steps = 1, batch_size = 8, optimiser = { kind = "sgd", learning_rate = 0.3 } }
"#;

fn description(set: &[&str]) -> Description {
    let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
    Description::parse(DESCRIPTION, "test", &set).unwrap()
}

fn dataset(examples: usize) -> Dataset {
    let inputs = (0..examples * 4).map(|at| (at as f32 * 0.7).sin()).collect();
    let labels = (0..examples).map(|at| (at % 3) as u32).collect();
    Dataset::new(Inputs::Floats(inputs), vec![4], Targets::Classes { labels, classes: 3 }).unwrap()
}

fn trained(description: &Description, dataset: &Dataset, kept: &mut Memory) -> SealedUpdate {
    let parts = description.parts().unwrap();
    let indices: Vec<u32> = (0..dataset.len() as u32).collect();
    let examples = Examples {
        dataset,
        indices: &indices,
    };
    let broadcast = Broadcast::bare(initial(description));
    let client = ClientName::numbered(0);
    Trainer::new(Default::default())
        .train(description, parts.whole(), &client, 1, &broadcast, examples, kept)
        .unwrap()
}

fn initial(description: &Description) -> Weights {
    Weights::initial(
        &description.model,
        &mut description.seed.stream(Purpose::Initialisation),
    )
    .unwrap()
}

#[test]
fn one_client_with_everything_and_one_step_is_plain_sgd_bit_for_bit() {
    let (description, dataset) = (description(&[]), dataset(20));

    let mut network = Network::new(&description.model, &Device::Cpu).unwrap();
    network.load(&initial(&description)).unwrap();
    let mut order: Vec<u32> = (0..20).collect();
    order.shuffle(
        &mut description
            .seed
            .client_stream(Purpose::Training, 1, &ClientName::numbered(0)),
    );
    let (mut inputs, mut classes) = (Vec::new(), Vec::new());
    dataset.gather_inputs(&order[..8], &mut inputs);
    dataset.gather_classes(&order[..8], &mut classes).unwrap();
    let inputs = Tensor::from_vec(inputs, (8, 4), &Device::Cpu).unwrap();
    let outputs = network.forward(&inputs, &mut Mode::Evaluate).unwrap();
    let loss = description
        .training
        .loss
        .evaluate(&outputs, selvedge_models::BatchTargets::Classes(&classes))
        .unwrap();
    network.backward(&loss.gradient).unwrap();
    let mut sgd = Optimiser::new(&description.training.optimiser, network.parameters().len()).unwrap();
    network.update(|parameters, gradient| sgd.step(parameters, gradient));

    let sealed = trained(&description, &dataset, &mut Memory::new());
    assert_eq!((sealed.report.examples, sealed.report.steps), (20, 1));
    let whole = SubModel::whole(&description.model.layout().unwrap());
    let expected = expected_sections(&whole, &*description.algorithm, &[]);
    let layout = description.model.layout().unwrap();
    let (occasion, mut metrics) = (description.occasion(1, None, &layout), Metrics::default());
    let (algorithm, global) = (&*description.algorithm, initial(&description));
    let update = sealed
        .open(&expected, algorithm, &[], &global, &occasion, &mut metrics)
        .unwrap();
    let mut mean = Mean {}.begin();
    mean.fold(Contribution {
        client: None,
        version: 1,
        part: &whole,
        weight: 20.0,
        update,
    });
    let aggregate = mean.finish(&global, &mut occasion.context(AGGREGATION, &mut metrics));
    assert_eq!(aggregate.unwrap().unwrap().weights, network.weights());
}

#[test]
fn an_epoch_ends_with_what_is_left_and_steps_pass_over_the_examples_again() {
    let dataset = dataset(20);
    let steps = |set: &[&str]| trained(&description(set), &dataset, &mut Memory::new()).report.steps;
    assert_eq!(steps(&["training.steps=7"]), 7);
    let epochs = "training={ epochs = 2, batch_size = 8, optimiser = { kind = \"sgd\", learning_rate = 0.3 } }";
    assert_eq!(steps(&[epochs]), 6);
}

#[test]
fn a_client_without_examples_returns_what_it_was_sent() {
    for algorithm in ["fedavg", "fedprox", "scaffold", "fedadam", "median"] {
        let description = description(&[&format!("algorithm.kind={algorithm}")]);
        let sealed = trained(&description, &dataset(0), &mut Memory::new());
        assert_eq!(
            (sealed.report.examples, sealed.report.steps, sealed.report.loss),
            (0, 0, None)
        );
        assert_eq!(
            sealed.sections[0].values,
            Values::F32(initial(&description).parameters),
            "{algorithm}"
        );
        assert!(sealed.sections.iter().all(|section| section.values.is_finite()));
    }
}

#[test]
fn an_infinite_clipping_norm_changes_no_bit_and_a_finite_one_bounds_the_change() {
    let dataset = dataset(20);
    let parameters = |set: &[&str]| {
        let sealed = trained(&description(set), &dataset, &mut Memory::new());
        match sealed.sections.into_iter().next().map(|section| section.values) {
            Some(Values::F32(values)) => values,
            other => panic!("{other:?}"),
        }
    };
    let plain = parameters(&[]);
    assert_eq!(parameters(&["filters=[{ kind = \"clip\", norm = inf }]"]), plain);
    let clipped = parameters(&["filters=[{ kind = \"clip\", norm = 0.001 }]"]);
    let start = initial(&description(&[])).parameters;
    let norm = clipped
        .iter()
        .zip(&start)
        .map(|(w, start)| (w - start).powi(2))
        .sum::<f32>()
        .sqrt();
    assert!((0.00099..0.00101).contains(&norm), "{norm}");
}

/// Classes 1 and 2 are not among the examples: their outputs count as 0 and their weights stay.
#[test]
fn a_masked_loss_leaves_the_outputs_of_absent_classes_as_they_were() {
    let trained = |masked: bool| {
        let masked = format!("sub_models.masked_loss={masked}");
        let description = description(&["sub_models.plan.kind=full", &masked]);
        let dataset = dataset(30);
        let only_first: Vec<u32> = (0..30).step_by(3).collect();
        let parts = description.parts().unwrap();
        let examples = Examples {
            dataset: &dataset,
            indices: &only_first,
        };
        let broadcast = Broadcast::bare(initial(&description));
        let update = Trainer::new(Default::default())
            .train(
                &description,
                parts.whole(),
                &ClientName::numbered(0),
                1,
                &broadcast,
                examples,
                &mut Memory::new(),
            )
            .unwrap();
        let Values::F32(parameters) = &update.sections[0].values else {
            panic!("not numbers")
        };
        // The last layer's rows, one for each class, and its biases.
        let last = |of: &[f32]| of[25..].to_vec();
        (last(parameters), last(&broadcast.weights.parameters))
    };
    let (after, before) = trained(true);
    assert_ne!(after[..5], before[..5]);
    assert_eq!(after[5..15], before[5..15]);
    assert_ne!(after[15], before[15]);
    assert_eq!(after[16..], before[16..]);
    let (after, before) = trained(false);
    assert_ne!(after[5..15], before[5..15]);
}
