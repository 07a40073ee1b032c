use std::{fs, path::Path};

use crate::{federation::Federation, process::Process};

fn weights(folder: &Path) -> String {
    let summary = fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    summary["weights_blake3"].as_str().unwrap().to_owned()
}

#[test]
fn a_coordinator_and_five_client_processes() {
    let federation = Federation::new(&["clients=5"]);
    let simulate = ["simulate", "run.toml", "--out", "simulated"];
    let (status, said) = Process::start(&federation, &simulate).end();
    assert!(status.success(), "{said}");

    let (coordinator, address) = Process::coordinator(&federation, &["--out", "served"]);
    let clients = [0, 1, 2, 3, 4].map(|number| Process::client(&federation, &address, number));
    for client in clients {
        let (status, said) = client.end();
        assert!(status.success(), "{said}");
        assert!(said.contains("the run is over: all rounds are done"), "{said}");
    }
    let (status, said) = coordinator.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("round 3/3: 5 of 5 clients"), "{said}");
    let path = federation.path();
    assert_eq!(weights(&path.join("served")), weights(&path.join("simulated")));
    for file in ["description.toml", "rounds.jsonl", "model.safetensors", "report.html"] {
        assert!(path.join("served").join(file).exists(), "{file}");
    }
}
