//! What an agent owes the coordinator, from connection to connection: decides, and does no I/O.
//!
//! Whatever drives it (the agent, a test) tells it what happened and does what it answers, in that order:
//! `handle(event) → actions`. A task is *asked* → its broadcast is *pulled* → it is *worked* on, alone or in steps → what
//! it came to is *held* and *offered*, or said → it is *accepted* or rejected. A connection can be lost anywhere on that
//! way: what was begun goes on or stays, and is taken up when the task is asked again.

use bytes::Bytes;
use selvedge_protocols::{
    Rejection,
    message::{Task, ToCoordinator},
    wire::{Partial, WireError},
};

use super::{
    Moment,
    assignment::Assignment,
    event::{Action, Event},
    outcome::Outcome,
};
use crate::Front;

/// What is owed, and how far it is.
pub(super) struct Duty {
    /// The most bytes that a broadcast of this run may have.
    largest: u64,
    /// Counts connections: what was pulled on an earlier one has failed with it.
    connection: u64,
    /// Counts pulls and works.
    begun: u64,
    /// What was asked on this connection and is not done.
    assignment: Option<Assignment>,
    /// The pull that is under way on this connection.
    pulling: Option<u64>,
    /// What has come of a broadcast.
    partial: Option<Partial>,
    /// A broadcast that has come, until the thread that trains is free; of a front that goes on alone, nothing.
    fetched: Option<Bytes>,
    /// A front whose steps go on when the coordinator asks for them again.
    front: Option<Box<Front>>,
    working: Option<Working>,
    /// What the update was asked for that is held until it is known whether it counts.
    held: Option<Assignment>,
}

/// What is being worked on. It goes on when the connection is lost; only steps can be stopped.
struct Working {
    number: u64,
    assignment: Assignment,
    /// On which it was begun.
    connection: u64,
}

impl Duty {
    /// Nothing is owed yet. A broadcast may have at most `largest` bytes.
    pub(super) fn new(largest: u64) -> Self {
        Self {
            largest,
            connection: 0,
            begun: 0,
            assignment: None,
            pulling: None,
            partial: None,
            fetched: None,
            front: None,
            working: None,
            held: None,
        }
    }

    /// Takes in what happened, and says what is to be done, in this order. What there is to say to the coordinator comes
    /// last, and so does giving the connection up.
    pub(super) fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let answer = match event {
            Event::Connected { is_anew } => self.connected(is_anew, &mut actions),
            Event::Asked {
                assignment,
                front_is_kept,
            } => self.asked(assignment, front_is_kept, &mut actions),
            Event::Pulled {
                number,
                partial,
                result,
            } => self.pulled(number, partial, result),
            Event::Worked { number, result } => self.worked(number, result, &mut actions),
            Event::Broken { number, front, error } => self.broken(number, front, error),
            Event::Panicked { number } => self.panicked(number),
            Event::Accepted { round, resumable } => self.accepted(round, resumable, &mut actions),
            Event::Rejected { round, reason } => self.rejected(round, reason, &mut actions),
            Event::Finished => self.finished(&mut actions),
        };
        self.begin(&mut actions);
        if let Some(Action::Say(ToCoordinator::Failed { round, reason, .. })) = &answer {
            let (round, reason) = (*round, reason.clone());
            actions.push(Action::Tell(Moment::Failed { round, reason }));
        }
        actions.extend(answer);
        actions
    }

    /// Whatever was asked on another connection will be asked again, if it is still wanted. A coordinator that has begun anew
    /// makes all the steps of a round again.
    fn connected(&mut self, is_anew: bool, actions: &mut Vec<Action>) -> Option<Action> {
        self.connection += 1;
        self.assignment = None;
        self.pulling = None;
        self.fetched = None;
        if is_anew {
            self.front = None;
            self.stop_steps(actions);
            if self.held.take_if(|held| held.is_of_steps()).is_some() {
                actions.push(Action::LetGo);
            }
        }
        None
    }

    fn asked(&mut self, assignment: Assignment, front_is_kept: bool, actions: &mut Vec<Action>) -> Option<Action> {
        let (round, task, blob) = (assignment.round, assignment.task, assignment.blob);
        let is_of_steps = assignment.is_of_steps();
        let assignment = &*self.assignment.insert(assignment);
        self.fetched = None;
        if self.pulling.take().is_some() {
            actions.push(Action::StopPulling);
        }
        // Asked again after a lost connection: what was done need not be done again.
        let is_held = self.held.as_ref().is_some_and(|held| held.answers(assignment));
        let answers = |working: &Working| working.assignment.answers(assignment);
        let is_worked_on = self.working.as_ref().is_some_and(answers);
        if !is_worked_on {
            // Nobody answers the steps of a round that is over.
            self.stop_steps(actions);
        }
        if is_held {
            return Some(Action::Offer);
        }
        if self.held.take().is_some() {
            actions.push(Action::LetGo);
        }
        if is_worked_on {
            return None;
        }
        self.front.take_if(|front| front.round() != round);
        if is_of_steps && (self.front.is_some() || front_is_kept) {
            self.fetched = Some(Bytes::new());
            return None;
        }
        let begun = self.partial.take().filter(|partial| partial.reference() == blob);
        let partial = match begun.map_or_else(|| Partial::new(blob, self.largest), Ok) {
            Ok(partial) => partial,
            Err(error) => return Some(failed(round, task, error.to_string())),
        };
        let number = self.next_number();
        self.pulling = Some(number);
        actions.push(Action::Pull { number, partial });
        None
    }

    fn pulled(&mut self, number: u64, partial: Partial, result: Result<Bytes, WireError>) -> Option<Action> {
        if self.pulling.take_if(|pulling| *pulling == number).is_none() {
            // It was begun on another connection. What has come of it may still be wanted.
            self.partial.get_or_insert(partial);
            return None;
        }
        match result {
            Ok(bytes) => self.fetched = Some(bytes),
            Err(error) if error.is_transient() => {
                // The rest is fetched on the next connection.
                self.partial = Some(partial);
                return Some(Action::HangUp(error));
            }
            // It has gone on without us.
            Err(WireError::BlobNotHeld { .. }) => self.assignment = None,
            Err(error) => {
                let assignment = self.assignment.take()?;
                return Some(failed(assignment.round, assignment.task, error.to_string()));
            }
        }
        None
    }

    /// Begins to work on what was fetched, if nothing else is being worked on.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        let (None, Some(assignment)) = (&self.working, &self.assignment) else {
            return;
        };
        let Some(broadcast) = self.fetched.take() else {
            return;
        };
        let assignment = assignment.clone();
        let (round, task, width) = (assignment.round, assignment.task, assignment.card.width);
        let is_of_steps = assignment.is_of_steps();
        let number = self.next_number();
        self.working = Some(Working {
            number,
            assignment: assignment.clone(),
            connection: self.connection,
        });
        actions.push(Action::Tell(Moment::Begun { round, task, width }));
        let front = self.front.take_if(|front| is_of_steps && front.round() == round);
        actions.push(match front {
            Some(front) => Action::ResumeSteps { number, front },
            None if is_of_steps => Action::BeginSteps {
                number,
                assignment,
                broadcast,
            },
            None => Action::Work {
                number,
                assignment,
                broadcast,
            },
        });
    }

    fn worked(&mut self, number: u64, result: Result<Outcome, String>, actions: &mut Vec<Action>) -> Option<Action> {
        let done = self.ended(number)?.assignment;
        let (round, task) = (done.round, done.task);
        let is_asked = match &self.assignment {
            Some(assignment) if done.answers(assignment) => true,
            Some(_) => {
                actions.push(Action::Tell(Moment::Dropped { round }));
                return None;
            }
            None => false,
        };
        let answer = match result {
            Ok(Outcome::Trained { update, kept }) => {
                actions.extend(kept.map(|kept| Action::Propose { round, kept }));
                self.held = Some(done);
                let bytes = update.bytes.len() as u64;
                actions.push(Action::Hold { round, task, update });
                actions.push(Action::Tell(Moment::Offered { round, bytes }));
                Action::Offer
            }
            Ok(Outcome::Evaluated(evaluation)) => Action::Say(ToCoordinator::Evaluated { round, evaluation }),
            Err(reason) => failed(round, task, reason),
        };
        is_asked.then_some(answer)
    }

    fn broken(&mut self, number: u64, front: Box<Front>, error: WireError) -> Option<Action> {
        let Working {
            assignment: begun,
            connection,
            ..
        } = self.ended(number)?;
        self.front = Some(front);
        if connection == self.connection {
            return Some(Action::HangUp(error));
        }
        // On the connection that is there now it was asked again, or will be.
        if self.assignment.as_ref().is_some_and(|asked| begun.answers(asked)) {
            self.fetched = Some(Bytes::new());
        }
        None
    }

    fn panicked(&mut self, number: u64) -> Option<Action> {
        let Assignment { round, task, .. } = self.ended(number)?.assignment;
        Some(failed(round, task, "training ended unexpectedly".into()))
    }

    /// What was being worked on under this number, unless it was stopped.
    fn ended(&mut self, number: u64) -> Option<Working> {
        self.working.take_if(|working| working.number == number)
    }

    fn accepted(&mut self, round: u32, resumable: Vec<u32>, actions: &mut Vec<Action>) -> Option<Action> {
        actions.push(Action::Accept { round, resumable });
        if self.withdraw(round, actions) {
            actions.push(Action::Tell(Moment::Accepted { round }));
        }
        None
    }

    fn rejected(&mut self, round: u32, reason: Rejection, actions: &mut Vec<Action>) -> Option<Action> {
        // A second answer that is turned down says nothing about the first.
        if reason != Rejection::Duplicate {
            self.withdraw(round, actions);
        }
        actions.push(Action::Tell(Moment::Rejected { round, reason }));
        None
    }

    /// The update of a round need not be held ready any longer. Says whether it was.
    fn withdraw(&mut self, round: u32, actions: &mut Vec<Action>) -> bool {
        let is_held = self.held.take_if(|held| held.is(round, Task::Train)).is_some();
        if is_held {
            self.assignment.take_if(|assignment| assignment.is(round, Task::Train));
            actions.push(Action::LetGo);
        }
        is_held
    }

    /// Nothing is owed any more.
    fn finished(&mut self, actions: &mut Vec<Action>) -> Option<Action> {
        self.assignment = None;
        if self.pulling.take().is_some() {
            actions.push(Action::StopPulling);
        }
        self.stop_steps(actions);
        if self.held.take().is_some() {
            actions.push(Action::LetGo);
        }
        None
    }

    fn stop_steps(&mut self, actions: &mut Vec<Action>) {
        let is_of_steps = |working: &mut Working| working.assignment.is_of_steps();
        if self.working.take_if(is_of_steps).is_some() {
            actions.push(Action::StopSteps);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }
}

fn failed(round: u32, task: Task, reason: String) -> Action {
    Action::Say(ToCoordinator::Failed { round, task, reason })
}

#[cfg(test)]
mod tests;
