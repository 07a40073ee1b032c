//! The library as a program of one's own uses it.

#![allow(clippy::unwrap_used)] // What cannot go on must fail.

use std::ops::ControlFlow;

use selvedge::{
    Dataset, Description, Error, Federation, Finished, Inputs, OptimiserDescription, Outcome, Partition, Preset,
    Targets, Weights,
};

fn data() -> Dataset {
    let inputs = (0..120).map(|at| (at as f32 * 0.37).sin()).collect();
    let labels = (0..60).map(|at| at % 3).collect();
    Dataset::new(Inputs::Floats(inputs), vec![2], Targets::Classes { labels, classes: 3 }).unwrap()
}

fn description() -> Description {
    let model = Preset::LogisticRegression.describe(&[2], 3);
    let mut description = Description::new(model, OptimiserDescription::sgd(0.1), 3);
    description.clients = 4;
    description
}

fn run(federation: Federation) -> Result<Finished, Error> {
    federation.run(|_| ControlFlow::Continue(()))
}

#[test]
fn a_run_built_in_code_is_checked_and_a_mistake_is_named() {
    type Mistake = fn(&mut Description);
    let mistakes: [(Mistake, &str); 5] = [
        (|description| description.training.batch_size = 0, "training.batch_size"),
        (
            |description| description.cohort.deadline_seconds = f64::NAN,
            "cohort.deadline_seconds",
        ),
        (|description| description.cohort.size = Some(5), "cohort.size"),
        (|description| description.rounds = 0, "rounds"),
        (|description| description.model.input = vec![7], "model.input"),
    ];
    for (mistake, key) in mistakes {
        let mut description = description();
        mistake(&mut description);
        let error = run(Federation::new(description, data())).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn a_partition_of_ones_own_must_be_of_the_clients_and_of_the_examples() {
    let deal = |clients: &[Vec<u32>]| Partition::from_clients(clients, data().len());
    assert!(
        deal(&[vec![0, 60]])
            .unwrap_err()
            .to_string()
            .contains("example 60 of 60")
    );
    let three = deal(&[vec![0, 1], vec![2], vec![3]]).unwrap();
    let error = run(Federation::new(description(), data()).dealt(three)).unwrap_err();
    assert!(error.to_string().contains("4 clients, and the partition 3"), "{error}");
    let four = deal(&[vec![5, 4], vec![], vec![2], vec![3]]).unwrap();
    assert_eq!(four.client(0), [4, 5]);
    let finished = run(Federation::new(description(), data()).dealt(four)).unwrap();
    assert_eq!(finished.records[0].completed, 3);
}

#[test]
fn the_run_that_a_program_deals_as_described_is_the_one_that_is_dealt_for_it() {
    let described = description();
    let dealt = described.deal(&data()).unwrap();
    let own = run(Federation::new(described.clone(), data()).dealt(dealt.all)).unwrap();
    let other = run(Federation::new(described, data()).workers(1)).unwrap();
    assert_eq!(own.weights, other.weights);
}

#[test]
fn initial_weights_are_where_the_run_begins_and_must_be_of_the_model() {
    let mut still = description();
    still.training.optimiser = OptimiserDescription::sgd(1e-30);
    let initial = Weights {
        parameters: (1..=9).map(|at| at as f32).collect(),
        buffers: vec![],
    };
    let federation = Federation::new(still.clone(), data()).beginning_with(initial.clone());
    assert_eq!(*run(federation).unwrap().weights, initial);
    let short = Weights {
        parameters: vec![0.0; 8],
        buffers: vec![],
    };
    let error = run(Federation::new(still, data()).beginning_with(short)).unwrap_err();
    assert!(error.to_string().contains('9'), "{error}");
}

#[test]
fn a_callback_ends_the_run_and_what_was_recorded_is_there() {
    let finished = Federation::new(description(), data())
        .run(|record| match record.round {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
        .unwrap();
    assert_eq!((finished.outcome, finished.records.len()), (Outcome::Stopped, 2));
}
