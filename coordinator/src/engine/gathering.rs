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
        let is_over = moment.now >= self.since + run.wait();
        // A run that is taken up again goes on as it would have: with all who were there.
        let are_back = run.returning.iter().all(|client| run.roster.contains(client));
        if is_over && !are_back {
            moment.run.returning.clear();
        }
        let run = &*moment.run;
        if run.roster.len() >= run.clients_needed() && (are_back || is_over) {
            moment.run.returning.clear();
            return (self.then)((), moment);
        }
        match is_over {
            true => Next::Finish(Outcome::TooFewClients),
            false => Next::Stay(self),
        }
    }
}
