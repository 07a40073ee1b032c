//! Coordinators and clients that are killed at any moment, again and again: the run ends as if they had never been.
//!
//! `SELVEDGE_KILLS=20 cargo test --test network killed_and_taken_up` kills that often in each run.

use std::{env, fs, path::Path, thread, time::Duration};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::{federation::Federation, process::Process};

/// The final weights' hash, and the records without what the clock measured and what only the network knows.
fn result(out: &Path) -> (String, Vec<Value>) {
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let rounds = fs::read_to_string(out.join("rounds.jsonl")).unwrap();
    let record = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record["seconds"] = Value::Null;
        if let Some(steps) = record.get_mut("steps").and_then(Value::as_object_mut) {
            steps.remove("seconds");
        }
        record
    };
    (
        summary["weights_blake3"].as_str().unwrap().to_owned(),
        rounds.lines().map(record).collect(),
    )
}

/// Runs of ten rounds in which the coordinator is killed and taken up again at moments drawn from a seed, and a client now
/// and then, too.
fn comes_to_the_same(name: &str, set: &[&str]) {
    let kills: u32 = env::var("SELVEDGE_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(4);
    let federation = Federation::new(&[&["rounds=10", "clients=3", "network.idle_seconds=1.0"], set].concat());
    let (status, said) = Process::start(&federation, &["simulate", "run.toml", "--out", "simulated"]).end();
    assert!(status.success(), "{said}");
    let expected = result(&federation.path().join("simulated"));

    let mut random = ChaCha8Rng::seed_from_u64(name.len() as u64);
    let out = federation.path().join("served");
    let client = |address: &str, number: usize| {
        Process::client_with(&federation, address, number, &["--state", "state", "--quiet"])
    };
    let (mut coordinator, address) = Process::coordinator(&federation, &["--out", "served", "--checkpoint-every", "1"]);
    let mut clients: Vec<Process> = (0..3).map(|number| client(&address, number)).collect();
    let recorded =
        || fs::read(out.join("rounds.jsonl")).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
    let mut killed = 0;
    for kill in 0..kills {
        // Spread over the rounds, at any moment in them.
        while recorded() < (kill * 9 / kills) as usize && !coordinator.has_ended() {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
        // Before the first checkpoint is there, there is nothing to take up.
        while !has_checkpoint(&out) && !coordinator.has_ended() {
            thread::sleep(Duration::from_micros(200));
        }
        if coordinator.has_ended() {
            break;
        }
        coordinator.kill();
        killed += 1;
        if kill % 2 == 1 {
            let victim = random.random_range(0..3);
            clients[victim].kill();
            clients[victim] = client(&address, victim);
        }
        coordinator = Process::start(
            &federation,
            &["coordinator", "--resume", "served", "--listen", &address],
        );
    }
    assert!(killed > 0, "{name}: the run was over too soon to show anything");
    let (status, said) = coordinator.end();
    assert!(status.success(), "{name}: {said}");
    assert_eq!(result(&out), expected, "{name}");
}

fn has_checkpoint(out: &Path) -> bool {
    fs::read_dir(out.join("checkpoints")).is_ok_and(|files| {
        let mut names = files.map(|file| file.unwrap().file_name());
        // One that is being written has another name.
        names.any(|name| {
            let name = name.to_str().and_then(|name| name.strip_prefix("run."));
            name.is_some_and(|round| round.parse::<u32>().is_ok())
        })
    })
}

#[test]
fn with_fedavg() {
    comes_to_the_same("FedAvg", &[]);
}

#[test]
fn with_scaffold_whose_clients_keep_control_variates() {
    comes_to_the_same("SCAFFOLD", &["algorithm.kind=scaffold"]);
}

#[test]
fn with_fedadam_and_feedback() {
    let set = ["algorithm.kind=fedadam", "filters=[{ kind = \"top-k\", share = 0.2 }]"];
    comes_to_the_same("FedAdam and top-k", &set);
}

#[test]
fn with_sub_models_from_a_deck() {
    let wide = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'batch-norm' }, { kind = 'relu' }, \
                { kind = 'dense', units = 3 }] }";
    let set = [
        wide,
        "sub_models={ plan = { kind = 'partitioned', blocks = 2 }, batch_norm = 'static', \
                      capacities = [{ width = 0.5, share = 0.7 }, { width = 1.0, share = 0.3 }] }",
    ];
    comes_to_the_same("deck, static batch norm", &set);
}

#[test]
fn with_fronts_that_clients_keep() {
    let deep = "model={ input = [4], layers = [{ kind = 'dense', units = 8 }, { kind = 'relu' }, { kind = 'dense', units = 3 }] }";
    let gapsl = "split={ method = { kind = 'gapsl', refresh = 2 }, cut = 2 }";
    comes_to_the_same("GAPSL", &[deep, gapsl]);
    comes_to_the_same(
        "PSL",
        &[
            deep,
            "split={ method = { kind = 'parallel' }, cut = 2 }",
            "evaluation.every=3",
        ],
    );
}
