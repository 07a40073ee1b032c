//! The round engine, driven by hand with a clock of the test's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use selvedge_coordinator::{
    Action, Engine, Event, Outcome, Roster, RoundRecord, Trial,
    engine::{Inspector, Opened},
};
use selvedge_models::Weights;
use selvedge_protocols::{
    ClientName, Description, Rejection, Trained,
    evaluation::Tested,
    message::{Evaluation, Task},
    sections::{Section, packed_bytes},
    update::{SealedUpdate, TrainingReport},
};

/// A model of six parameters.
const DESCRIPTION: &str = r#"
rounds = 2
clients = 4
data = { source = "fashion-mnist-small" }
model = { input = [2], layers = [{ kind = "dense", units = 2 }] }
training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
cohort = { deadline_seconds = 100.0 }
network = { idle_seconds = 10.0, wait_seconds = 1000.0 }
"#;

/// An engine, its clock, and what it has asked for.
struct Run {
    engine: Engine,
    now: Duration,
    asked: Vec<(ClientName, u32, Task)>,
    receive: Vec<(ClientName, u32, Arc<Inspector>)>,
    answers: Vec<(ClientName, u32, Result<(), Rejection>)>,
    tests: Vec<u32>,
    records: Vec<RoundRecord>,
    outcome: Option<Outcome>,
}

fn client(index: usize) -> ClientName {
    ClientName::numbered(index)
}

fn description(set: &[&str]) -> Arc<Description> {
    let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(Description::parse(DESCRIPTION, "test", &set).unwrap())
}

fn report(examples: u64) -> TrainingReport {
    TrainingReport {
        examples,
        // One pass, ten examples a step.
        steps: examples.div_ceil(10),
        loss: (examples > 0).then_some(0.5),
        ..TrainingReport::default()
    }
}

fn update(value: f32, examples: u64) -> SealedUpdate {
    SealedUpdate {
        report: report(examples),
        sections: vec![Section::new("parameters", vec![value; 6])],
    }
}

impl Run {
    /// A run whose clients are yet to join.
    fn new(set: &[&str]) -> Self {
        Self::with_window(set, 8)
    }

    fn with_window(set: &[&str], window: usize) -> Self {
        let description = description(set);
        let parts = Arc::new(description.parts().unwrap());
        let initial = Weights {
            parameters: vec![1.0; parts.layout().parameter_count()],
            buffers: vec![0.0; parts.layout().buffer_count()],
        };
        let engine = Engine::new(description, parts, initial, Roster::Joined(Default::default()), window);
        Self {
            engine,
            now: Duration::ZERO,
            asked: vec![],
            receive: vec![],
            answers: vec![],
            tests: vec![],
            records: vec![],
            outcome: None,
        }
    }

    /// A run with all its clients, in its first round.
    fn started(set: &[&str]) -> Self {
        let mut run = Self::new(set);
        run.join_all();
        run
    }

    fn join_all(&mut self) {
        for index in 0..self.engine.clients_needed() {
            self.event(Event::Joined {
                client: client(index),
                width: None,
            });
        }
    }

    fn event(&mut self, event: Event) {
        for action in self.engine.handle(self.now, event) {
            match action {
                Action::Ask {
                    client, round, task, ..
                } => self.asked.push((client, round, task)),
                Action::Receive {
                    client,
                    round,
                    inspector,
                    ..
                } => self.receive.push((client, round, inspector)),
                Action::Answer { client, round, verdict } => self.answers.push((client, round, verdict)),
                Action::Test { round, .. } => self.tests.push(round),
                // Nobody's model is cut.
                Action::Step { .. } => {}
                Action::Record(record) => self.records.push(*record),
                // Nobody takes the run up again.
                Action::Snapshot(_) => {}
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn offer(&mut self, index: usize, round: u32, update: &SealedUpdate) {
        self.offer_task(index, round, Task::Train, update);
    }

    fn offer_task(&mut self, index: usize, round: u32, task: Task, update: &SealedUpdate) {
        let sections: Vec<_> = update.sections.iter().map(Section::header).collect();
        let bytes = packed_bytes(&sections).unwrap();
        self.event(Event::Offered {
            client: client(index),
            round,
            task,
            report: update.report.clone(),
            sections,
            bytes,
        });
    }

    /// Delivers the update of a client whose turn it is.
    fn deliver(&mut self, index: usize, update: SealedUpdate) {
        self.deliver_task(index, Task::Train, update);
    }

    fn deliver_task(&mut self, index: usize, task: Task, update: SealedUpdate) {
        let at = self
            .receive
            .iter()
            .position(|(name, ..)| *name == client(index))
            .unwrap();
        let (client, round, inspector) = self.receive.remove(at);
        let update = inspector.open(update);
        self.event(Event::Received {
            client,
            round,
            task,
            update,
        });
    }

    /// A client offers statistics and they are received at once.
    fn calibrate(&mut self, index: usize, update: SealedUpdate) {
        self.offer_task(index, 1, Task::Calibrate, &update);
        self.deliver_task(index, Task::Calibrate, update);
    }

    /// A client offers an update and it is received at once.
    fn send(&mut self, index: usize, round: u32, update: SealedUpdate) {
        self.offer(index, round, &update);
        self.deliver(index, update);
    }

    /// The test set's evaluation, whenever it is due.
    fn test(&mut self) {
        let round = self.tests.pop().unwrap();
        self.event(Event::Tested {
            round,
            trial: Trial::Whole,
            evaluation: Ok(Some(Tested {
                all: Evaluation {
                    examples: 4,
                    correct: 3,
                    loss: 2.0,
                },
                ..Tested::default()
            })),
        });
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.event(Event::Tick);
    }

    fn parameter(&self) -> f32 {
        self.engine.state().weights.parameters[0]
    }

    fn verdict(&self) -> &Result<(), Rejection> {
        &self.answers.last().unwrap().2
    }
}

#[test]
fn a_run_goes_through_its_rounds_and_ends() {
    let mut run = Run::started(&[]);
    for round in 1..=2 {
        assert_eq!(
            run.asked
                .drain(..)
                .filter(|asked| *asked == (asked.0.clone(), round, Task::Train))
                .count(),
            4
        );
        for index in 0..4 {
            run.send(index, round, update(round as f32 * 10.0 + index as f32, 1));
        }
        run.test();
        let record = run.records.last().unwrap();
        assert_eq!(
            (record.round, record.selected, record.completed, record.applied),
            (round, 4, 4, true)
        );
        assert_eq!(
            (record.test_accuracy, record.test_loss, record.train_loss),
            (Some(0.75), Some(0.5), Some(0.5))
        );
        assert_eq!((record.bytes_down, record.bytes_up), (4 * 24, 4 * 24));
        assert_eq!(run.parameter(), round as f32 * 10.0 + 1.5);
    }
    assert_eq!(run.outcome, Some(Outcome::Completed));
    assert_eq!(run.engine.next_deadline(), None);
}

#[test]
fn the_run_waits_for_its_clients_and_gives_up_in_the_end() {
    let mut run = Run::new(&[]);
    run.event(Event::Joined {
        client: client(0),
        width: None,
    });
    run.event(Event::Joined {
        client: client(0),
        width: None,
    });
    assert_eq!(run.engine.clients(), 1);
    assert!(run.asked.is_empty());
    assert_eq!(run.engine.next_deadline(), Some(Duration::from_secs(1000)));
    run.wait(999);
    assert_eq!(run.outcome, None);
    run.wait(1);
    assert_eq!(run.outcome, Some(Outcome::TooFewClients));
}

#[test]
fn a_client_that_vanishes_costs_its_update_not_the_round() {
    let mut run = Run::started(&[]);
    for index in 0..3 {
        run.send(index, 1, update(4.0, 1));
    }
    run.event(Event::Left {
        client: client(3),
        for_good: false,
    });
    assert_eq!(run.engine.next_deadline(), Some(Duration::from_secs(10)));
    run.wait(10);
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].applied), (3, true));
    assert_eq!(run.records[0].failed["disconnected"], 1);
    assert_eq!(run.records[0].failures[0].client, client(3));
    // The next round goes on with those who are there.
    assert_eq!(run.asked.iter().filter(|(_, round, _)| *round == 2).count(), 3);
}

#[test]
fn a_client_that_comes_back_in_time_is_asked_again() {
    let mut run = Run::started(&[]);
    run.offer(2, 1, &update(4.0, 1));
    run.event(Event::Left {
        client: client(2),
        for_good: false,
    });
    run.asked.clear();
    run.wait(9);
    run.event(Event::Joined {
        client: client(2),
        width: None,
    });
    assert_eq!(run.asked, [(client(2), 1, Task::Train)]);
    run.wait(60);
    run.receive.clear();
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed.len()), (4, 0));
}

#[test]
fn a_client_that_leaves_for_good_is_not_waited_for() {
    let mut run = Run::started(&[]);
    for index in 0..3 {
        run.send(index, 1, update(4.0, 1));
    }
    run.event(Event::Left {
        client: client(3),
        for_good: true,
    });
    run.test();
    assert_eq!(run.records[0].failed["disconnected"], 1);
}

#[test]
fn the_deadline_fires_when_not_one_more_update_comes() {
    let mut run = Run::started(&[]);
    run.send(0, 1, update(2.0, 1));
    run.send(1, 1, update(4.0, 1));
    assert_eq!(run.engine.next_deadline(), Some(Duration::from_secs(100)));
    run.wait(100);
    // Too late, by a little: the model is being evaluated.
    run.offer(2, 1, &update(9.0, 1));
    assert_eq!(*run.verdict(), Err(Rejection::GivenUp));
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed["deadline"]), (2, 2));
    assert_eq!(run.parameter(), 3.0);
    // What comes now is for a round that is over.
    run.offer(3, 1, &update(9.0, 1));
    assert_eq!(*run.verdict(), Err(Rejection::WrongRound { update: 1, now: 2 }));
}

#[test]
fn an_offer_made_in_time_has_one_more_deadline_to_be_received() {
    let mut run = Run::started(&["cohort.quorum=1.0"]);
    for index in 0..4 {
        run.offer(index, 1, &update(4.0, 1));
    }
    run.wait(150);
    for index in 0..3 {
        run.deliver(index, update(4.0, 1));
    }
    run.wait(50);
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed["deadline"]), (3, 1));
}

#[test]
fn an_update_that_never_arrives_fails_nobody_but_its_client() {
    let mut run = Run::with_window(&["cohort.quorum=0.5"], 2);
    run.join_all();
    for index in 0..4 {
        run.offer(index, 1, &update(4.0, 1));
    }
    // The first two are asked for; the first never delivers, and so holds the window where it is.
    run.deliver(1, update(4.0, 1));
    assert!(run.receive.iter().all(|(name, ..)| *name == client(0)));
    run.wait(200);
    run.deliver(2, update(4.0, 1));
    run.deliver(3, update(4.0, 1));
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed["deadline"]), (3, 1));
}

#[test]
fn a_link_that_breaks_after_the_deadline_can_be_made_again() {
    let mut run = Run::started(&[]);
    for index in 0..4 {
        run.offer(index, 1, &update(4.0, 1));
    }
    run.wait(101);
    run.event(Event::Left {
        client: client(0),
        for_good: false,
    });
    run.wait(5);
    run.event(Event::Joined {
        client: client(0),
        width: None,
    });
    for index in 0..4 {
        if index == 0 {
            run.receive.retain(|(name, ..)| *name != client(0));
            run.offer(0, 1, &update(4.0, 1));
        }
        run.deliver(index, update(4.0, 1));
    }
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed.len()), (4, 0));
}

#[test]
fn clients_hear_that_their_updates_count_when_the_model_has_moved_and_not_before() {
    let mut run = Run::started(&[]);
    for index in 0..3 {
        run.send(index, 1, update(4.0, 1));
        assert!(run.answers.is_empty());
    }
    run.send(3, 1, update(4.0, 1));
    let accepted: Vec<_> = (0..4).map(|index| (client(index), 1, Ok(()))).collect();
    assert_eq!(run.answers, accepted);
}

#[test]
fn updates_that_would_break_the_model_do_not_move_it() {
    let adam = "algorithm={ kind = \"fedadam\", server_learning_rate = 1e38 }";
    let mut run = Run::started(&[adam]);
    for index in 0..4 {
        run.send(index, 1, update(f32::MAX, 1));
    }
    run.test();
    let record = &run.records[0];
    assert!(!record.applied);
    assert!(record.note.as_deref().unwrap().contains("finite"), "{record:?}");
    assert_eq!(*run.verdict(), Err(Rejection::NotApplied));
    // The next round is one like any other.
    assert_eq!(run.parameter(), 1.0);
    for index in 0..4 {
        run.send(index, 2, update(1.0, 1));
    }
    run.test();
    assert!(run.records[1].applied);
}

#[test]
fn below_the_quorum_the_model_stays_and_the_record_says_so() {
    let mut run = Run::started(&["cohort.quorum=0.75"]);
    run.send(0, 1, update(2.0, 1));
    run.send(1, 1, update(4.0, 1));
    run.wait(100);
    run.test();
    let record = &run.records[0];
    assert!(!record.applied);
    assert_eq!(
        record.note.as_deref(),
        Some("2 of 4 clients have done their part, 3 are needed: the model stays as it was")
    );
    // What clients keep must not run ahead of the model.
    let turned_down: Vec<_> = (0..2)
        .map(|index| (client(index), 1, Err(Rejection::NotApplied)))
        .collect();
    assert_eq!(run.answers, turned_down);
    assert_eq!(run.parameter(), 1.0);
}

#[test]
fn a_client_without_examples_is_counted_and_changes_nothing() {
    let mut run = Run::started(&[]);
    run.offer(0, 1, &update(f32::MAX, 0));
    for index in 1..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed["no-examples"]), (3, 1));
    assert_eq!(run.parameter(), 4.0);
}

#[test]
fn when_no_client_has_examples_the_round_says_so() {
    let mut run = Run::started(&[]);
    for index in 0..4 {
        run.offer(index, 1, &update(4.0, 0));
    }
    run.test();
    let record = &run.records[0];
    assert_eq!((record.completed, record.applied, record.train_loss), (0, false, None));
    assert!(
        record
            .note
            .as_deref()
            .unwrap()
            .contains("none of the clients that answered holds an example")
    );
    assert_eq!(run.parameter(), 1.0);
}

#[test]
fn bad_updates_are_rejected_and_counted_by_reason() {
    let sections = |sections| SealedUpdate {
        report: report(1),
        sections,
    };
    let parameters = |values: Vec<f32>| sections(vec![Section::new("parameters", values)]);
    let with_value = |value| parameters(vec![0.0, 0.0, value, 0.0, 0.0, 0.0]);
    let bad = [
        ("not-finite", with_value(f32::NAN)),
        ("not-finite", with_value(f32::INFINITY)),
        ("wrong-shape", parameters(vec![0.0; 5])),
        ("wrong-shape", sections(vec![Section::new("weights", vec![0.0; 6])])),
        ("wrong-shape", sections(vec![])),
        (
            "wrong-shape",
            sections(vec![
                Section::new("parameters", vec![0.0; 6]),
                Section::new("more", vec![]),
            ]),
        ),
        (
            "impossible-report",
            SealedUpdate {
                report: report(1 << 40),
                ..update(4.0, 1)
            },
        ),
        (
            "impossible-report",
            SealedUpdate {
                report: TrainingReport { steps: 2, ..report(1) },
                ..update(4.0, 1)
            },
        ),
        (
            "impossible-report",
            SealedUpdate {
                report: TrainingReport {
                    metrics: (0..65).map(|at| (format!("algorithm.{at}"), 1.0)).collect(),
                    ..report(1)
                },
                ..update(4.0, 1)
            },
        ),
        (
            "impossible-report",
            SealedUpdate {
                report: TrainingReport {
                    metrics: [("aggregation.chosen".to_string(), 1.0)].into(),
                    ..report(1)
                },
                ..update(4.0, 1)
            },
        ),
        (
            "not-finite",
            SealedUpdate {
                report: TrainingReport {
                    metrics: [("algorithm.loss".to_string(), f64::NAN)].into(),
                    ..report(1)
                },
                ..update(4.0, 1)
            },
        ),
        (
            "impossible-report",
            SealedUpdate {
                report: TrainingReport {
                    examples: 0,
                    steps: 1,
                    loss: None,
                    ..TrainingReport::default()
                },
                ..update(4.0, 1)
            },
        ),
        (
            "not-finite",
            SealedUpdate {
                report: TrainingReport {
                    loss: Some(f64::NAN),
                    ..report(1)
                },
                ..update(4.0, 1)
            },
        ),
    ];
    for (code, bad) in bad {
        let mut run = Run::started(&[]);
        run.offer(0, 1, &bad);
        if !run.receive.is_empty() {
            run.deliver(0, bad.clone());
        }
        assert_eq!(run.verdict().clone().unwrap_err().code(), code, "{bad:?}");
        for index in 1..4 {
            run.send(index, 1, update(4.0, 1));
        }
        run.test();
        assert_eq!(
            (run.records[0].failed[code], run.records[0].completed),
            (1, 3),
            "{bad:?}"
        );
        assert_eq!(run.parameter(), 4.0);
    }
}

#[test]
fn an_update_of_another_size_than_announced_is_rejected_before_it_is_received() {
    let mut run = Run::started(&[]);
    let sections: Vec<_> = update(4.0, 1).sections.iter().map(Section::header).collect();
    for (index, bytes) in [(0, 23), (1, 25), (2, u64::MAX)] {
        let sections = sections.clone();
        run.event(Event::Offered {
            client: client(index),
            round: 1,
            task: Task::Train,
            report: report(1),
            sections,
            bytes,
        });
        assert_eq!(run.verdict().clone().unwrap_err().code(), "wrong-size");
    }
    assert!(run.receive.is_empty());
}

#[test]
fn second_answers_and_answers_nobody_asked_for_are_turned_down_and_counted() {
    let mut run = Run::started(&["cohort.size=3"]);
    let selected: Vec<usize> = run.asked.iter().map(|(name, ..)| name.number().unwrap()).collect();
    let other = (0..4).find(|index| !selected.contains(index)).unwrap();

    run.offer(other, 1, &update(9.0, 1));
    assert_eq!(*run.verdict(), Err(Rejection::NotSelected));
    run.send(selected[0], 1, update(4.0, 1));
    run.offer(selected[0], 1, &update(9.0, 1));
    assert_eq!(*run.verdict(), Err(Rejection::Duplicate));
    run.offer(selected[1], 7, &update(9.0, 1));
    assert_eq!(*run.verdict(), Err(Rejection::WrongRound { update: 7, now: 1 }));

    run.send(selected[1], 1, update(4.0, 1));
    run.send(selected[2], 1, update(4.0, 1));
    run.test();
    let stray: Vec<_> = run.records[0]
        .stray
        .iter()
        .map(|(code, &count)| (code.as_str(), count))
        .collect();
    assert_eq!(stray, [("duplicate", 1), ("not-selected", 1), ("wrong-round", 1)]);
    assert_eq!((run.records[0].completed, run.parameter()), (3, 4.0));
}

#[test]
fn a_client_whose_training_fails_costs_its_update_not_the_round() {
    let mut run = Run::started(&[]);
    run.event(Event::Failed {
        client: client(0),
        round: 1,
        task: Task::Train,
        reason: "out of memory".into(),
    });
    for index in 1..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert_eq!(run.records[0].failed["client-failed"], 1);
    assert_eq!(run.records[0].failures[0].reason, "the client could not: out of memory");
}

#[test]
fn clients_evaluations_are_pooled() {
    let mut run = Run::started(&["evaluation.by_clients=true", "evaluation.holdout=0.5"]);
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert_eq!(
        run.asked.iter().filter(|(_, _, task)| *task == Task::Evaluate).count(),
        4
    );
    let counts = [(10, 10, 1.0), (30, 0, 5.0), (0, 0, 0.0)];
    for (index, (examples, correct, loss)) in counts.into_iter().enumerate() {
        let evaluation = Evaluation {
            examples,
            correct,
            loss,
        };
        run.event(Event::Evaluated {
            client: client(index),
            round: 1,
            evaluation,
        });
    }
    let impossible = Evaluation {
        examples: 1,
        correct: 2,
        loss: 0.0,
    };
    run.event(Event::Evaluated {
        client: client(3),
        round: 1,
        evaluation: impossible,
    });
    let record = &run.records[0];
    assert_eq!((record.clients_accuracy, record.clients_loss), (Some(0.25), Some(0.15)));
    assert_eq!(record.evaluation_failed["impossible-report"], 1);
    assert!(record.failed.is_empty());
}

#[test]
fn evaluation_does_not_wait_for_clients_that_are_not_there() {
    let mut run = Run::started(&["evaluation.by_clients=true", "evaluation.holdout=0.5"]);
    for (index, for_good) in [(2, true), (3, false)] {
        run.event(Event::Left {
            client: client(index),
            for_good,
        });
    }
    for index in 0..2 {
        run.send(index, 1, update(4.0, 1));
    }
    run.wait(10);
    run.test();
    for index in 0..2 {
        run.event(Event::Evaluated {
            client: client(index),
            round: 1,
            evaluation: Evaluation::default(),
        });
    }
    let record = &run.records[0];
    assert_eq!((record.completed, record.failed["disconnected"]), (2, 2));
    assert!(record.evaluation_failed.is_empty());
    assert_eq!(record.bytes_down, 4 * 24 + 2 * 24);
}

#[test]
fn a_client_that_joins_in_a_round_works_from_the_next_one_on() {
    let mut run = Run::started(&["network.start_with=3"]);
    run.event(Event::Joined {
        client: client(3),
        width: None,
    });
    assert!(run.asked.iter().all(|(name, ..)| *name != client(3)));
    for index in 0..3 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert!(run.asked.contains(&(client(3), 2, Task::Train)));
}

#[test]
fn the_operator_ends_the_run_between_two_events() {
    let mut run = Run::started(&[]);
    run.send(0, 1, update(2.0, 1));
    run.event(Event::Stop);
    assert_eq!(run.outcome, Some(Outcome::Stopped));
    assert_eq!((run.parameter(), run.engine.next_deadline()), (1.0, None));
    run.outcome = None;
    run.event(Event::Stop);
    assert_eq!(run.outcome, None);
}

#[test]
fn a_run_that_is_ended_while_its_model_is_evaluated_records_the_round_of_that_model() {
    let mut run = Run::started(&[]);
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    assert!(run.records.is_empty());
    run.event(Event::Stop);
    assert_eq!(run.outcome, Some(Outcome::Stopped));
    assert_eq!(run.parameter(), 4.0);
    assert_eq!((run.records[0].round, run.records[0].applied), (1, true));
    assert_eq!(run.records[0].test_accuracy, None);
}

#[test]
fn test_examples_that_cannot_be_evaluated_cost_the_evaluation_not_the_run() {
    let mut run = Run::started(&["rounds=1"]);
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.event(Event::Tested {
        round: 1,
        trial: Trial::Whole,
        evaluation: Err("token 40 is beyond the vocabulary".into()),
    });
    assert_eq!((run.outcome, run.parameter()), (Some(Outcome::Completed), 4.0));
    let record = &run.records[0];
    assert!(record.applied && record.test_accuracy.is_none());
    assert!(record.note.as_deref().unwrap().contains("token 40"), "{record:?}");
}

proptest! {
    #[test]
    fn whoever_is_quick_the_model_is_the_same(
        order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
        values in prop::collection::vec(-1e3f32..1e3, 6),
        window in 1usize..8,
    ) {
        let model = |order: &[usize], window| {
            let mut run = Run::with_window(&["clients=6"], window);
            run.join_all();
            let updates: Vec<_> = (0..6).map(|index| update(values[index], index as u64 + 1)).collect();
            for &index in order {
                run.offer(index, 1, &updates[index]);
                // As they are asked for, the last first.
                while let Some(index) = run.receive.last().and_then(|(name, ..)| name.number()) {
                    assert!(run.receive.len() <= window);
                    run.deliver(index, updates[index].clone());
                }
            }
            run.test();
            assert_eq!(run.records[0].completed, 6);
            run.parameter().to_bits()
        };
        prop_assert_eq!(model(&order, window), model(&[0, 1, 2, 3, 4, 5], 8));
    }
}

/// A model of 13 parameters, whose batch norm has two channels: a mean and a variance for each.
const CALIBRATED: [&str; 4] = [
    r#"model={ input = [2], layers = [{ kind = "dense", units = 2 }, { kind = "batch-norm" }, { kind = "dense", units = 1 }] }"#,
    "sub_models={ plan = { kind = 'full' }, batch_norm = 'static' }",
    "rounds=1",
    "clients=3",
];

fn trained(value: f32) -> SealedUpdate {
    SealedUpdate {
        report: report(1),
        sections: vec![Section::new("parameters", vec![value; 13])],
    }
}

/// Means and variances of two channels, of so many examples.
fn met(statistics: [f32; 4], examples: u64) -> SealedUpdate {
    SealedUpdate {
        report: TrainingReport {
            examples,
            ..TrainingReport::default()
        },
        sections: vec![Section::new("buffers", statistics.to_vec())],
    }
}

/// A round whose three clients have trained, and are asked to calibrate.
fn calibrating() -> Run {
    let mut run = Run::new(&CALIBRATED);
    run.join_all();
    for index in 0..3 {
        run.send(index, 1, trained(4.0));
    }
    let asked = run.asked.iter().filter(|(.., task)| *task == Task::Calibrate);
    assert_eq!(asked.count(), 3);
    assert!(run.tests.is_empty());
    run
}

#[test]
fn statistics_are_pooled_over_clients_and_the_model_is_evaluated_with_them() {
    let mut run = calibrating();
    run.calibrate(0, met([2.0, 0.0, 1.0, 1.0], 2));
    run.calibrate(1, met([7.0, 0.0, 8.0 / 3.0, 1.0], 3));
    // A variance below 0 counts as none.
    run.calibrate(2, met([5.0, 0.0, -1e30, 1.0], 5));
    run.test();
    // Of 1, 3; 5, 7, 9; and five times 5.
    assert_eq!(run.engine.state().weights.buffers, [5.0, 0.0, 4.0, 1.0]);
    assert!(run.records[0].test_accuracy.is_some() && run.records[0].note.is_none());
}

#[test]
fn a_client_that_is_lost_while_calibrating_costs_its_statistics_only() {
    let mut run = calibrating();
    run.calibrate(0, met([1.0, 1.0, 2.0, 2.0], 2));
    run.event(Event::Left {
        client: client(1),
        for_good: true,
    });
    run.offer_task(2, 1, Task::Calibrate, &met([f32::NAN; 4], 1));
    run.deliver_task(2, Task::Calibrate, met([f32::NAN; 4], 1));
    run.test();
    let record = &run.records[0];
    assert_eq!(record.completed, 3);
    assert_eq!(record.evaluation_failed["disconnected"], 1);
    assert_eq!(record.evaluation_failed["not-finite"], 1);
    assert_eq!(run.engine.state().weights.buffers, [1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn what_belongs_to_training_is_no_calibration() {
    let mut run = calibrating();
    // An update that is offered again, one that comes again, and a failure of training: all too late.
    run.offer(0, 1, &trained(9.0));
    assert_eq!(*run.verdict(), Err(Rejection::Duplicate));
    run.offer_task(0, 1, Task::Calibrate, &met([1.0; 4], 1));
    let opened = Opened {
        update: Trained {
            weights: Weights {
                parameters: vec![9.0; 13],
                buffers: vec![],
            },
            examples: 1,
            steps: 1,
            loss: None,
        }
        .into(),
        metrics: Default::default(),
        part: description(&CALIBRATED).parts().unwrap().whole().clone(),
    };
    run.event(Event::Received {
        client: client(0),
        round: 1,
        task: Task::Train,
        update: Ok(opened),
    });
    run.event(Event::Failed {
        client: client(1),
        round: 1,
        task: Task::Train,
        reason: "out of memory".into(),
    });
    run.deliver_task(0, Task::Calibrate, met([1.0; 4], 1));
    run.calibrate(1, met([1.0; 4], 1));
    run.calibrate(2, met([1.0; 4], 1));
    run.test();
    assert!(run.records[0].evaluation_failed.is_empty(), "{:?}", run.records[0]);
    assert_eq!(run.engine.state().weights.buffers, [1.0; 4]);
    assert_eq!(run.engine.state().weights.parameters, [4.0; 13]);
}

#[test]
fn nobody_calibrates_in_time_and_the_round_goes_on_without_an_evaluation() {
    let mut run = calibrating();
    run.wait(300);
    assert_eq!(run.records[0].evaluation_failed["deadline"], 3);
    assert_eq!(run.records[0].test_accuracy, None);
    assert!(run.records[0].note.as_ref().unwrap().contains("it is not evaluated"));
    assert!(run.records[0].applied);
}

#[test]
fn a_run_that_is_stopped_while_calibrating_keeps_its_round() {
    let mut run = calibrating();
    run.wait(7);
    run.event(Event::Stop);
    assert_eq!(run.outcome, Some(Outcome::Stopped));
    assert_eq!((run.records.len(), run.records[0].seconds), (1, 7.0));
    assert_eq!(run.engine.state().weights.parameters, [4.0; 13]);
}

/// A run of one client in its first round, whose evaluation is awaited.
fn evaluating() -> Run {
    let mut run = Run::started(&["clients=1", "evaluation.by_clients=true", "evaluation.holdout=0.5"]);
    run.send(0, 1, update(4.0, 1));
    run.test();
    run
}

#[test]
fn an_evaluation_whose_loss_is_not_finite_is_not_an_impossible_one() {
    let verdict = |(examples, correct, loss): (u64, u64, f64)| {
        let mut run = evaluating();
        run.event(Event::Evaluated {
            client: client(0),
            round: 1,
            evaluation: Evaluation {
                examples,
                correct,
                loss,
            },
        });
        let reason = run.verdict().clone().unwrap_err();
        assert_eq!(run.records[0].evaluation_failed[reason.code()], 1);
        reason
    };
    for loss in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let reason = Rejection::NotFinite("the evaluation loss".into());
        assert_eq!(verdict((2, 1, loss)), reason);
    }
    for evaluation in [(1, 2, 0.5), (1, 2, f64::INFINITY), (u64::MAX, 1, 0.5), (2, 1, -0.5)] {
        assert_eq!(verdict(evaluation).code(), "impossible-report");
    }
}

#[test]
fn what_a_phase_does_not_await_is_of_the_wrong_round_or_ignored() {
    let evaluated = Event::Evaluated {
        client: client(0),
        round: 1,
        evaluation: Evaluation::default(),
    };
    let again = |event: &Event| match event {
        Event::Evaluated {
            client,
            round,
            evaluation,
        } => Event::Evaluated {
            client: client.clone(),
            round: *round,
            evaluation: *evaluation,
        },
        _ => Event::Tick,
    };
    let failed = |task| Event::Failed {
        client: client(0),
        round: 1,
        task,
        reason: "out of memory".into(),
    };
    let tested = || Event::Tested {
        round: 1,
        trial: Trial::Whole,
        evaluation: Ok(None),
    };
    // Before there are enough clients.
    let mut run = Run::new(&[]);
    run.offer(0, 1, &update(4.0, 1));
    run.event(again(&evaluated));
    run.event(failed(Task::Train));
    run.event(tested());
    let wrong_round = |now| (client(0), 1, Err(Rejection::WrongRound { update: 1, now }));
    assert_eq!(run.answers, [wrong_round(0), wrong_round(0)]);
    // While clients train.
    run.answers.clear();
    run.join_all();
    run.event(again(&evaluated));
    run.offer_task(0, 1, Task::Calibrate, &update(4.0, 1));
    run.event(failed(Task::Evaluate));
    run.event(tested());
    assert_eq!(run.answers, [wrong_round(1), wrong_round(1)]);
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    run.test();
    assert_eq!((run.records[0].completed, run.records[0].failed.len()), (4, 0));
    // When the run is over.
    run.event(Event::Stop);
    run.answers.clear();
    run.offer(0, 2, &update(4.0, 1));
    run.event(again(&evaluated));
    run.event(failed(Task::Train));
    assert_eq!(
        run.answers,
        [
            (client(0), 2, Err(Rejection::WrongRound { update: 2, now: 2 })),
            wrong_round(2)
        ]
    );
    assert_eq!((run.outcome, run.records.len()), (Some(Outcome::Stopped), 1));
}

#[test]
fn a_round_that_is_not_evaluated_is_recorded_when_its_model_has_moved() {
    let mut run = Run::started(&[
        "evaluation.every=2",
        "evaluation.by_clients=true",
        "evaluation.holdout=0.5",
    ]);
    run.now = Duration::from_secs(3);
    for index in 0..4 {
        run.send(index, 1, update(4.0, 1));
    }
    let record = &run.records[0];
    assert_eq!((record.round, record.applied, record.seconds), (1, true, 3.0));
    assert_eq!((record.test_loss, record.clients_loss), (None, None));
    assert!(run.tests.is_empty() && run.asked.iter().all(|(.., task)| *task == Task::Train));
    assert_eq!(run.asked.iter().filter(|(_, round, _)| *round == 2).count(), 4);
    for index in 0..4 {
        run.send(index, 2, update(5.0, 1));
    }
    assert_eq!(run.tests, [2]);
}

#[test]
fn a_model_that_has_its_statistics_already_is_evaluated_without_being_copied() {
    let mut run = calibrating();
    let statistics = [5.0, 0.0, 4.0, 1.0];
    let mut tested = None;
    for index in 0..3 {
        run.offer_task(index, 1, Task::Calibrate, &met(statistics, 1));
        let (client, round, inspector) = run.receive.remove(0);
        for action in run.engine.handle(
            run.now,
            Event::Received {
                client,
                round,
                task: Task::Calibrate,
                update: inspector.open(met(statistics, 1)),
            },
        ) {
            if let Action::Test { model, trial, .. } = action {
                tested = Some((model, trial));
            }
        }
    }
    let (model, trial) = tested.unwrap();
    let part = model.part(None).unwrap();
    let evaluated = model.evaluated(&part, &trial);
    assert_eq!(evaluated.weights.buffers, statistics);
    assert!(Arc::ptr_eq(&evaluated, model.whole()));
}

#[test]
fn with_a_buffer_a_stale_change_is_made_to_the_model_of_now_and_counts_less() {
    let mut run = Run::started(&["buffer.size=1", "rounds=3"]);
    assert_eq!(run.asked.drain(..).count(), 4);
    run.send(0, 1, update(5.0, 1));
    assert_eq!(run.parameter(), 5.0);
    assert_eq!(run.answers, [(client(0), 1, Ok(()))]);
    // Whom is asked next is settled when all that came at this time was heard.
    run.test();
    assert!(run.asked.is_empty());
    assert_eq!(run.engine.next_deadline(), Some(run.now));
    run.wait(0);
    assert_eq!(run.asked, [(client(0), 2, Task::Train)]);
    // It was trained from 1.
    run.send(1, 1, update(3.0, 1));
    assert_eq!(run.parameter(), (5.0 + 2.0 / 2f64.sqrt()) as f32);
    assert_eq!(run.answers.last(), Some(&(client(1), 1, Ok(()))));
    let record = run.records.last().unwrap();
    assert_eq!((record.round, record.selected, record.completed), (1, 1, 1));
}

#[test]
fn with_a_buffer_clients_train_on_while_the_model_is_evaluated_and_the_next_move_waits_for_that() {
    let mut run = Run::started(&["buffer.size=2", "rounds=2", "cohort.size=4"]);
    run.send(0, 1, update(5.0, 1));
    // An update that has been taken in is no second time.
    run.offer(0, 1, &update(5.0, 1));
    assert_eq!(run.verdict(), &Err(Rejection::Duplicate));
    run.send(1, 1, update(7.0, 1));
    assert_eq!((run.parameter(), run.records.len()), (6.0, 0));
    run.send(2, 1, update(1.0, 1));
    run.send(3, 1, update(1.0, 1));
    assert_eq!(run.parameter(), 6.0);
    run.test();
    // Those two have changed nothing.
    assert_eq!((run.parameter(), run.records.len()), (6.0, 1));
    run.test();
    assert_eq!((run.outcome, run.records.len()), (Some(Outcome::Completed), 2));
    assert_eq!(run.engine.next_deadline(), None);
}

#[test]
fn with_a_buffer_a_lost_client_comes_back_to_the_version_that_it_was_sent() {
    let mut run = Run::started(&["buffer.size=1", "rounds=5"]);
    run.event(Event::Left {
        client: client(3),
        for_good: false,
    });
    run.send(0, 1, update(5.0, 1));
    run.test();
    run.asked.clear();
    run.event(Event::Joined {
        client: client(3),
        width: None,
    });
    assert_eq!(run.asked[0], (client(3), 1, Task::Train));
    run.event(Event::Left {
        client: client(2),
        for_good: true,
    });
    run.send(3, 1, update(1.0, 1));
    run.test();
    let record = run.records.last().unwrap();
    assert_eq!(
        (record.failed["disconnected"], record.completed, record.selected),
        (1, 1, 2)
    );
}

#[test]
fn with_a_buffer_a_client_whose_update_waits_for_the_model_to_move_is_not_asked_before_that() {
    let mut run = Run::started(&["buffer.size=2", "rounds=3"]);
    run.send(0, 1, update(5.0, 1));
    run.send(1, 1, update(7.0, 1));
    run.test();
    // Asked for the version before, and folded for the next.
    run.send(2, 1, update(1.0, 1));
    run.asked.clear();
    run.wait(0);
    assert_eq!(run.asked, [(client(0), 2, Task::Train), (client(1), 2, Task::Train)]);
    run.send(0, 2, update(6.0, 1));
    run.test();
    let record = run.records.last().unwrap();
    assert_eq!((record.round, record.completed, record.client_metrics.len()), (2, 2, 2));
    run.asked.clear();
    run.wait(0);
    assert_eq!(run.asked, [(client(0), 3, Task::Train), (client(2), 3, Task::Train)]);
}
