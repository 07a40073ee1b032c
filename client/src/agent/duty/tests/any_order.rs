//! Whatever happens in whatever order: the hands watch that no two works are under way, that no two updates are held, that
//! nothing is offered, pulled or worked on that was not asked, or not of this broadcast, and that nothing is kept that was not
//! proposed.

use proptest::{prelude::*, sample::Index};

use super::*;

/// Something that can happen.
#[derive(Clone, Debug)]
enum Turn {
    Connect,
    /// The coordinator begins anew, in one of two timelines.
    ConnectAnew(u8),
    Ask(u32, Task),
    /// One of the pulls that are under way ends; one that was stopped may be through already.
    EndPull(Index, Pulled),
    EndWork(Index, Worked),
    Accept(u32),
    Reject(u32, Rejection),
    /// From now on the client has a front of its own.
    KeepFront,
}

const PULLED: [Pulled; 4] = [Pulled::Whole, Pulled::Broken, Pulled::NotHeld, Pulled::Damaged];
const WORKED: [Worked; 4] = [Worked::Done, Worked::Failed, Worked::Panicked, Worked::Broken];

fn turn() -> impl Strategy<Value = Turn> {
    let round = 1u32..4;
    let reasons = vec![Rejection::Duplicate, Rejection::NoExamples];
    prop_oneof![
        2 => Just(Turn::Connect),
        1 => (0u8..2).prop_map(Turn::ConnectAnew),
        4 => (round.clone(), prop::sample::select(&TASKS[..])).prop_map(|(round, task)| Turn::Ask(round, task)),
        4 => (any::<Index>(), prop::sample::select(&PULLED[..])).prop_map(|(at, how)| Turn::EndPull(at, how)),
        4 => (any::<Index>(), prop::sample::select(&WORKED[..])).prop_map(|(at, how)| Turn::EndWork(at, how)),
        1 => round.clone().prop_map(Turn::Accept),
        1 => (round, prop::sample::select(reasons)).prop_map(|(round, reason)| Turn::Reject(round, reason)),
        1 => Just(Turn::KeepFront),
    ]
}

impl Hands {
    fn take(&mut self, turn: Turn) -> Vec<String> {
        match turn {
            Turn::Connect => self.connect(),
            Turn::ConnectAnew(timeline) => self.connect_anew(timeline),
            Turn::Ask(round, task) => self.ask(round, task),
            Turn::EndPull(at, how) if !self.pulls.is_empty() => self.end_pull(at.index(self.pulls.len()), how),
            Turn::EndWork(at, how) if !self.works.is_empty() => self.end_work(at.index(self.works.len()), how),
            Turn::EndPull(..) | Turn::EndWork(..) => Vec::new(),
            Turn::Accept(round) => self.accepted(round),
            Turn::Reject(round, reason) => self.rejected(round, reason),
            Turn::KeepFront => {
                self.front_is_kept = true;
                Vec::new()
            }
        }
    }

    /// All that is under way ends well.
    fn settle(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while !(self.pulls.is_empty() && self.works.is_empty()) {
            if !self.pulls.is_empty() {
                said.extend(self.pulled(Pulled::Whole));
            }
            if !self.works.is_empty() {
                said.extend(self.worked(Worked::Done));
            }
        }
        said
    }
}

proptest! {
    #[test]
    fn a_client_that_is_asked_anew_answers_whatever_was_before(
        is_cut in any::<bool>(),
        turns in prop::collection::vec(turn(), 0..60),
        round in 1u32..4,
        task in prop::sample::select(&TASKS[..]),
    ) {
        let mut hands = Hands::new(is_cut);
        hands.connect();
        for turn in turns {
            hands.take(turn);
        }
        hands.connect();
        let mut said = hands.ask(round, task);
        said.extend(hands.settle());
        let answer = match task {
            Task::Evaluate => format!("say evaluated {round}"),
            _ => format!("offer {round} {task:?}"),
        };
        prop_assert_eq!(said.iter().filter(|said| **said == answer).count(), 1, "{:?}", said);
    }
}
