//! Buffered asynchronous rounds: the model moves every few updates, each weighted by how stale it is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

mod simulated;

use selvedge_coordinator::Outcome;
use selvedge_protocols::Description;

use self::simulated::Ran;

/// Clients of 40 examples, of which 20 are gone through in a round; a model of 67 parameters, 268 bytes.
const DESCRIPTION: &str = r#"
    rounds = 3
    clients = 6
    evaluation = { every = 2 }
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

/// What was measured of the clients' updates, round by round.
fn measured<'a>(ran: &'a Ran, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    let of_clients = ran.records.iter().flat_map(|record| record.client_metrics.values());
    of_clients.filter_map(move |metrics| metrics.get(name).copied())
}

fn seconds(ran: &Ran) -> f64 {
    ran.records.iter().map(|record| record.seconds).sum()
}

#[test]
fn without_staleness_it_is_synchronous_rounds_bit_for_bit() {
    let sets: [&[&str]; 4] = [
        &["cohort.size=6"],
        &["cohort.size=4", "rounds=7", "algorithm.kind=fedadam"],
        &[
            "cohort.size=4",
            "filters=[{ kind = 'top-k', share = 0.2 }]",
            "aggregation.kind=nova",
        ],
        &[
            "algorithm.kind=ditto",
            "evaluation.by_clients=true",
            "evaluation.holdout=0.2",
        ],
    ];
    for set in sets {
        let synchronous = run(set, 2);
        let size = parse(set).unwrap().cohort_size();
        let size = format!("buffer.size={size}");
        // Also where time passes, as long as it passes for all alike.
        for devices in [
            &[][..],
            &["devices.examples_per_second=10.0", "devices.latency_seconds=0.1"],
        ] {
            let buffered = run(&[set, devices, &[&size]].concat(), 2);
            assert_eq!(buffered.state, synchronous.state, "{set:?}");
            assert_eq!(buffered.outcome, Outcome::Completed);
            assert!(measured(&buffered, "buffer.staleness").all(|staleness| staleness == 0.0));
            for (buffered, synchronous) in buffered.records.iter().zip(&synchronous.records) {
                assert_eq!(buffered.completed, synchronous.completed);
                assert_eq!(buffered.test_loss, synchronous.test_loss);
                assert_eq!(buffered.clients_loss, synchronous.clients_loss);
                assert_eq!(
                    (buffered.bytes_up, buffered.round),
                    (synchronous.bytes_up, synchronous.round)
                );
            }
        }
    }
}

#[test]
fn the_same_bytes_come_of_it_whatever_the_number_of_workers() {
    let sets: [&[&str]; 3] = [
        &[DECADE, "rounds=20", "buffer.size=2"],
        &[
            DECADE,
            "devices.upload_bytes_per_second={ kind = 'log-uniform', lowest = 50.0, highest = 500.0 }",
            "devices.availability=0.5",
            "devices.period_seconds=8.0",
            "network.idle_seconds=2.0",
            "cohort={ size = 4, deadline_seconds = 9.0 }",
            "buffer={ size = 3, maximum_staleness = 2 }",
            "evaluation={ every = 2, by_clients = true, holdout = 0.2 }",
            "rounds=20",
        ],
        // Without devices all answer at once, in the order of their names.
        &["cohort.size=4", "buffer.size=3", "rounds=9"],
    ];
    for set in sets {
        let [one, two, four] = [1, 2, 4].map(|workers| run(set, workers));
        assert_eq!(one.outcome, Outcome::Completed, "{set:?}");
        assert!(
            measured(&one, "buffer.staleness").any(|staleness| staleness > 0.0),
            "{set:?}"
        );
        // Nobody moves the model twice at a time.
        for record in one.records.iter().filter(|record| record.applied) {
            assert_eq!(record.completed, record.client_metrics.len(), "{record:?}");
        }
        for other in [two, four] {
            assert_eq!(one.state, other.state, "{set:?}");
            let timed = set.iter().any(|set| set.starts_with("devices"));
            if timed {
                assert_eq!(one.records, other.records, "{set:?}");
            }
        }
    }
}

#[test]
fn slow_clients_count_less_by_the_square_root_of_their_staleness() {
    let set = [
        "devices.examples_per_second=[{ value = 2.0, share = 0.5 }, { value = 20.0, share = 0.5 }]",
        "buffer.size=1",
        "rounds=40",
    ];
    let ran = run(&set, 2);
    let most = measured(&ran, "buffer.staleness").fold(0.0, f64::max);
    // While a slow one trains, each of the three quick ones moves the model ten times.
    assert!((25.0..=32.0).contains(&most), "{most}");
    let pairs = measured(&ran, "buffer.staleness").zip(measured(&ran, "buffer.weight"));
    for (staleness, weight) in pairs {
        assert!((weight - 1.0 / (1.0 + staleness).sqrt()).abs() < 1e-12);
    }
    let constant = run(&[&set[..], &["buffer.staleness.kind=constant"]].concat(), 2);
    assert!(measured(&constant, "buffer.weight").all(|weight| weight == 1.0));
    assert_ne!(constant.state, ran.state);
}

#[test]
fn an_update_that_is_too_stale_is_rejected_and_counted() {
    let set = [
        "devices.examples_per_second=[{ value = 2.0, share = 0.5 }, { value = 20.0, share = 0.5 }]",
        "buffer={ size = 1, maximum_staleness = 4 }",
        "rounds=40",
    ];
    let ran = run(&set, 2);
    let stale: usize = ran.records.iter().filter_map(|record| record.failed.get("stale")).sum();
    assert!(stale >= 3, "{stale}");
    assert!(measured(&ran, "buffer.staleness").all(|staleness| staleness <= 4.0));
    for record in &ran.records {
        assert_eq!(
            record.completed + record.failed.values().sum::<usize>(),
            record.selected
        );
        assert_eq!((record.completed, record.applied), (1, true));
    }
    let reason = &ran
        .records
        .iter()
        .find(|record| !record.failures.is_empty())
        .unwrap()
        .failures[0]
        .reason;
    assert!(
        reason.contains("moved 5 times") && reason.contains("may have moved 4 times"),
        "{reason}"
    );
}

#[test]
fn the_model_moves_as_often_in_less_time_than_in_synchronous_rounds() {
    let set = [
        "devices.examples_per_second=[{ value = 2.0, share = 0.5 }, { value = 20.0, share = 0.5 }]",
        "rounds=20",
    ];
    let synchronous = run(&set, 2);
    let buffered = run(&[&set[..], &["buffer.size=3"]].concat(), 2);
    for ran in [&synchronous, &buffered] {
        assert_eq!(ran.records.iter().filter(|record| record.applied).count(), 20);
    }
    assert_eq!(seconds(&synchronous), 20.0 * 10.0);
    // Mostly the quick ones move it, once a second.
    assert!(seconds(&buffered) <= 25.0, "{}", seconds(&buffered));
    let last = |ran: &Ran| ran.records.last().unwrap().test_loss.unwrap();
    assert!(last(&buffered) < buffered.records[1].test_loss.unwrap());
    assert!(last(&synchronous).is_finite());
}

#[test]
fn where_nobody_answers_in_time_rounds_end_without_a_move() {
    let late = [
        "devices.examples_per_second=1.0",
        "cohort.deadline_seconds=4.0",
        "buffer.size=3",
    ];
    let ran = run(&late, 2);
    assert_eq!((ran.outcome, ran.records.len()), (Outcome::Completed, 3));
    for record in &ran.records {
        assert!(!record.applied && record.failed["deadline"] == 6, "{record:?}");
    }
    // Those that are left are too few for a buffer, and then for the run.
    let leaving = [
        "devices.examples_per_second=20.0",
        "devices.lifetime_seconds=3.5",
        "buffer.size=3",
        "rounds=50",
    ];
    assert_eq!(run(&leaving, 2).outcome, Outcome::TooFewClients);
}

#[test]
fn what_does_not_go_with_a_buffer_is_refused() {
    for (set, reason) in [
        (&["buffer.size=0"][..], "buffer.size: 0 is not from 1 to the 6 clients"),
        (&["buffer.size=4", "cohort.size=3"], "4 is not from 1 to the 3 clients"),
        (
            &["buffer={ size = 2, staleness = { kind = 'polynomial', exponent = -1.0 } }"],
            "buffer.staleness.exponent: -1 is not",
        ),
        (
            &["buffer.size=2", "algorithm.kind=scaffold"],
            "`scaffold` sends `control_change` beside it",
        ),
        (
            &[
                "buffer.size=2",
                "sub_models={ plan = { kind = 'rolling' }, capacities = [{ width = 0.5, share = 1.0 }] }",
            ],
            "not with `sub_models`",
        ),
        (
            &["buffer.size=2", "split={ method = { kind = 'parallel' }, cut = 1 }"],
            "not with `split`",
        ),
        (
            &["buffer.size=2", "aggregation={ kind = 'krum', byzantine = 1 }"],
            "a round needs 5, and has 2",
        ),
    ] {
        let refused = parse(set).unwrap_err();
        assert!(refused.contains(reason), "{set:?}: {refused}");
    }
}
