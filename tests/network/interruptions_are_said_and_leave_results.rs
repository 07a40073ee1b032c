#![cfg(unix)]

use std::fs;

use crate::{federation::Federation, process::Process};

#[test]
fn an_interrupted_coordinator_saves_what_there_is_and_tells_its_clients() {
    let federation = Federation::new(&["rounds=100000", "clients=2"]);
    let (mut coordinator, address) = Process::coordinator(&federation, &["--out", "results"]);
    let clients = [0, 1].map(|number| Process::client(&federation, &address, number));
    coordinator.until("round 2/100000: ");
    coordinator.interrupt();
    let (status, said) = coordinator.end();
    assert_eq!(status.code(), Some(130), "{said}");
    for client in clients {
        let (status, said) = client.end();
        assert!(status.success(), "{said}");
        assert!(said.contains("the run is over: the coordinator was stopped"), "{said}");
    }
    let results = federation.path().join("results");
    let summary = fs::read_to_string(results.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["outcome"], "stopped");
    let rounds = fs::read_to_string(results.join("rounds.jsonl")).unwrap();
    assert_eq!(summary["rounds"], rounds.lines().count());
    assert!(results.join("model.safetensors").exists());
}

#[test]
fn an_interrupted_client_leaves_and_the_run_goes_on_without_it() {
    let federation = Federation::new(&["rounds=100000", "clients=2"]);
    let (mut coordinator, address) = Process::coordinator(&federation, &[]);
    let _stays = Process::client(&federation, &address, 0);
    let leaves = Process::client(&federation, &address, 1);
    coordinator.until("round 1/100000: ");
    leaves.interrupt();
    let (status, said) = leaves.end();
    assert_eq!(status.code(), Some(130), "{said}");
    coordinator.until("client-1 has left");
    coordinator.until(": 1 of 1 clients");
}
