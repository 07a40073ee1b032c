//! The round engine: decides, and does no I/O.
//!
//! Whatever drives it (the QUIC server, the workers of a simulation, a test with a clock of its own) tells it what
//! happened and when, and does what it answers: `handle(now, event) → actions`. A run is in one phase at a time, which takes
//! in what happens and says what comes after it. Synchronous rounds go *gather* → *train* → *calibrate* (where batch norm is
//! static) → *evaluate* → record, and again; or one phase, *stream*, asks clients one by one.

mod calibrating;
mod cohort;
mod collection;
mod evaluating;
mod event;
mod filling;
mod gathering;
mod global_model;
mod hands;
mod inspector;
mod new_model;
mod phase;
mod roster;
mod rounds;
mod run;
mod snapshot;
mod splitting;
mod steps;
mod streaming;
mod training;
mod units;

pub use event::{Action, Event, Outcome};
pub use global_model::{Fronts, GlobalModel};
pub use inspector::{Inspector, Opened};
pub use roster::Roster;
pub use snapshot::Snapshot;
pub use units::UnitCounts;

use std::{sync::Arc, time::Duration};

use selvedge_models::{ModelError, Weights};
use selvedge_protocols::{ClientName, Description, Parts, Rejection, ServerState};

use self::{
    phase::{Finished, Moment, Next, Offer, Phase},
    run::Run,
};

/// Of a client's own words, this many characters are kept.
const LONGEST_REASON: usize = 200;

/// A run, and the phase that it is in.
pub struct Engine {
    run: Run,
    phase: Box<dyn Phase>,
}

impl Engine {
    /// A run that begins at round 1 with the given model. At most `window` updates (at least 1) are asked for beyond
    /// the one that is folded next: memory for updates does not grow with the cohort.
    pub fn new(
        description: Arc<Description>,
        parts: Arc<Parts>,
        initial: Weights,
        roster: Roster,
        window: usize,
    ) -> Self {
        let phase = phase::first(&description);
        let run = Run::new(description, parts, initial, roster, window);
        Self { run, phase }
    }

    /// The same run, that goes on from a snapshot of it.
    ///
    /// # Errors
    /// When the snapshot is of another model.
    pub fn resumed(mut self, snapshot: &Snapshot) -> Result<Self, ModelError> {
        self.run.resume(snapshot)?;
        Ok(self)
    }

    /// The same run, which gives a [snapshot](Action::Snapshot) after each round.
    #[must_use]
    pub fn with_snapshots(mut self) -> Self {
        self.run.keeps_snapshots = true;
        self
    }

    /// Where the run is, before anything has happened.
    pub fn snapshot(&self) -> Snapshot {
        self.run.snapshot()
    }

    /// The global model and the algorithm's vectors, as they are after the last complete round.
    pub fn state(&self) -> &ServerState {
        &self.run.state
    }

    /// Where clients keep their fronts, those that were evaluated last.
    pub fn fronts(&self) -> &Fronts {
        &self.run.fronts
    }

    /// How often each unit was trained.
    pub fn units(&self) -> &UnitCounts {
        &self.run.units
    }

    /// The last round that was begun; 0 before the first.
    pub fn round(&self) -> u32 {
        self.run.round
    }

    /// How many clients are there.
    pub fn clients(&self) -> usize {
        self.run.roster.len()
    }

    /// How many clients the next round waits for.
    pub fn clients_needed(&self) -> usize {
        self.run.clients_needed()
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.phase.due(&self.run)
    }

    /// Takes in what happened at `now` (measured from any fixed moment, never going back), and says what is to be done.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let moment = &mut Moment {
            now,
            run: &mut self.run,
            actions: &mut actions,
        };
        // It is over, unless what comes next says otherwise.
        let phase = std::mem::replace(&mut self.phase, Box::new(Finished));
        let mut next = hear(phase, moment, event);
        loop {
            match next {
                Next::Phase(phase) => next = phase.advance(moment),
                Next::Stay(phase) => {
                    self.phase = phase;
                    break;
                }
                Next::Finish(outcome) => {
                    moment.actions.push(Action::Finish(outcome));
                    break;
                }
            }
        }
        actions
    }
}

/// Tells a phase what happened. What comes next is that phase, unless the run is to end.
fn hear(mut phase: Box<dyn Phase>, moment: &mut Moment<'_>, event: Event) -> Next {
    match event {
        Event::Joined { client, width } => {
            moment.run.join(&client, width);
            phase.joined(moment, &client);
        }
        Event::Left { client, for_good } => {
            moment.run.roster.leave(&client);
            phase.left(moment, &client, for_good);
        }
        Event::Offered {
            client,
            round,
            task,
            report,
            sections,
            bytes,
        } => {
            let offer = Offer {
                round,
                task,
                report,
                sections,
                bytes,
            };
            let verdict = phase.offered(moment, &client, &offer);
            turn_down(client, round, verdict, moment);
        }
        Event::Received {
            client,
            round,
            task,
            update,
        } => {
            let verdict = phase.received(&client, round, task, update);
            turn_down(client, round, verdict, moment);
        }
        Event::Failed {
            client,
            round,
            task,
            reason,
        } => {
            let reason = Rejection::ClientFailed(reason.chars().take(LONGEST_REASON).collect());
            phase.failed(&client, round, task, &reason);
        }
        Event::Evaluated {
            client,
            round,
            evaluation,
        } => {
            let verdict = phase.evaluated(moment, &client, round, evaluation);
            turn_down(client, round, verdict, moment);
        }
        Event::Stepped {
            client,
            message,
            payload,
        } => phase.stepped(moment, &client, message, &payload),
        Event::Misstepped { client, reason } => phase.misstepped(moment, &client, &reason),
        Event::Tested {
            round,
            trial,
            evaluation,
        } => phase.tested(round, &trial, evaluation),
        Event::Tick => phase.ticked(moment.now),
        Event::Stop => return phase.stop(moment),
    }
    Next::Phase(phase)
}

/// Tells a client why what it sent was not taken in, if it was not.
fn turn_down(client: ClientName, round: u32, verdict: Result<(), Rejection>, moment: &mut Moment<'_>) {
    if verdict.is_err() {
        moment.actions.push(Action::Answer { client, round, verdict });
    }
}
