//! A run is a function of its description, whatever the workers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

/// A few clients, a small model, the built-in images.
const DESCRIPTION: &str = r#"
    rounds = 2
    clients = 12
    data = { source = "fashion-mnist-small" }
    partition = { kind = "dirichlet", alpha = 0.1 }
    model = { preset = "logistic-regression" }
    cohort = { size = 5 }
    [training]
    steps = 5
    optimiser = { kind = "sgd", learning_rate = 0.1 }
"#;

fn simulate(folder: &Path, arguments: &[&str]) -> Value {
    fs::write(folder.join("run.toml"), DESCRIPTION).unwrap();
    let command = ["simulate", "run.toml", "--json", "--out"];
    let out = TempDir::new_in(folder).unwrap().path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_selvedge"))
        .args(command)
        .arg(&out)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn weights(folder: &Path, arguments: &[&str]) -> String {
    simulate(folder, arguments)["weights_blake3"].as_str().unwrap().into()
}

#[test]
fn one_two_four_and_eight_workers_give_the_same_bytes_and_so_does_a_second_run() {
    let folder = TempDir::new().unwrap();
    for algorithm in ["fedavg", "scaffold", "fedadam", "median"] {
        let algorithm = format!("algorithm.kind={algorithm}");
        let runs = ["1", "2", "4", "8", "2"];
        let hashes = runs.map(|workers| weights(folder.path(), &["--set", &algorithm, "--workers", workers]));
        assert_eq!(BTreeSet::from(hashes).len(), 1, "{algorithm}");
    }
}

/// Updates of 19 MB: of these, only a few may be there at a time.
#[test]
fn large_updates_wait_for_their_turn_and_unequal_clients_for_each_other_with_the_same_result() {
    let folder = TempDir::new().unwrap();
    let wide = "model={ input = [1, 28, 28], layers = [{ kind = 'flatten' }, { kind = 'dense', units = 6000 }, { kind = 'dense', units = 10 }] }";
    let unequal = "partition={ kind = 'power-law', exponent = 1.5 }";
    let set = [
        "--set",
        wide,
        "--set",
        unequal,
        "--set",
        "cohort.size=12",
        "--set",
        "training={ steps = 1, batch_size = 64, optimiser = { kind = 'sgd', learning_rate = 0.01 } }",
    ];
    let hashes =
        ["1", "2", "3"].map(|workers| weights(folder.path(), &[set.as_slice(), &["--workers", workers]].concat()));
    assert_eq!(BTreeSet::from(hashes).len(), 1);
}

#[test]
fn another_seed_gives_another_model() {
    let folder = TempDir::new().unwrap();
    assert_ne!(
        weights(folder.path(), &["--seed", "1"]),
        weights(folder.path(), &["--seed", "2"])
    );
}

#[test]
fn what_must_equal_fed_avg_does_bit_for_bit() {
    let folder = TempDir::new().unwrap();
    let fed_avg = weights(folder.path(), &[]);
    let fed_prox = ["--set", "algorithm.kind=fedprox", "--set", "algorithm.mu=0.0"];
    assert_eq!(weights(folder.path(), &fed_prox), fed_avg);
    let clip = ["--set", "filters=[{ kind = \"clip\", norm = inf }]"];
    assert_eq!(weights(folder.path(), &clip), fed_avg);
    let one_round = weights(folder.path(), &["--set", "rounds=1"]);
    let scaffold = ["--set", "rounds=1", "--set", "algorithm.kind=scaffold"];
    assert_eq!(weights(folder.path(), &scaffold), one_round);
}

/// One round, of which the first client holds all the examples: its line of `rounds.jsonl`, and what was said.
fn round_with_one_holder(folder: &Path, set: &[&str]) -> (Value, String) {
    let set = set.iter().flat_map(|set| ["--set", set]);
    // Ten thousand examples, dealt so steeply that one client gets all of them.
    let steep = "partition={ kind = \"power-law\", exponent = 100.0 }";
    let common = ["--out", "out", "--set", "rounds=1", "--set", steep];
    let arguments: Vec<&str> = common.into_iter().chain(set).collect();
    fs::write(folder.join("run.toml"), DESCRIPTION).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_selvedge"))
        .args(["simulate", "run.toml", "--quiet"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    let rounds = fs::read_to_string(folder.join("out/rounds.jsonl")).unwrap();
    (serde_json::from_str(&rounds).unwrap(), said)
}

#[test]
fn clients_without_examples_are_counted() {
    let folder = TempDir::new().unwrap();
    let (round, said) = round_with_one_holder(folder.path(), &["cohort.size=12"]);
    assert_eq!(said, "");
    assert_eq!(round["failed"]["no-examples"], 11, "{round}");
    assert_eq!((&round["completed"], &round["applied"]), (&1.into(), &true.into()));
    assert!(round["test_loss"].as_f64().unwrap().is_finite());
}

#[test]
fn a_cohort_without_any_example_leaves_the_model_as_it_was_and_the_round_says_so() {
    // Of so many clients the cohort misses the one that holds everything.
    let folder = TempDir::new().unwrap();
    let (round, said) = round_with_one_holder(folder.path(), &["clients=1000", "cohort.size=2"]);
    assert!(said.contains("E-RUN-NOTHING"), "{said}");
    assert_eq!(round["failed"]["no-examples"], 2, "{round}");
    assert_eq!((&round["completed"], &round["applied"]), (&0.into(), &false.into()));
    assert!(
        round["note"]
            .as_str()
            .unwrap()
            .contains("none of the clients that answered holds an example")
    );
    assert!(round["test_loss"].as_f64().unwrap().is_finite());
}
