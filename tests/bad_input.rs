//! Bad input: a clear error that names the file, the key or the layer, and an exit code that is not zero.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn selvedge(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_selvedge"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Runs a command that must fail with `code` and say each of `parts`; nothing of a run may be left behind.
#[track_caller]
fn fails(folder: &Path, arguments: &[&str], code: &str, parts: &[&str]) {
    let output = selvedge(folder, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    for part in [&[format!("error [{code}]:").as_str()], parts].concat() {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    assert!(!folder.join("results").exists(), "{arguments:?} left results");
}

/// An IDX file: unsigned bytes of this shape.
fn idx(shape: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// A folder with a description of a run on four images of 2 × 2 in two classes.
fn folder_with_images() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("images"), idx(&[4, 2, 2], &[7; 16])).unwrap();
    fs::write(folder.path().join("labels"), idx(&[4], &[0, 1, 0, 1])).unwrap();
    let description = r#"
        rounds = 1
        clients = 2
        data = { source = "idx", train_images = "images", train_labels = "labels", classes = 2 }
        training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
        [model]
        input = [1, 2, 2]
        layers = [{ kind = "flatten" }, { kind = "dense", units = 2 }]
    "#;
    fs::write(folder.path().join("run.toml"), description).unwrap();
    folder
}

/// A run on [`folder_with_images`] with one of its files replaced.
fn with_file(name: &str, content: &[u8], code: &str, parts: &[&str]) {
    let folder = folder_with_images();
    fs::write(folder.path().join(name), content).unwrap();
    fails(folder.path(), &["simulate", "run.toml"], code, parts);
}

/// A run on [`folder_with_images`] with one key set.
fn with_key(set: &str, code: &str, parts: &[&str]) {
    with_keys(&[set], code, parts);
}

fn with_keys(set: &[&str], code: &str, parts: &[&str]) {
    let set = set.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["simulate", "run.toml"].into_iter().chain(set).collect();
    fails(folder_with_images().path(), &arguments, code, parts);
}

#[test]
fn the_run_itself_is_sound() {
    let folder = folder_with_images();
    let output = selvedge(folder.path(), &["simulate", "run.toml", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("weights_blake3"));
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    with_key(
        "roudns=3",
        "E-RUN-KEY",
        &["run.toml", "`roudns`", "did you mean `rounds`?"],
    );
    with_key(
        "cohort.siez=3",
        "E-RUN-KEY",
        &["cohort", "`siez`", "did you mean `size`?"],
    );
    with_key(
        "training.batchsize=3",
        "E-RUN-KEY",
        &["training", "did you mean `batch_size`?"],
    );
    with_key(
        "algorithm.kind=fedagv",
        "E-RUN-KEY",
        &["algorithm", "did you mean `fedavg`?"],
    );
}

#[test]
fn a_value_out_of_range_is_named_with_its_range() {
    with_key("rounds=0", "E-RUN-RANGE", &["rounds", "at least 1"]);
    with_key("cohort.size=3", "E-RUN-RANGE", &["cohort.size", "1 to the 2 clients"]);
    with_key("cohort.quorum=nan", "E-RUN-RANGE", &["cohort.quorum", "(0, 1]"]);
    with_key(
        "training.optimiser.learning_rate=-1.0",
        "E-RUN-RANGE",
        &["learning_rate", "above 0"],
    );
    with_key(
        "evaluation.by_clients=true",
        "E-RUN-RANGE",
        &["evaluation.by_clients", "holdout"],
    );
    with_key("rounds=-1", "E-RUN-KEY", &["rounds"]);
    with_key(
        "filters=[{ kind = \"clip\", norm = 0.0 }]",
        "E-RUN-RANGE",
        &["filters[0].norm", "above 0"],
    );
    with_key(
        "network.idle_seconds=0.5",
        "E-RUN-RANGE",
        &["network.idle_seconds", "from 1 to"],
    );
    with_key(
        "network.wait_seconds=1e300",
        "E-RUN-RANGE",
        &["network.wait_seconds", "from 0.001 to"],
    );
    with_key(
        "cohort.deadline_seconds=nan",
        "E-RUN-RANGE",
        &["cohort.deadline_seconds", "from 0.001 to"],
    );
    let beside = "filters=[{ kind = \"clip\", norm = 1.0 }]";
    with_keys(
        &["algorithm.kind=scaffold", beside],
        "E-RUN-RANGE",
        &["filters[0]", "control_change"],
    );
    let adam = "training.optimiser={ kind = \"adam\", learning_rate = 0.1 }";
    with_keys(
        &["algorithm.kind=scaffold", adam],
        "E-RUN-RANGE",
        &["algorithm.kind", "sgd"],
    );
    let bf16_first = "filters=[{ kind = \"bf16\" }, { kind = \"clip\", norm = 1.0 }]";
    with_key(bf16_first, "E-RUN-RANGE", &["filters[0]", "put it last"]);
}

#[test]
fn a_missing_file_is_named() {
    let folder = TempDir::new().unwrap();
    fails(folder.path(), &["simulate", "no.toml"], "E-RUN-FILE", &["no.toml"]);
    let data = "data={ source = \"mnist\" }";
    let folder = folder_with_images();
    fails(
        folder.path(),
        &["simulate", "run.toml", "--set", data],
        "E-DATA-MISSING",
        &["train-images-idx3-ubyte", "selvedge data fetch mnist"],
    );
}

#[test]
fn a_truncated_and_an_oversized_idx_file_are_told_apart() {
    with_file(
        "images",
        &idx(&[4, 2, 2], &[7; 15]),
        "E-DATA-TRUNCATED",
        &["images", "32 bytes expected", "31"],
    );
    with_file(
        "images",
        &idx(&[4, 2, 2], &[7; 17]),
        "E-DATA-OVERSIZED",
        &["images", "32 bytes expected", "33"],
    );
    with_file("labels", &[0, 0, 8], "E-DATA-TRUNCATED", &["labels"]);
    // A header that promises 2^60 bytes is believed only as far as the file goes.
    with_file(
        "images",
        &idx(&[1 << 30, 1 << 15, 1 << 15], &[]),
        "E-DATA-TRUNCATED",
        &["images"],
    );
}

#[test]
fn a_label_outside_the_classes_is_named() {
    with_file(
        "labels",
        &idx(&[4], &[0, 1, 0, 9]),
        "E-DATA-LABEL",
        &["labels", "example 3", "label 9", "2 classes"],
    );
}

#[test]
fn a_csv_table_with_a_hole_is_named_by_line_and_column() {
    let folder = folder_with_images();
    fs::write(folder.path().join("table.csv"), "a,b,label\n1,2,x\n3,,y\n").unwrap();
    let data = "data={ source = \"csv\", train = \"table.csv\", label = \"label\" }";
    fails(
        folder.path(),
        &["simulate", "run.toml", "--set", data],
        "E-DATA-CELL",
        &["table.csv", "line 3", "`b`"],
    );
}

#[test]
fn a_model_whose_shapes_do_not_chain_is_named_by_layer_and_shapes() {
    with_key(
        "model.layers=[{ kind = \"conv2d\", channels = 2, kernel = 5 }, { kind = \"dense\", units = 2 }]",
        "E-RUN-KEY",
        &["layer 0 (conv2d)", "5x5", "[1, 2, 2]"],
    );
    with_key(
        "model.layers=[{ kind = \"dense\", units = 2 }]",
        "E-RUN-KEY",
        &["layer 0 (dense)", "[1, 2, 2]"],
    );
    with_key(
        "model.layers=[{ kind = \"flatten\" }, { kind = \"dense\", units = 1000000000000 }]",
        "E-RUN-KEY",
        &["model"],
    );
}

#[test]
fn a_model_that_does_not_go_with_the_examples_is_refused_before_the_run() {
    with_key(
        "model.input=[1, 3, 3]",
        "E-RUN-RANGE",
        &["model.input", "[1, 3, 3]", "[1, 2, 2]"],
    );
    with_key("data.classes=7", "E-RUN-RANGE", &["model", "7 classes"]);
    with_key(
        "training.loss=mean-squared-error",
        "E-RUN-RANGE",
        &["training.loss", "cross-entropy"],
    );
}

#[test]
fn results_are_never_written_over() {
    let folder = folder_with_images();
    let run = ["simulate", "run.toml", "--out", "there", "--quiet"];
    assert!(selvedge(folder.path(), &run).status.success());
    let before = fs::read(folder.path().join("there/summary.json")).unwrap();
    fails(folder.path(), &run, "E-RESULTS-OCCUPIED", &["there", "--out"]);
    assert_eq!(fs::read(folder.path().join("there/summary.json")).unwrap(), before);
}

#[test]
fn a_description_that_is_there_is_not_written_over() {
    let folder = folder_with_images();
    fails(folder.path(), &["init", "run.toml"], "E-SYSTEM", &["run.toml"]);
}

#[test]
fn a_client_without_a_certificate_is_told_which_file_is_missing() {
    let folder = folder_with_images();
    let client = [
        "client",
        "127.0.0.1:1",
        "--certs",
        ".",
        "--name",
        "client-0",
        "--deal",
        "run.toml",
    ];
    fails(
        folder.path(),
        &client,
        "E-WIRE-NO-CERT",
        &["client-0.pem", "certs issue"],
    );
}

#[test]
fn a_coordinator_without_certificates_is_told_how_to_make_them() {
    let folder = folder_with_images();
    fails(
        folder.path(),
        &["coordinator", "run.toml"],
        "E-WIRE-NO-CERT",
        &["certs/coordinator.pem", "selvedge certs new", "--certs"],
    );
    fails(
        folder.path(),
        &["coordinator", "run.toml", "--certs", "."],
        "E-WIRE-NO-CERT",
        &["coordinator.pem"],
    );
}

/// A model with something to thin: hidden units, attention heads, a group norm.
const THINNABLE: &str = "model={ input = [1, 2, 2], layers = [
    { kind = 'conv2d', channels = 6, kernel = 1 },
    { kind = 'group-norm', groups = 2 },
    { kind = 'flatten' },
    { kind = 'dense', units = 8 },
    { kind = 'dense', units = 2 },
] }";

#[test]
fn sub_models_that_cannot_be_are_named() {
    let refused = |set: &[&str], parts: &[&str]| {
        let parts = [&["sub_models"], parts].concat();
        with_keys(&[&[THINNABLE], set].concat(), "E-RUN-RANGE", &parts);
    };
    let quarter = "sub_models.capacities=[{ width = 0.25, share = 1.0 }]";
    refused(
        &["sub_models.plan.kind=static"],
        &["capacities", "how much of the model"],
    );
    refused(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = 0.0, share = 1.0 }]",
        ],
        &["capacities[0].width", "above 0"],
    );
    refused(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = nan, share = 1.0 }]",
        ],
        &["capacities[0].width"],
    );
    refused(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = 0.5, share = 0.5 }, { width = 1.0, share = 0.4 }]",
        ],
        &["capacities", "sum to 0.9, not to 1"],
    );
    refused(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = 0.5, share = 0.5 }, { width = 1.0 }]",
        ],
        &["capacities", "for none"],
    );
    refused(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = 0.5, share = 0.5 }, { width = 0.5, share = 0.5 }]",
        ],
        &["given twice"],
    );
    // Of six channels a sixth is one, which makes no two groups.
    refused(
        &[
            "sub_models.plan.kind=rolling",
            "sub_models.capacities=[{ width = 0.16, share = 1.0 }]",
        ],
        &["at width 0.16", "layer 1 (group-norm)", "`groups` is 2", "1 channels"],
    );
    refused(
        &["sub_models.plan={ kind = 'partitioned', blocks = 7 }"],
        &["layer 0 has 6 units", "plan.blocks = 7"],
    );
    refused(
        &["sub_models.plan={ kind = 'partitioned', blocks = 0 }"],
        &["plan.blocks", "from 1 to 256"],
    );
    refused(
        &["sub_models.plan={ kind = 'partitioned', blocks = 3 }", quarter],
        &["capacities[0].width", "not a whole number"],
    );
    refused(
        &["sub_models.plan.kind=full", quarter],
        &["capacities", "everybody trains the whole model"],
    );
    refused(
        &["sub_models.plan.kind=static", quarter, "sub_models.radius=0.0"],
        &["radius", "above 0"],
    );
    refused(
        &["sub_models.plan.kind=magnitude", quarter, "algorithm.kind=scaffold"],
        &["plan", "only the server knows"],
    );
    with_keys(
        &[
            "sub_models.plan.kind=static",
            "sub_models.capacities=[{ width = 0.5, share = 1.0 }]",
        ],
        "E-RUN-RANGE",
        &["sub_models", "no width group"],
    );
    with_key(
        "sub_models.plan.kind=rollin",
        "E-RUN-KEY",
        &["sub_models.plan", "did you mean `rolling`?"],
    );
}

#[test]
fn heads_that_cannot_be_shared_out_are_named() {
    let folder = TempDir::new().unwrap();
    let description = r#"
        rounds = 1
        clients = 2
        data = { source = "csv", train = "none.csv", label = "y" }
        training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
        [model]
        input = [3, 4]
        layers = [{ kind = "attention", heads = 6, head_size = 2 }, { kind = "flatten" }, { kind = "dense", units = 2 }]
        [sub_models]
        plan = { kind = "static" }
        capacities = [{ width = 0.25, share = 1.0 }]
    "#;
    fs::write(folder.path().join("run.toml"), description).unwrap();
    let parts = ["sub_models", "layer 0 (attention) has 6 heads", "1/4"];
    fails(folder.path(), &["check", "run.toml"], "E-RUN-RANGE", &parts);
    let blocks = "sub_models.plan={ kind = 'partitioned', blocks = 4 }";
    fails(
        folder.path(),
        &["check", "run.toml", "--set", blocks],
        "E-RUN-RANGE",
        &parts,
    );
}

#[test]
fn a_simulation_has_no_devices_that_could_report() {
    let capacities = "sub_models.capacities=[{ width = 0.3 }, { width = 1.0 }]";
    let set = [THINNABLE, "sub_models.plan.kind=static", capacities];
    with_keys(&set, "E-RUN-CAPACITIES", &["clients of a simulation", "`share`"]);
}
