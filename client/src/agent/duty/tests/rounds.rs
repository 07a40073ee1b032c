//! Rounds that go as they should, and those in which something cannot be done.

use super::*;

#[test]
fn what_is_asked_is_pulled_worked_on_offered_and_accepted() {
    let mut hands = Hands::connected();
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole), ["tell round 1: training", "work 1 Train"]);
    let offered = [
        "propose 1",
        "hold 1 Train",
        "tell round 1: update of 6 bytes is ready",
        "offer 1 Train",
    ];
    assert_eq!(hands.worked(Worked::Done), offered);
    assert_eq!(
        hands.accepted(1),
        ["accept 1", "let go", "tell round 1: update accepted"]
    );
    assert_eq!(*hands.kept.memory_for(2), left(2.0));
}

#[test]
fn what_is_calibrated_is_offered_and_nothing_of_it_is_kept() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Calibrate);
    hands.pulled(Pulled::Whole);
    let offered = [
        "hold 1 Calibrate",
        "tell round 1: update of 6 bytes is ready",
        "offer 1 Calibrate",
    ];
    assert_eq!(hands.worked(Worked::Done), offered);
}

#[test]
fn what_is_evaluated_is_said_at_once() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Evaluate);
    assert_eq!(
        hands.pulled(Pulled::Whole),
        ["tell round 1: evaluating", "work 1 Evaluate"]
    );
    assert_eq!(hands.worked(Worked::Done), ["say evaluated 1"]);
    assert_eq!(hands.held(), None);
}

#[test]
fn a_model_that_is_cut_is_trained_in_steps_and_only_trained_so() {
    let mut hands = Hands::cut();
    hands.ask(1, Task::Train);
    assert_eq!(hands.pulled(Pulled::Whole), ["tell round 1: training", "begin steps 1"]);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
    hands.accepted(1);
    hands.ask(1, Task::Evaluate);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "work 1 Evaluate");
}

#[test]
fn a_front_of_the_clients_own_needs_no_broadcast() {
    let mut hands = Hands::cut();
    hands.front_is_kept = true;
    assert_eq!(hands.ask(1, Task::Train), ["tell round 1: training", "begin steps 1"]);
    hands.worked(Worked::Done);
    hands.accepted(1);
    assert_eq!(hands.ask(1, Task::Evaluate), ["pull 1 Evaluate"]);
}

#[test]
fn what_cannot_be_done_is_said_and_the_next_task_is_done() {
    for how in [Worked::Failed, Worked::Panicked] {
        let mut hands = Hands::connected();
        hands.ask(1, Task::Train);
        hands.pulled(Pulled::Whole);
        let why = match how {
            Worked::Failed => "no memory",
            _ => "training ended unexpectedly",
        };
        let told = format!("tell round 1: failed: {why}");
        assert_eq!(hands.worked(how), [&told, "say failed 1 Train"]);
        assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
        assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "work 2 Train");
    }
}

#[test]
fn a_broadcast_that_is_too_large_is_not_pulled() {
    let mut hands = Hands::connected();
    let said = hands.ask_with(1, Task::Train, LARGEST + 1);
    assert!(said[0].starts_with("tell round 1: failed: the blob"), "{said:?}");
    assert_eq!(said[1..], ["say failed 1 Train"]);
    assert!(hands.pulls.is_empty());
}

#[test]
fn a_broadcast_that_is_damaged_is_a_task_that_failed() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    let said = hands.pulled(Pulled::Damaged);
    assert_eq!(said[1..], ["say failed 1 Train"], "{said:?}");
}

#[test]
fn a_broadcast_that_is_no_longer_held_is_of_a_round_that_went_on_without_the_client() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    assert_eq!(hands.pulled(Pulled::NotHeld), [""; 0]);
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
}

#[test]
fn a_run_that_is_over_leaves_nothing_to_do() {
    let mut hands = Hands::cut();
    hands.ask(1, Task::Train);
    assert_eq!(hands.hear(Event::Finished), ["stop pulling"]);
    let mut hands = Hands::cut();
    hands.ask(1, Task::Train);
    hands.pulled(Pulled::Whole);
    assert_eq!(hands.hear(Event::Finished), ["stop steps"]);
    let mut hands = Hands::cut();
    hands.ask(1, Task::Train);
    hands.pulled(Pulled::Whole);
    hands.worked(Worked::Done);
    assert_eq!(hands.hear(Event::Finished), ["let go"]);
}
