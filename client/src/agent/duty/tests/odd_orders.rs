//! What comes twice, too late, or after the connection was lost.

use super::*;

const NOTHING: [&str; 0] = [];

/// Brings a client that was asked to the point where it works.
fn working(mut hands: Hands) -> Hands {
    hands.ask(1, Task::Train);
    hands.pulled(Pulled::Whole);
    assert_eq!(hands.works.len(), 1);
    hands
}

/// Brings a client to the point where its update is offered.
fn offered() -> Hands {
    let mut hands = working(Hands::connected());
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
    hands
}

#[test]
fn asked_twice_it_pulls_anew_and_works_once() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    assert_eq!(hands.ask(1, Task::Train), ["stop pulling", "pull 1 Train"]);
    // The first pull was through when it was stopped.
    assert_eq!(hands.end_pull(0, Pulled::Whole), NOTHING);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "work 1 Train");
    assert_eq!(hands.ask(1, Task::Train), NOTHING);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn asked_twice_in_its_steps_it_goes_on_with_them() {
    let mut hands = working(Hands::cut());
    assert_eq!(hands.ask(1, Task::Train), NOTHING);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn asked_twice_when_it_has_offered_it_offers_again() {
    let mut hands = offered();
    assert_eq!(hands.ask(1, Task::Train), ["offer 1 Train"]);
}

#[test]
fn asked_for_another_round_while_it_works_it_drops_the_first_and_then_begins_the_second() {
    let mut hands = working(Hands::connected());
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
    // The thread that trains is not free.
    assert_eq!(hands.pulled(Pulled::Whole), NOTHING);
    let then = [
        "tell round 1: the result is dropped, the coordinator has gone on without it",
        "tell round 2: training",
        "work 2 Train",
    ];
    assert_eq!(hands.worked(Worked::Done), then);
    assert_eq!((hands.held(), &hands.proposed), (None, &None));
}

#[test]
fn asked_for_another_round_in_its_steps_it_stops_them() {
    let mut hands = working(Hands::cut());
    assert_eq!(hands.ask(2, Task::Train), ["stop steps", "pull 2 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 2");
    // They were through, or broken, when they were stopped.
    for how in [Worked::Done, Worked::Failed, Worked::Panicked, Worked::Broken] {
        let mut hands = working(Hands::cut());
        hands.ask(2, Task::Train);
        assert_eq!(hands.end_work(0, how), NOTHING, "{how:?}");
        assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 2");
    }
}

#[test]
fn steps_that_were_stopped_are_not_taken_for_those_of_the_same_round_that_were_begun_since() {
    let mut hands = working(Hands::cut());
    hands.ask(2, Task::Train);
    hands.ask(1, Task::Train);
    hands.end_pull(0, Pulled::Whole);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 1");
    assert_eq!(hands.end_work(0, Worked::Done), NOTHING);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn asked_for_another_task_it_lets_its_update_go() {
    let mut hands = offered();
    assert_eq!(hands.ask(1, Task::Evaluate), ["let go", "pull 1 Evaluate"]);
}

#[test]
fn a_broadcast_that_comes_after_another_task_is_not_worked_on() {
    for how in [Pulled::Whole, Pulled::Damaged, Pulled::NotHeld] {
        let mut hands = Hands::connected();
        hands.ask(1, Task::Train);
        assert_eq!(hands.ask(2, Task::Train), ["stop pulling", "pull 2 Train"]);
        assert_eq!(hands.end_pull(0, how), NOTHING, "{how:?}");
        assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "work 2 Train");
    }
}

#[test]
fn a_connection_lost_while_pulling_is_given_up_and_the_rest_is_pulled_on_the_next() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    assert_eq!(hands.pulled(Pulled::Broken), ["hang up"]);
    assert_eq!(
        hands.duty.partial.as_ref().map(Partial::reference),
        Some(broadcast(1, Task::Train, 0))
    );
    assert_eq!(hands.connect(), NOTHING);
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
    assert!(hands.duty.partial.is_none());
}

#[test]
fn a_pull_that_ends_after_its_connection_leaves_what_has_come() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    // The conversation has found out first.
    hands.connect();
    assert_eq!(hands.pulled(Pulled::Broken), NOTHING);
    assert!(hands.duty.partial.is_some());
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
    assert!(hands.duty.partial.is_none());
}

#[test]
fn what_has_come_of_another_broadcast_is_not_gone_on_with() {
    let mut hands = Hands::connected();
    hands.ask(1, Task::Train);
    hands.pulled(Pulled::Broken);
    hands.connect();
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
    assert!(hands.duty.partial.is_none());
}

#[test]
fn a_connection_lost_while_working_costs_no_work() {
    let mut hands = working(Hands::connected());
    hands.connect();
    let held = ["propose 1", "hold 1 Train", "tell round 1: update of 6 bytes is ready"];
    assert_eq!(hands.worked(Worked::Done), held);
    assert_eq!(hands.ask(1, Task::Train), ["offer 1 Train"]);
    // Or it is asked again before the work is done.
    let mut hands = working(Hands::connected());
    hands.connect();
    assert_eq!(hands.ask(1, Task::Train), NOTHING);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn what_could_not_be_done_while_there_was_no_connection_is_tried_again() {
    let mut hands = working(Hands::connected());
    hands.connect();
    assert_eq!(hands.worked(Worked::Failed), NOTHING);
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
}

#[test]
fn a_connection_lost_in_the_steps_costs_none_of_them() {
    let mut hands = working(Hands::cut());
    assert_eq!(hands.worked(Worked::Broken), ["hang up"]);
    hands.connect();
    assert_eq!(hands.ask(1, Task::Train), ["tell round 1: training", "resume steps 1"]);
    // The conversation finds out first, and the round is asked again before the steps have broken.
    hands.connect();
    assert_eq!(hands.ask(1, Task::Train), NOTHING);
    assert_eq!(
        hands.worked(Worked::Broken),
        ["tell round 1: training", "resume steps 1"]
    );
    // Or after.
    hands.connect();
    assert_eq!(hands.worked(Worked::Broken), NOTHING);
    assert_eq!(hands.ask(1, Task::Train).last().unwrap(), "resume steps 1");
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn steps_of_a_round_that_is_over_are_not_gone_on_with() {
    let mut hands = working(Hands::cut());
    hands.worked(Worked::Broken);
    hands.connect();
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 2");
}

#[test]
fn a_connection_lost_when_it_has_offered_costs_no_work() {
    let mut hands = offered();
    assert_eq!(hands.connect(), NOTHING);
    assert_eq!(hands.ask(1, Task::Train), ["offer 1 Train"]);
    assert_eq!(hands.accepted(1).last().unwrap(), "tell round 1: update accepted");
}

#[test]
fn accepted_twice_counts_once() {
    let mut hands = offered();
    hands.accepted(1);
    let kept = hands.kept.memory_for(2).clone();
    assert_eq!(hands.accepted(1), ["accept 1"]);
    assert_eq!(*hands.kept.memory_for(2), kept);
}

#[test]
fn accepted_for_a_round_that_was_never_proposed_keeps_nothing() {
    let mut hands = offered();
    for round in [0, 2] {
        assert_eq!(hands.accepted(round), [format!("accept {round}")]);
    }
    assert_eq!(*hands.kept.memory_for(2), Memory::default());
    assert_eq!(hands.held(), Some((1, Task::Train)));
    hands.accepted(1);
    assert_ne!(*hands.kept.memory_for(2), Memory::default());
}

#[test]
fn accepted_after_the_connection_was_lost_it_counts_all_the_same() {
    let mut hands = offered();
    hands.connect();
    assert_eq!(
        hands.accepted(1),
        ["accept 1", "let go", "tell round 1: update accepted"]
    );
}

#[test]
fn rejected_as_a_duplicate_the_update_stays() {
    let mut hands = offered();
    let told = format!("tell round 1: update rejected: {}", Rejection::Duplicate);
    assert_eq!(hands.rejected(1, Rejection::Duplicate), [told]);
    assert_eq!(hands.ask(1, Task::Train), ["offer 1 Train"]);
}

#[test]
fn rejected_the_update_is_let_go_and_nothing_of_it_is_kept() {
    let mut hands = offered();
    let told = format!("tell round 1: update rejected: {}", Rejection::NoExamples);
    assert_eq!(hands.rejected(1, Rejection::NoExamples), ["let go", &told]);
    assert_eq!(*hands.kept.memory_for(2), Memory::default());
    // Of another round's, nothing is let go.
    let mut hands = offered();
    assert_eq!(hands.rejected(2, Rejection::NoExamples).len(), 1);
    assert_eq!(hands.held(), Some((1, Task::Train)));
}

#[test]
fn what_was_trained_is_held_when_the_coordinator_has_gone_on_from_the_next_task_too() {
    let mut hands = working(Hands::connected());
    hands.ask(2, Task::Train);
    hands.pulled(Pulled::NotHeld);
    hands.worked(Worked::Done);
    assert_eq!(hands.held(), Some((1, Task::Train)));
    assert_eq!(hands.ask(1, Task::Train), ["offer 1 Train"]);
}

/// A client whose update of round 2 is offered, and whose coordinator begins anew.
fn offered_in_round_2() -> Hands {
    let mut hands = Hands::connected();
    hands.ask(2, Task::Train);
    hands.pulled(Pulled::Whole);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 2 Train");
    hands
}

#[test]
fn a_coordinator_that_begins_anew_and_sends_the_same_is_offered_what_is_held() {
    let mut hands = offered_in_round_2();
    hands.connect_anew(0);
    assert_eq!(hands.ask(2, Task::Train), ["offer 2 Train"]);
    // Or what is being worked on.
    let mut hands = working(Hands::connected());
    hands.connect_anew(1);
    assert_eq!(hands.ask(1, Task::Train), NOTHING);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
}

#[test]
fn a_coordinator_that_begins_anew_and_sends_something_else_is_trained_for_anew() {
    let mut hands = offered_in_round_2();
    hands.connect_anew(1);
    assert_eq!(hands.ask(2, Task::Train), ["let go", "pull 2 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "work 2 Train");
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 2 Train");
    // What is being worked on is dropped.
    let mut hands = Hands::connected();
    hands.ask(2, Task::Train);
    hands.pulled(Pulled::Whole);
    hands.connect_anew(1);
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole), NOTHING);
    let then = [
        "tell round 2: the result is dropped, the coordinator has gone on without it",
        "tell round 2: training",
        "work 2 Train",
    ];
    assert_eq!(hands.worked(Worked::Done), then);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 2 Train");
}

#[test]
fn a_round_that_was_accepted_and_is_asked_again_is_trained_again_from_what_was_kept_before() {
    let mut hands = offered();
    hands.accepted(1);
    let first = hands.kept.memory_for(2).clone();
    hands.ask(2, Task::Train);
    hands.pulled(Pulled::Whole);
    hands.worked(Worked::Done);
    hands.hear(Event::Accepted {
        round: 2,
        resumable: vec![1],
    });
    hands.connect_anew(0);
    hands.accepted(1);
    assert_eq!(*hands.kept.memory_for(2), first);
    assert_eq!(hands.ask(2, Task::Train), ["pull 2 Train"]);
    assert_eq!(hands.asked.as_ref().map(|asked| asked.kept), Some(1));
    hands.pulled(Pulled::Whole);
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 2 Train");
    assert_eq!(hands.accepted(2).last().unwrap(), "tell round 2: update accepted");
    assert_ne!(*hands.kept.memory_for(3), first);
}

#[test]
fn what_is_held_is_not_offered_where_the_client_would_begin_with_something_else() {
    let mut hands = offered();
    hands.accepted(1);
    hands.ask(2, Task::Train);
    hands.pulled(Pulled::Whole);
    hands.worked(Worked::Done);
    hands.connect_anew(0);
    // In this time the first update does not count, and yet the model is the same.
    hands.accepted(0);
    assert_eq!(hands.ask(2, Task::Train), ["let go", "pull 2 Train"]);
}

#[test]
fn a_coordinator_that_begins_anew_makes_all_steps_anew() {
    // They have broken; they are under way; they are done.
    let mut hands = working(Hands::cut());
    hands.worked(Worked::Broken);
    assert_eq!(hands.connect_anew(0), NOTHING);
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 1");
    assert_eq!(hands.connect_anew(0), ["stop steps"]);
    hands.ask(1, Task::Train);
    assert_eq!(hands.end_work(0, Worked::Broken), NOTHING);
    assert_eq!(hands.pulled(Pulled::Whole).last().unwrap(), "begin steps 1");
    assert_eq!(hands.worked(Worked::Done).last().unwrap(), "offer 1 Train");
    assert_eq!(hands.connect_anew(0), ["let go"]);
    assert_eq!(hands.ask(1, Task::Train), ["pull 1 Train"]);
}
