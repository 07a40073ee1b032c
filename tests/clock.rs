//! Virtual time: what clients of a simulation do happens when their devices would have done it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

mod simulated;

use selvedge_coordinator::{Outcome, RoundRecord};
use selvedge_models::Weights;
use selvedge_protocols::{Description, Purpose};

use self::simulated::Ran;

/// Clients of 40 examples, of which 20 are gone through in a round; a model of 67 parameters, 268 bytes.
const DESCRIPTION: &str = r#"
    rounds = 3
    clients = 6
    data = { source = "fashion-mnist-small" }
    model = { input = [4], layers = [{ kind = "dense", units = 8 }, { kind = "relu" }, { kind = "dense", units = 3 }] }
    training = { steps = 4, batch_size = 5, optimiser = { kind = "sgd", learning_rate = 0.1 } }
"#;

const DECADE: &str = "devices.examples_per_second={ kind = 'log-uniform', lowest = 2.0, highest = 20.0 }";

fn parse(set: &[&str]) -> Result<Description, String> {
    simulated::parse(DESCRIPTION, set)
}

fn run(set: &[&str], workers: usize) -> Ran {
    simulated::run(DESCRIPTION, set, workers)
}

fn timeless(records: &[RoundRecord]) -> Vec<RoundRecord> {
    let mut records = records.to_vec();
    records.iter_mut().for_each(|record| record.seconds = 0.0);
    records
}

fn failed(record: &RoundRecord) -> Vec<(&str, usize)> {
    record
        .failed
        .iter()
        .map(|(code, count)| (code.as_str(), *count))
        .collect()
}

#[test]
fn devices_that_take_no_time_change_nothing() {
    let sets: [&[&str]; 4] = [
        &["cohort.size=4"],
        &["algorithm.kind=scaffold", "filters=[{ kind = 'bf16' }]"],
        &[
            "algorithm.kind=ditto",
            "evaluation.by_clients=true",
            "evaluation.holdout=0.2",
        ],
        &[
            "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'batch-norm' }, { kind = 'relu' }, \
             { kind = 'dense', units = 3 }] }",
            "sub_models={ plan = { kind = 'rolling' }, batch_norm = 'static', \
             capacities = [{ width = 0.5, share = 0.5 }, { width = 1.0, share = 0.5 }] }",
        ],
    ];
    for set in sets {
        let without = run(set, 2);
        let with = run(&[set, &["devices={}"]].concat(), 2);
        assert_eq!(with.state, without.state, "{set:?}");
        assert_eq!(timeless(&with.records), timeless(&without.records), "{set:?}");
        assert!(with.records.iter().all(|record| record.seconds == 0.0));
        assert!(without.records.iter().all(|record| record.seconds > 0.0));
    }
}

#[test]
fn a_round_takes_as_long_as_its_slowest_client_receives_trains_and_sends() {
    let devices = [
        "devices.examples_per_second=10.0",
        "devices.download_bytes_per_second=268.0",
        "devices.upload_bytes_per_second=134.0",
    ];
    let seconds = |set: &[&str]| -> Vec<f64> {
        let ran = run(&[&devices, set].concat(), 2);
        ran.records.iter().map(|record| record.seconds).collect()
    };
    assert_eq!(seconds(&[]), [1.0 + 2.0 + 2.0; 3]);
    // The task goes, the offer comes, the update is asked for and comes.
    assert_eq!(seconds(&["devices.latency_seconds=0.25"]), [6.0; 3]);
    // Half of the bytes.
    assert_eq!(seconds(&["filters=[{ kind = 'bf16' }]"]), [4.0; 3]);
    let half = "devices.examples_per_second=[{ value = 2.5, share = 0.5 }, { value = 10.0, share = 0.5 }]";
    assert_eq!(seconds(&[half]), [1.0 + 8.0 + 2.0; 3]);
}

#[test]
fn the_same_happens_whatever_the_number_of_workers() {
    let sets: [&[&str]; 3] = [
        &[DECADE, "cohort={ size = 4, deadline_seconds = 4.0 }", "rounds=6"],
        &[
            DECADE,
            "devices.upload_bytes_per_second={ kind = 'log-uniform', lowest = 20.0, highest = 400.0 }",
            "devices.availability=0.5",
            "devices.period_seconds=8.0",
            "network.idle_seconds=2.0",
            "cohort={ size = 4, deadline_seconds = 9.0 }",
            "algorithm.kind=scaffold",
            "rounds=12",
        ],
        &[
            DECADE,
            "evaluation.by_clients=true",
            "evaluation.holdout=0.2",
            "cohort.deadline_seconds=3.0",
        ],
    ];
    for set in sets {
        let [one, two, four] = [1, 2, 4].map(|workers| run(set, workers));
        assert!(one.records.iter().any(|record| !record.failed.is_empty()), "{set:?}");
        for other in [two, four] {
            assert_eq!(one.state, other.state, "{set:?}");
            assert_eq!(one.records, other.records, "{set:?}");
            assert_eq!(one.outcome, other.outcome);
        }
    }
}

#[test]
fn who_is_late_is_counted_and_is_late_again_while_its_device_is_at_the_last_round() {
    let ran = run(
        &[
            // 5 s and 1 s for a round.
            "devices.examples_per_second=[{ value = 4.0, share = 0.5 }, { value = 20.0, share = 0.5 }]",
            "cohort.deadline_seconds=4.0",
        ],
        2,
    );
    for record in &ran.records {
        assert_eq!((record.completed, record.applied, record.seconds), (3, true, 4.0));
        assert_eq!(failed(record), [("deadline", 3)]);
    }
    assert_eq!(ran.outcome, Outcome::Completed);
}

#[test]
fn where_everybody_is_late_the_model_stays_as_it_was_and_the_run_ends() {
    let ran = run(&["devices.examples_per_second=1.0", "cohort.deadline_seconds=4.0"], 2);
    assert_eq!((ran.outcome, ran.records.len()), (Outcome::Completed, 3));
    for record in &ran.records {
        assert!(!record.applied && record.seconds == 4.0, "{record:?}");
        assert_eq!(failed(record), [("deadline", 6)]);
    }
    let description = parse(&[]).unwrap();
    let layout = description.model.layout().unwrap();
    let initial = Weights::drawn(&layout, &mut description.seed.stream(Purpose::Initialisation));
    assert_eq!(*ran.state.weights, initial);
}

#[test]
fn clients_that_are_away_for_too_long_are_lost_and_take_part_again_when_they_are_back() {
    let set = [
        "devices.examples_per_second=4.0",
        "devices.availability=0.6",
        "devices.period_seconds=20.0",
        "network.idle_seconds=1.0",
        "cohort.quorum=0.1",
        "rounds=30",
    ];
    let ran = run(&set, 2);
    let lost: usize = ran
        .records
        .iter()
        .filter_map(|record| record.failed.get("disconnected"))
        .sum();
    let completed: usize = ran.records.iter().map(|record| record.completed).sum();
    assert_eq!((ran.outcome, ran.records.len()), (Outcome::Completed, 30));
    assert!(lost > 10 && completed > 60, "{lost} lost, {completed} completed");
    // With patience hardly anybody is lost, and rounds take longer.
    let patient = run(&[&set[..], &["network.idle_seconds=300.0"]].concat(), 2);
    assert!(patient.records.iter().all(|record| record.failed.is_empty()));
    let seconds = |ran: &Ran| -> f64 { ran.records.iter().map(|record| record.seconds).sum() };
    assert!(seconds(&patient) > seconds(&ran));
}

#[test]
fn when_all_have_left_for_good_the_run_ends_as_there_are_too_few_clients() {
    let ran = run(
        &[
            "devices.examples_per_second=20.0",
            "devices.lifetime_seconds=[{ value = 2.5, share = 0.5 }, { value = 4.5, share = 0.5 }]",
            "rounds=10",
        ],
        2,
    );
    assert_eq!(ran.outcome, Outcome::TooFewClients);
    let came: Vec<_> = ran
        .records
        .iter()
        .map(|record| (record.selected, record.completed))
        .collect();
    // In the third round half leave in the middle, and in the fifth the rest.
    assert_eq!(came, [(6, 6), (6, 6), (6, 3), (3, 3), (3, 0)]);
    assert_eq!(failed(&ran.records[4]), [("disconnected", 3)]);
}

#[test]
fn a_smaller_model_is_trained_in_less_time() {
    let sub_models = |width: f64| {
        let set = format!(
            "sub_models={{ plan = {{ kind = 'rolling' }}, capacities = [{{ width = {width:?}, share = 1.0 }}] }}"
        );
        run(&[&set, "devices.examples_per_second=10.0"], 2).records[0].seconds
    };
    assert_eq!(sub_models(1.0), 2.0);
    let half = sub_models(0.5);
    assert!((0.9..1.2).contains(&half), "{half}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (set, reason) in [
        (
            "devices.examples_per_second=0.0",
            "devices.examples_per_second: 0 is not above 0",
        ),
        (
            "devices.latency_seconds=-1.0",
            "devices.latency_seconds: -1 is not from 0",
        ),
        (
            "devices.availability=1.5",
            "devices.availability: 1.5 is not above 0 and at most 1",
        ),
        (
            "devices.period_seconds=0.0",
            "devices.period_seconds: 0 is not from 0.001",
        ),
        (
            "devices.examples_per_second={ kind = 'log-uniform', lowest = 5.0, highest = 2.0 }",
            "5 to 2 is no range",
        ),
        (
            "devices.examples_per_second=[{ value = 5.0, share = 0.5 }]",
            "the shares sum to 0.5, not to 1",
        ),
        ("devices.examples_per_second='fast'", "a number, a list of"),
        ("devices.speed=1.0", "unknown key `speed`"),
    ] {
        let refused = parse(&[set]).unwrap_err();
        assert!(refused.contains(reason), "{set}: {refused}");
    }
    let split = "split={ method = { kind = 'parallel' }, cut = 1 }";
    let refused = parse(&["devices={}", split]).unwrap_err();
    assert!(
        refused.contains("have no virtual time: leave out `devices` or `split`"),
        "{refused}"
    );
}
