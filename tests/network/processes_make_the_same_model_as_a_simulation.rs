use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

use selvedge_protocols::ClientName;

use crate::federation::Federation;

fn selvedge(federation: &Federation) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge"));
    command.current_dir(federation.path()).stdin(Stdio::null());
    command
}

fn weights(folder: &Path) -> String {
    let summary = fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    summary["weights_blake3"].as_str().unwrap().to_owned()
}

#[test]
fn a_coordinator_and_five_client_processes() {
    let federation = Federation::new(&["clients=5"]);
    let simulated = selvedge(&federation)
        .args(["simulate", "run.toml", "--out", "simulated", "--quiet"])
        .status();
    assert!(simulated.unwrap().success());

    let mut coordinator = selvedge(&federation)
        .args([
            "coordinator",
            "run.toml",
            "--listen",
            "127.0.0.1:0",
            "--out",
            "served",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(coordinator.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();
    let clients: Vec<_> = (0..5)
        .map(|number| {
            selvedge(&federation)
                .args([
                    "client",
                    address,
                    "--name",
                    ClientName::numbered(number).as_str(),
                ])
                .args(["--deal", "run.toml", "--state", "state"])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for client in clients {
        let output = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("the run is over: all rounds are done"),
            "{said}"
        );
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(coordinator.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("round 3/3: 5 of 5 clients"), "{rest}");
    let path = federation.path();
    assert_eq!(
        weights(&path.join("served")),
        weights(&path.join("simulated"))
    );
    for file in [
        "description.toml",
        "rounds.jsonl",
        "model.safetensors",
        "report.html",
    ] {
        assert!(path.join("served").join(file).exists(), "{file}");
    }
}
