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
    optimiser = { kind = "sgd", learning_rate = 0.1, momentum = 0.5 }
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
        let algorithm = format!("algorithm.name={algorithm}");
        let runs = ["1", "2", "4", "8", "2"];
        let hashes = runs.map(|workers| weights(folder.path(), &["--set", &algorithm, "--workers", workers]));
        assert_eq!(BTreeSet::from(hashes).len(), 1, "{algorithm}");
    }
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
    let fed_prox = ["--set", "algorithm.name=fedprox", "--set", "algorithm.mu=0.0"];
    assert_eq!(weights(folder.path(), &fed_prox), fed_avg);
    let clip = ["--set", "filters=[{ kind = \"clip\", norm = inf }]"];
    assert_eq!(weights(folder.path(), &clip), fed_avg);
    let one_round = weights(folder.path(), &["--set", "rounds=1"]);
    let scaffold = ["--set", "rounds=1", "--set", "algorithm.name=scaffold"];
    assert_eq!(weights(folder.path(), &scaffold), one_round);
}

#[test]
fn clients_without_examples_are_counted_and_all_of_them_are_no_disaster() {
    let folder = TempDir::new().unwrap();
    // Ten thousand examples, dealt so steeply that most clients get none.
    let steep = [
        "--set",
        "partition={ kind = \"power-law\", exponent = 100.0 }",
        "--set",
        "cohort.size=12",
    ];
    let summary = simulate(folder.path(), &steep);
    assert!(summary["test_accuracy"].as_f64().unwrap().is_finite());
}
