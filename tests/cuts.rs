//! `selvedge model show --cuts`: the table, and flags that make no sense.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::process::{Command, Output};

const SHOW: [&str; 4] = ["model", "show", "--preset", "mcmahan-cnn"];

fn show(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_selvedge"))
        .args(SHOW)
        .args(flags)
        .output()
        .unwrap()
}

/// What is printed.
#[track_caller]
fn shown(flags: &[&str]) -> String {
    let output = show(flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The row of the recommended cut.
#[track_caller]
fn recommended(flags: &[&str]) -> String {
    let text = shown(&[&["--cuts", "--speed", "1", "--server-speed", "100"], flags].concat());
    let mut rows = text.lines().filter(|line| line.contains("recommended"));
    let row = rows.next().expect(&text).to_string();
    assert_eq!(rows.next(), None, "{text}");
    row
}

/// Flags that must be refused, and what is said about it.
#[track_caller]
fn refused(flags: &[&str], parts: &[&str]) {
    let output = show(flags);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn every_cut_has_a_row() {
    let text = shown(&["--cuts"]);
    let row = text.lines().find(|line| line.starts_with("3 ")).expect(&text);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells,
        ["3", "2", "max-pool2d", "832", "5.4", "%", "4.6", "MB", "25,088"]
    );
    assert!(text.contains("batches of 10"), "{text}");
    assert!(!text.contains("recommended"), "{text}");
    let narrow = shown(&["--cuts", "--encoding", "int8", "--batch", "20"]);
    assert!(narrow.contains("6,280"), "{narrow}");
    assert!(narrow.contains("batches of 20"), "{narrow}");
}

#[test]
fn the_recommended_cut_depends_on_the_links() {
    assert!(recommended(&[]).starts_with("3 "));
    let slow = recommended(&["--up", "1", "--down", "1", "--delay", "20"]);
    assert!(slow.starts_with("8 "), "{slow}");
}

#[test]
fn a_description_says_what_flags_leave_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    let description = "rounds = 1
        clients = 16
        data = { source = 'fashion-mnist-small' }
        model = { preset = 'mcmahan-cnn' }
        training = { batch_size = 20, optimiser = { kind = 'sgd', learning_rate = 0.1 } }
        [split]
        method = { kind = 'parallel' }
        cut = 3
        smashed = 'bf16'
        devices = { speed = 1, server_speed = 100 }";
    std::fs::write(&file, description).unwrap();
    let shown = |flags: &[&str]| {
        let command = Command::new(env!("CARGO_BIN_EXE_selvedge"))
            .args(["model", "show", "--cuts"])
            .arg(&file)
            .args(flags)
            .output()
            .unwrap();
        assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
        String::from_utf8(command.stdout).unwrap()
    };
    let text = shown(&[]);
    let row = text.lines().find(|line| line.starts_with("3 ")).expect(&text);
    assert!(row.contains("12,544") && row.contains("the description's"), "{text}");
    assert!(text.contains("one batch of 20, for 16 clients together"), "{text}");
    let text = shown(&["--split-clients", "1", "--batch", "5", "--encoding", "int8"]);
    assert!(text.contains("one batch of 5, for one client"), "{text}");
    assert!(text.contains("6,280"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("none ")), "{text}");
    // In a U-shape the client has the last layer too, and its 512 inputs cross a second cut.
    let text = shown(&["--set", "split.labels=u-shape"]);
    let row = text.lines().find(|line| line.starts_with("3 ")).expect(&text);
    assert!(row.contains("5,962") && row.contains("13,568"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("9 ")), "{text}");
}

#[test]
fn it_is_said_when_no_cut_is_quicker_than_the_whole_model() {
    let slow = shown(&[
        "--cuts",
        "--speed",
        "2",
        "--server-speed",
        "200",
        "--up",
        "1",
        "--down",
        "1",
    ]);
    assert!(slow.contains("no cut makes a step as short"), "{slow}");
    let quick = shown(&["--cuts", "--speed", "2", "--server-speed", "200"]);
    assert!(!quick.contains("no cut makes"), "{quick}");
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let speeds = ["--cuts", "--speed", "1", "--server-speed", "100"];
    let with = |flags: &[&'static str]| [&speeds, flags].concat();
    refused(&["--speed", "1", "--server-speed", "100"], &["--cuts"]);
    refused(&["--batch", "5"], &["--cuts"]);
    refused(&["--encoding", "int8"], &["--cuts"]);
    refused(&["--cuts", "--speed", "1"], &["--server-speed"]);
    refused(&["--cuts", "--server-speed", "1"], &["--speed"]);
    refused(&["--cuts", "--up", "1"], &["--speed"]);
    refused(
        &["--cuts", "--speed", "0", "--server-speed", "1"],
        &["--speed", "above 0"],
    );
    refused(
        &["--cuts", "--speed", "nan", "--server-speed", "1"],
        &["--speed", "finite"],
    );
    refused(&["--cuts", "--speed", "fast", "--server-speed", "1"], &["not a number"]);
    refused(&with(&["--up", "-1"]), &["--up", "above 0"]);
    refused(&with(&["--down", "inf"]), &["--down", "finite"]);
    refused(&with(&["--delay", "-1"]), &["--delay", "0 or above"]);
    refused(&with(&["--batch", "0"]), &["--batch", "1..=1000000"]);
    refused(&with(&["--split-clients", "0"]), &["--split-clients", "1..=1000000"]);
    refused(&with(&["--encoding", "int4"]), &["--encoding", "bf16"]);
}
