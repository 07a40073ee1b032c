//! *gather*: the run waits until enough clients are there.

use std::time::Duration;

use super::{
    Outcome,
    phase::{Moment, Next, Phase, Then},
    run::Run,
};

/// The run waits until enough clients are there, or ends: when its rounds are over, or clients have been too few for too
/// long.
pub(super) struct Gathering {
    since: Duration,
    then: Then<()>,
}

impl Gathering {
    pub(super) fn new(since: Duration, then: Then<()>) -> Self {
        Self { since, then }
    }
}

impl Phase for Gathering {
    fn due(&self, run: &Run) -> Option<Duration> {
        Some(self.since + run.wait())
    }

    fn advance(self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        let run = &*moment.run;
        if run.round == run.description.rounds {
            return Next::Finish(Outcome::Completed);
        }
        if run.roster.len() >= run.clients_needed() {
            return (self.then)((), moment);
        }
        match moment.now >= self.since + run.wait() {
            true => Next::Finish(Outcome::TooFewClients),
            false => Next::Stay(self),
        }
    }
}
