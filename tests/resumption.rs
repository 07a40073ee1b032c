//! A run that is killed and taken up again comes to the same end, byte for byte, as one that is not.
//!
//! `SELVEDGE_KILLS=20 cargo test --test resumption` kills that often in each run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tempfile::TempDir;

const DESCRIPTION: &str = r#"
    rounds = 10
    clients = 6
    data = { source = "fashion-mnist-small" }
    partition = { kind = "dirichlet", alpha = 0.5 }
    cohort = { size = 4 }
    [model]
    input = [1, 28, 28]
    layers = [
        { kind = "average-pool2d", kernel = 4 },
        { kind = "flatten" },
        { kind = "dense", units = 16 },
        { kind = "batch-norm" },
        { kind = "relu" },
        { kind = "dense", units = 10 },
    ]
    [training]
    steps = 4
    optimiser = { kind = "sgd", learning_rate = 0.1 }
"#;

/// What is kept between rounds, each in its own way.
const RUNS: [(&str, &[&str]); 8] = [
    ("FedAvg", &[]),
    ("SCAFFOLD", &["algorithm.kind=scaffold"]),
    ("FedAdam", &["algorithm.kind=fedadam"]),
    (
        "deck sub-models",
        &["sub_models={ plan = { kind = 'partitioned', blocks = 4 } }"],
    ),
    (
        "static batch norm",
        &[
            "sub_models={ plan = { kind = 'partitioned', blocks = 2, dealing = 'latin-square' }, batch_norm = 'static', \
             capacities = [{ width = 0.5, share = 0.5 }, { width = 1.0, share = 0.5 }] }",
        ],
    ),
    (
        "PSL",
        &[
            "split={ method = { kind = 'parallel' }, cut = 3 }",
            "evaluation.every=3",
        ],
    ),
    (
        "GAPSL",
        &["split={ method = { kind = 'gapsl', refresh = 2 }, cut = 3 }"],
    ),
    (
        "top-k with feedback and a personal layer",
        &[
            "algorithm={ kind = 'fedper', personal = ['5'] }",
            "filters=[{ kind = 'top-k', share = 0.1 }]",
            "evaluation={ by_clients = true, holdout = 0.2 }",
        ],
    ),
];

fn selvedge(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge"));
    command.args(arguments).current_dir(folder);
    command
}

fn settings<'a>(set: &[&'a str]) -> Vec<&'a str> {
    set.iter().flat_map(|set| ["--set", set]).collect()
}

/// What a run has left: the hash of the final weights, the records without what the clock measured, and the files beside them.
type Left = (String, Vec<Value>, BTreeMap<String, Vec<u8>>);

fn result(out: &Path) -> Left {
    let summary: Value = serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
    let rounds = fs::read_to_string(out.join("rounds.jsonl")).unwrap();
    let record = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record["seconds"] = Value::Null;
        record
    };
    let records = rounds.lines().map(record).collect();
    let mut files = BTreeMap::new();
    for folder in [out.to_owned(), out.join("fronts")] {
        for file in fs::read_dir(folder).into_iter().flatten() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".safetensors") || name == "units.json" {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    (summary["weights_blake3"].as_str().unwrap().to_owned(), records, files)
}

fn undisturbed(folder: &Path, set: &[&str]) -> Left {
    let simulate = ["simulate", "run.toml", "--quiet", "--out", "undisturbed"];
    let output = selvedge(folder, &[&simulate[..], &settings(set)].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    result(&folder.join("undisturbed"))
}

/// Runs a command until so many rounds are recorded and a little longer, kills it, and says whether it had ended before.
fn kill_after(mut command: Command, out: &Path, rounds: usize, longer: Duration) -> bool {
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let recorded =
        || fs::read(out.join("rounds.jsonl")).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
    loop {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        if recorded() >= rounds {
            thread::sleep(longer);
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
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
fn a_simulation_killed_again_and_again_ends_as_if_it_had_never_been() {
    let kills: u32 = env::var("SELVEDGE_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(5);
    for (name, set) in RUNS {
        let folder = TempDir::new().unwrap();
        let folder = folder.path();
        fs::write(folder.join("run.toml"), DESCRIPTION).unwrap();
        let expected = undisturbed(folder, set);
        let out = folder.join("out");
        let begin = ["simulate", "run.toml", "--checkpoint-every", "1", "--out", "out"];
        let begin = [&begin[..], &settings(set)].concat();
        let mut random = ChaCha8Rng::seed_from_u64(name.len() as u64);
        let mut is_over = false;
        for kill in 0..kills {
            let command = match has_checkpoint(&out) {
                true => selvedge(folder, &["simulate", "--resume", "out", "--workers", "1"]),
                false => selvedge(folder, &begin),
            };
            let longer = Duration::from_micros(random.random_range(0..20_000));
            is_over = is_over || kill_after(command, &out, (1 + kill * 8 / kills) as usize, longer);
        }
        if !is_over {
            let output = selvedge(folder, &["simulate", "--resume", "out", "--quiet"])
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let found = result(&out);
        assert_eq!(found.1, expected.1, "{name}");
        assert_eq!(found.0, expected.0, "{name}");
        assert!(
            found.2 == expected.2,
            "{name}: {:?}, not {:?}",
            found.2.keys(),
            expected.2.keys()
        );
        // Of a run that is over nothing is lost by taking it up.
        let output = selvedge(folder, &["simulate", "--resume", "out", "--quiet"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(result(&out) == expected, "{name}");
    }
}

#[test]
fn a_run_that_is_interrupted_says_how_to_go_on_and_does_so_also_between_checkpoints() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("run.toml"), DESCRIPTION).unwrap();
    let set = ["algorithm.kind=scaffold", "training.steps=40"];
    let expected = undisturbed(folder, &set);
    let begin = ["simulate", "run.toml", "--checkpoint-every", "100", "--out", "out"];
    let mut child = selvedge(folder, &[&begin[..], &settings(&set)].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    said.lines()
        .find(|line| line.as_ref().is_ok_and(|line| line.contains("round 3")))
        .unwrap()
        .unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("to go on: selvedge simulate --resume out"), "{said}");
    let output = selvedge(folder, &["simulate", "--resume", "out", "--quiet"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(result(&folder.join("out")), expected);
}

/// A run of two rounds that was put down.
fn put_down() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("run.toml"), DESCRIPTION).unwrap();
    let set = settings(&["rounds=2"]);
    let run = [
        "simulate",
        "run.toml",
        "--quiet",
        "--checkpoint-every",
        "1",
        "--out",
        "out",
    ];
    let output = selvedge(folder.path(), &[&run[..], &set].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = folder.path().join("out");
    (folder, out)
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = selvedge(folder, arguments).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn another_description_is_refused_with_the_difference_and_another_name_is_none() {
    let (folder, _) = put_down();
    let resume = ["simulate", "--resume", "out"];
    let said = refused(
        folder.path(),
        &[&resume[..], &["--set", "algorithm.kind=fedprox"]].concat(),
    );
    assert!(
        said.contains("- kind = \"fedavg\"") && said.contains("+ kind = \"fedprox\""),
        "{said}"
    );
    let output = selvedge(
        folder.path(),
        &[&resume[..], &["--quiet", "--set", "name=other"]].concat(),
    )
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken() {
    let (folder, out) = put_down();
    let expected = result(&out);
    let checkpoints = out.join("checkpoints");
    let newest = checkpoints.join("run.2");
    let whole = fs::read(&newest).unwrap();
    let middle = whole.len() / 2;
    for damaged in [
        &whole[..middle],
        &[&whole[..middle], &[!whole[middle]], &whole[middle + 1..]].concat(),
    ] {
        fs::write(&newest, damaged).unwrap();
        let output = selvedge(folder.path(), &["simulate", "--resume", "out"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("run.2"), "{said}");
        assert_eq!(result(&out), expected);
    }
    for checkpoint in fs::read_dir(&checkpoints).unwrap() {
        fs::write(checkpoint.unwrap().path(), b"nothing").unwrap();
    }
    let said = refused(folder.path(), &["simulate", "--resume", "out"]);
    assert!(said.contains("no generation is whole"), "{said}");
}

#[test]
fn a_run_is_taken_up_from_another_folder_with_the_data_that_it_had() {
    let folder = TempDir::new().unwrap();
    let (here, elsewhere) = (folder.path().join("here"), folder.path().join("elsewhere"));
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    let table: String = (0..60)
        .map(|at| format!("{},{},{}\n", at % 7, at % 5, at % 3))
        .collect();
    fs::write(here.join("train.csv"), format!("a,b,label\n{table}")).unwrap();
    let description = "rounds = 4\nclients = 3\ntraining.optimiser = { kind = 'sgd', learning_rate = 0.1 }\n\
                       data = { source = 'csv', train = 'train.csv', label = 'label' }\n\
                       model = { input = [2], layers = [{ kind = 'dense', units = 3 }] }";
    fs::write(here.join("run.toml"), description).unwrap();
    let begin = [
        "simulate",
        "run.toml",
        "--quiet",
        "--checkpoint-every",
        "2",
        "--out",
        "out",
    ];
    let output = selvedge(&here, &begin).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = selvedge(&elsewhere, &["simulate", "--quiet", "--resume", "../here/out"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_taken_up_is_said() {
    let (folder, out) = put_down();
    let said = refused(folder.path(), &["simulate", "--resume", "elsewhere"]);
    assert!(said.contains("there is no checkpoint"), "{said}");
    let said = refused(
        folder.path(),
        &["coordinator", "--resume", "out", "--listen", "127.0.0.1:0"],
    );
    assert!(said.contains("selvedge simulate --resume"), "{said}");
    let records = fs::File::open(out.join("rounds.jsonl")).unwrap();
    records.lock().unwrap();
    let said = refused(folder.path(), &["simulate", "--resume", "out"]);
    assert!(said.contains("another process"), "{said}");
    drop(records);
    fs::write(out.join("rounds.jsonl"), "").unwrap();
    let said = refused(folder.path(), &["simulate", "--resume", "out"]);
    assert!(said.contains("do not reach round 2"), "{said}");
}
