#![cfg(unix)]

use std::{
    fs, thread,
    time::{Duration, Instant},
};

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

/// What `docker stop` does: SIGTERM, and SIGKILL ten seconds later; a client that does not hang up is waited for longer.
#[test]
fn a_coordinator_that_is_asked_to_end_has_saved_its_model_before_it_parts_from_a_frozen_client() {
    let federation = Federation::new(&["rounds=100000", "clients=2", "network.connect_seconds=60.0"]);
    let (mut coordinator, address) = Process::coordinator(&federation, &["--out", "results"]);
    let clients = [0, 1].map(|number| Process::client(&federation, &address, number));
    coordinator.until("round 2/100000: ");
    clients[0].signal("STOP");
    coordinator.signal("TERM");
    let results = federation.path().join("results");
    let asked = Instant::now();
    while !results.join("report.html").exists() && asked.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!coordinator.has_ended(), "it was to wait for the frozen client");
    coordinator.kill();
    for file in ["model.safetensors", "summary.json", "report.html"] {
        assert!(results.join(file).exists(), "{file}");
    }
}

#[test]
fn clients_of_a_coordinator_that_was_put_down_wait_until_it_is_taken_up_again() {
    let federation = Federation::new(&["rounds=100000", "clients=2", "network.connect_seconds=60.0"]);
    let (mut coordinator, address) =
        Process::coordinator(&federation, &["--out", "results", "--checkpoint-every", "1"]);
    let mut clients = [0, 1].map(|number| Process::client(&federation, &address, number));
    coordinator.until("round 2/100000: ");
    clients[0].signal("STOP");
    coordinator.signal("TERM");
    // It waits for nobody to hang up, frozen or not.
    let (status, said) = coordinator.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(federation.path().join("results/model.safetensors").exists());
    clients[0].signal("CONT");
    let mut goes_on = Process::start(
        &federation,
        &["coordinator", "--resume", "results", "--listen", &address],
    );
    goes_on.until(": 2 of 2 clients");
    assert!(clients.iter_mut().all(|client| !client.has_ended()));
}

#[test]
fn a_coordinator_that_is_asked_twice_ends_at_once() {
    let federation = Federation::new(&["rounds=100000", "clients=2", "network.connect_seconds=60.0"]);
    let (mut coordinator, address) = Process::coordinator(&federation, &["--out", "results"]);
    let clients = [0, 1].map(|number| Process::client(&federation, &address, number));
    coordinator.until("round 2/100000: ");
    clients[0].signal("STOP");
    coordinator.interrupt();
    while !federation.path().join("results/report.html").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    coordinator.interrupt();
    let (status, said) = coordinator.end();
    assert_eq!(status.code(), Some(130), "{said}");
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
