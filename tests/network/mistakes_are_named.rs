use std::fs;

use crate::{federation::Federation, process::Process};

/// Runs the command, which must fail and say all of `named`.
fn fails(federation: &Federation, arguments: &[&str], named: &[&str]) {
    let (status, said) = Process::start(federation, arguments).end();
    assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
    for name in named {
        assert!(said.contains(name), "{arguments:?} does not say {name:?}: {said}");
    }
}

const CLIENT: [&str; 4] = ["client", "127.0.0.1:1", "--deal", "run.toml"];

#[test]
fn of_certificates() {
    let federation = Federation::new(&[]);
    let client = |more: &[&str], named: &[&str]| fails(&federation, &[&CLIENT, more].concat(), named);
    client(&["--name", "nobody"], &["nobody.pem"]);
    client(&["--name", "client-0", "--certs", "nowhere"], &["nowhere"]);
    let coordinator = ["coordinator", "run.toml", "--certs", "nowhere"];
    fails(&federation, &coordinator, &["nowhere", "coordinator.pem"]);
}

#[test]
fn of_examples() {
    let federation = Federation::new(&[]);
    let write = |file: &str, text: &str| fs::write(federation.path().join(file), text).unwrap();
    let client = ["client", "127.0.0.1:1", "--name", "client-0"];
    let client = |more: &[&str], named: &[&str]| fails(&federation, &[&client, more].concat(), named);
    client(&["--data", "none.toml"], &["none.toml"]);
    write("key.toml", "source = \"csv\"\ntrain = \"train.csv\"\nlable = \"label\"");
    client(&["--data", "key.toml"], &["key.toml", "lable"]);
    write("hole.csv", "a,label\n1.0,0\n,1\n");
    write(
        "learned.toml",
        "source = \"csv\"\ntrain = \"hole.csv\"\nlabel = \"label\"",
    );
    client(&["--data", "learned.toml"], &["`classes`", "the same for all clients"]);
    // Under the header that a description has, too.
    write(
        "hole.toml",
        "[data]\nsource = \"csv\"\ntrain = \"hole.csv\"\nlabel = \"label\"\nclasses = 2",
    );
    client(&["--data", "hole.toml"], &["hole.csv", "line 3"]);
}

#[test]
fn of_addresses() {
    let federation = Federation::new(&[]);
    let client = ["client", "localhost", "--deal", "run.toml", "--name", "client-0"];
    fails(&federation, &client, &["localhost", "HOST:PORT"]);
    let silent = ["--name", "client-0", "--give-up-after", "0"];
    fails(
        &federation,
        &[&CLIENT, &silent[..]].concat(),
        &["no coordinator for 0 s", "127.0.0.1:1"],
    );
}

#[test]
fn of_shares_and_of_examples_that_do_not_go_with_the_model() {
    let federation = Federation::new(&[]);
    let (_coordinator, address) = Process::coordinator(&federation, &[]);
    fs::write(
        federation.path().join("narrow.csv"),
        "a,b,label\n1.0,2.0,0\n1.5,2.5,1\n",
    )
    .unwrap();
    let narrow = "source = \"csv\"\ntrain = \"narrow.csv\"\nlabel = \"label\"\nclasses = 3";
    fs::write(federation.path().join("narrow.toml"), narrow).unwrap();
    let client = ["client", &address, "--name", "client-0", "--data", "narrow.toml"];
    fails(&federation, &client, &["this client's examples", "[4]", "[2]"]);
    federation.issue("ward-7");
    let client = ["client", &address, "--name", "ward-7", "--deal", "run.toml"];
    fails(&federation, &client, &["ward-7 has no share", "client-0 to client-2"]);
}
