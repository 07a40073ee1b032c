use std::{collections::BTreeMap, fs};

use selvedge_data::ClientHolding;
use selvedge_models::Weights;
use selvedge_protocols::{ClientName, Width, description::EXAMPLE};
use tempfile::TempDir;

use super::*;
use crate::record::{Failure, WidthRecord};

fn description(name: &str) -> Description {
    let example = Description::parse(EXAMPLE, "the example", &[]).unwrap();
    Description {
        name: name.into(),
        ..example
    }
}

fn layout() -> Layout {
    description("any").model.layout().unwrap()
}

fn state() -> ServerState {
    let mut weights = Weights::zeros(&layout());
    weights.parameters[0] = 1.5;
    ServerState::from(weights)
}

fn record(round: u32) -> RoundRecord {
    RoundRecord {
        round,
        selected: 10,
        completed: 10,
        applied: true,
        train_loss: Some(2.0 / f64::from(round)),
        test_loss: Some(2.3 / f64::from(round)),
        test_accuracy: Some(1.0 - 0.5 / f64::from(round)),
        bytes_up: 1000,
        bytes_down: 2000,
        seconds: 0.5,
        ..RoundRecord::default()
    }
}

/// Runs the given rounds to their end, and gives the folder, the summary and the report.
fn finished(name: &str, records: &[RoundRecord], outcome: Outcome) -> (TempDir, Summary, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &description(name)).unwrap();
    for record in records {
        assert!(results.record(record));
    }
    let holding = |client, labels: [u64; 2]| ClientHolding {
        client,
        group: None,
        examples: 4,
        labels: labels.to_vec(),
    };
    let holdings = Holdings {
        clients: 2,
        examples: 8,
        empty_clients: 0,
        fewest: 4,
        median: 4,
        most: 4,
        shown: vec![holding(0, [3, 1]), holding(1, [0, 4])],
    };
    let summary = results
        .finish(outcome, &layout(), &state(), Some(&holdings), 12.5)
        .unwrap();
    let report = read(&folder, REPORT);
    (folder, summary, report)
}

fn read(folder: &TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join(file)).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_run_that_is_stopped_before_its_first_round_leaves_all_files() {
    let (folder, summary, report) = finished("early", &[], Outcome::Stopped);
    assert_eq!(files(folder.path()), [DESCRIPTION, MODEL, REPORT, ROUNDS, SUMMARY]);
    assert_eq!(read(&folder, ROUNDS), "");
    assert_eq!((summary.rounds, summary.test_accuracy), (0, None));
    assert!(report.contains("stopped") && report.contains("No round was finished"));
    assert!(!report.contains("<table"));
}

#[test]
fn the_description_is_there_and_each_round_can_be_read_before_the_run_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder_of_run = folder.path().join("made/on/demand");
    let mut results = Results::create(&folder_of_run, &description("running")).unwrap();
    assert_eq!(files(&folder_of_run), [DESCRIPTION, ROUNDS]);
    let description = fs::read_to_string(folder_of_run.join(DESCRIPTION)).unwrap();
    assert_eq!(description, self::description("running").to_toml());
    for round in 1..=3 {
        assert!(results.record(&record(round)));
        let lines = fs::read_to_string(folder_of_run.join(ROUNDS)).unwrap();
        assert_eq!(lines.lines().count(), round as usize);
        assert!(lines.ends_with('\n'));
    }
}

#[test]
fn a_run_of_one_round_is_drawn_as_points() {
    let (_folder, summary, report) = finished("short", &[record(1)], Outcome::Completed);
    assert_eq!(summary.test_accuracy, Some(0.5));
    // Accuracy, two losses, two kinds of traffic, selected and completed.
    assert_eq!(report.matches("<circle").count(), 7);
    assert!(!report.contains("NaN") && !report.contains("inf\""));
}

#[test]
fn a_run_of_a_hundred_rounds_can_be_read_back_from_its_files() {
    let mut records: Vec<_> = (1..=100).map(record).collect();
    records[49].test_accuracy = Some(0.999);
    let (folder, summary, report) = finished("long", &records, Outcome::Completed);
    let lines = read(&folder, ROUNDS);
    let back: Vec<RoundRecord> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(back, records);

    assert_eq!(
        serde_json::from_str::<Summary>(&read(&folder, SUMMARY)).unwrap(),
        summary
    );
    assert_eq!((summary.bytes_up, summary.bytes_down), (100_000, 200_000));
    assert_eq!(
        (summary.test_accuracy, summary.best_test_accuracy),
        (Some(0.995), Some(0.999))
    );
    assert_eq!(summary.weights_blake3, state().weights.blake3());
    let model = Weights::load(&folder.path().join(MODEL), &layout()).unwrap();
    assert_eq!(model, *state().weights);
    assert!(report.contains(&summary.weights_blake3));
    assert_eq!(report.matches("<tr").count(), 1 + 100);
}

#[test]
fn what_was_measured_is_in_the_report_and_a_name_that_a_peer_made_up_is_text() {
    let mut records: Vec<_> = (1..=3).map(record).collect();
    records[0].metrics.insert("server.0.norm".into(), 2.5);
    records[2].metrics.insert("server.0.norm".into(), 7.25);
    let made_up = [("algorithm.<script>".to_string(), 1.0)].into();
    records[1].client_metrics.insert(ClientName::numbered(3), made_up);
    let (folder, _, report) = finished("measured", &records, Outcome::Completed);
    let lines = read(&folder, ROUNDS);
    let back: Vec<RoundRecord> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(back, records);
    for text in ["server.0.norm", "2.5", "7.25", "algorithm.&lt;script&gt;, of clients"] {
        assert!(report.contains(text), "{text}");
    }
}

#[test]
fn the_summary_has_these_keys() {
    let (folder, ..) = finished("keys", &[record(1)], Outcome::TooFewClients);
    let summary: serde_json::Value = serde_json::from_str(&read(&folder, SUMMARY)).unwrap();
    let keys: Vec<_> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "rounds",
        "outcome",
        "test_accuracy",
        "applied",
        "best_test_accuracy",
        "seconds",
        "bytes_up",
        "bytes_down",
        "peak_rss_bytes",
        "weights_blake3",
    ];
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(summary["outcome"], "too-few-clients");
}

#[test]
fn what_was_not_measured_or_is_no_number_is_null_and_a_dash() {
    let unmeasured = RoundRecord {
        test_accuracy: None,
        test_loss: None,
        ..record(2)
    };
    let broken = RoundRecord {
        test_accuracy: Some(f64::NAN),
        train_loss: Some(f64::INFINITY),
        ..record(3)
    };
    let (folder, summary, report) = finished("gaps", &[record(1), unmeasured, broken], Outcome::Completed);
    assert_eq!(
        (summary.test_accuracy, summary.best_test_accuracy),
        (Some(0.5), Some(0.5))
    );
    let last: RoundRecord = serde_json::from_str(read(&folder, ROUNDS).lines().last().unwrap()).unwrap();
    assert_eq!((last.test_accuracy, last.train_loss), (None, None));
    assert!(report.contains("<td>–</td>"));
    assert!(!report.contains("NaN") && !report.contains("inf<"));
}

#[test]
fn a_run_that_took_no_finite_time_can_still_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let results = Results::create(folder.path(), &description("clock")).unwrap();
    let summary = results
        .finish(Outcome::Completed, &layout(), &state(), None, f64::NAN)
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Summary>(&read(&folder, SUMMARY)).unwrap(),
        summary
    );
    assert!(!read(&folder, REPORT).contains("Partition"));
}

#[test]
fn names_reasons_and_notes_are_text_and_never_markup() {
    let hostile = "<script>alert('x')</script>\"><img src=x>";
    let record = RoundRecord {
        completed: 0,
        applied: false,
        failed: BTreeMap::from([(hostile.into(), 1)]),
        stray: BTreeMap::from([(hostile.into(), 1)]),
        failures: vec![Failure {
            client: ClientName::numbered(7),
            reason: hostile.into(),
        }],
        note: Some(hostile.into()),
        ..record(1)
    };
    let (_folder, _, report) = finished(hostile, &[record], Outcome::Completed);
    assert!(!report.contains("<script") && !report.contains("<img"));
    // Title, headline, description, two counts, note, reason.
    assert_eq!(report.matches("&lt;script&gt;").count(), 7);
}

#[test]
fn the_report_names_nothing_outside_itself() {
    let (_folder, _, report) = finished("alone", &[record(1)], Outcome::Completed);
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!report.contains(outside), "{outside}");
    }
}

#[test]
fn the_report_says_who_failed_and_why() {
    let failures = vec![Failure {
        client: ClientName::numbered(7),
        reason: "nothing came before the deadline".into(),
    }];
    let record = RoundRecord {
        completed: 9,
        failed: BTreeMap::from([("deadline".into(), 1)]),
        failures,
        ..record(1)
    };
    let (_folder, _, report) = finished("failing", &[record], Outcome::Completed);
    assert!(report.contains("1 × deadline") && report.contains("9 of 10"));
    assert!(report.contains("client-7") && report.contains("nothing came before the deadline"));
}

#[test]
fn a_folder_that_holds_a_run_is_refused_and_left_as_it_is() {
    let (folder, ..) = finished("first", &[record(1)], Outcome::Completed);
    let before = read(&folder, DESCRIPTION);
    let error = Results::create(folder.path(), &description("second")).unwrap_err();
    assert!(matches!(error, ResultsError::Occupied { .. }));
    assert!(error.to_string().contains("choose another folder with --out"));
    assert_eq!(read(&folder, DESCRIPTION), before);
}

#[test]
fn a_folder_is_refused_for_any_file_that_a_run_would_replace() {
    for file in [DESCRIPTION, ROUNDS, MODEL, SUMMARY, REPORT] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), "mine").unwrap();
        assert!(matches!(
            Results::create(folder.path(), &description("x")),
            Err(ResultsError::Occupied { .. })
        ));
        assert_eq!((read(&folder, file), files(folder.path()).len()), ("mine".into(), 1));
    }
}

#[test]
fn an_error_names_the_folder_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Results::create(&file.join("run"), &description("x")).unwrap_err();
    assert_eq!(error.code(), "E-RESULTS-FILE");
    assert!(error.to_string().contains("file"));
}

#[test]
fn the_free_folder_is_the_first_that_is_not_there() {
    let parent = tempfile::tempdir().unwrap();
    let free = || free_folder(parent.path(), "mnist");
    assert_eq!(free(), parent.path().join("mnist"));
    fs::create_dir(free()).unwrap();
    assert_eq!(free(), parent.path().join("mnist-2"));
    fs::create_dir(free()).unwrap();
    assert_eq!(free(), parent.path().join("mnist-3"));
}

#[test]
fn no_name_leads_out_of_the_folder_of_results() {
    for (name, folder) in [
        ("../../etc", "etc"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "run"),
        ("", "run"),
        ("a b\\c:d", "a-b-c-d"),
        ("Zürich 1.5", "Zürich-1.5"),
    ] {
        assert_eq!(
            free_folder(Path::new("results"), name),
            Path::new("results").join(folder)
        );
    }
}

#[test]
fn a_run_with_sub_models_leaves_how_often_each_unit_was_trained_and_the_report_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "sub_models.plan={ kind = 'partitioned', blocks = 2 }".parse().unwrap();
    let description = Description::parse(EXAMPLE, "the example", &[plan]).unwrap();
    let mut results = Results::create(folder.path(), &description).unwrap();
    let width = WidthRecord {
        width: Width(0.5),
        selected: 3,
        completed: 2,
        train_loss: Some(0.5),
        test_loss: Some(0.25),
        test_accuracy: Some(0.875),
        bytes_up: 1000,
        bytes_down: 3000,
    };
    let record = RoundRecord {
        widths: vec![width],
        ..record(1)
    };
    // LeNet-5's groups.
    let mut units = UnitCounts([6, 16, 120, 84].map(|units| vec![1; units]).to_vec());
    units.0[1][3] = 7;
    results.count_units(&units);
    assert!(results.record(&record));
    results
        .finish(Outcome::Completed, &layout(), &state(), None, 1.0)
        .unwrap();
    let counts: serde_json::Value = serde_json::from_str(&read(&folder, UNITS)).unwrap();
    assert_eq!(counts[1]["layer"], "3");
    assert_eq!(counts[1]["trained"][3], 7);
    assert_eq!(counts[2]["trained"].as_array().unwrap().len(), 120);
    let report = read(&folder, REPORT);
    assert!(
        report.contains("layer 3: 16 units, updates that trained each: 1 to 7"),
        "{report}"
    );
    assert!(report.contains("layer 7: 120 units, updates that trained each: 1<"));
    assert!(report.contains("2 of 3") && report.contains("87.5"));
}
