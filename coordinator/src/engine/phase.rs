//! What a phase of a run is: it takes in what happens, says what is to be done, and what comes after it.

use std::time::Duration;

use selvedge_protocols::{
    ClientName, Description, Rejection,
    evaluation::Tested,
    message::{Evaluation, Task},
    sections::SectionHeader,
    split::FromClient,
    update::TrainingReport,
};

use super::{Action, Opened, Outcome, rounds, run::Run, streaming};
use crate::Trial;

/// What a phase is lent while something happens: the run, the time, and the list of what is to be done.
pub(super) struct Moment<'a> {
    pub(super) now: Duration,
    pub(super) run: &'a mut Run,
    pub(super) actions: &'a mut Vec<Action>,
}

/// What a client says that it has ready.
pub(super) struct Offer {
    pub(super) round: u32,
    pub(super) task: Task,
    pub(super) report: TrainingReport,
    pub(super) sections: Vec<SectionHeader>,
    pub(super) bytes: u64,
}

/// What comes next.
pub(super) enum Next {
    /// The phase goes on.
    Stay(Box<dyn Phase>),
    /// Another one begins.
    Phase(Box<dyn Phase>),
    /// The run is over.
    Finish(Outcome),
}

/// What follows a phase, by what came of it. A phase is given this when it is opened: which phases there are, and in which
/// order, is known to those who put them in order alone, as [`rounds`] do.
pub(super) type Then<Came> = fn(Came, &mut Moment<'_>) -> Next;

/// The phase that a run begins with.
pub(super) fn first(description: &Description) -> Box<dyn Phase> {
    match description.buffer {
        Some(_) => streaming::gather(Duration::ZERO),
        None => rounds::gather(Duration::ZERO),
    }
}

/// A phase of a run.
///
/// It has what is its own; what phases have in common is in the [`Run`], which it is lent. A phase that is not made for
/// something turns it down or lets it pass: that is what it does by default. Whatever a message names as its round and its
/// task is what its sender says, and the phase's to check.
pub(super) trait Phase: Send {
    /// A client has an answer ready. Gives why it is not awaited.
    fn offered(&mut self, moment: &mut Moment<'_>, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        let _ = client;
        Err(moment.run.wrong_round(offer.round))
    }

    /// What was to be received of a client is here and was opened, or is not to be had. Gives why it does not count.
    fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        task: Task,
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        let _ = (client, round, task, update);
        Ok(())
    }

    /// A client could not do what it was asked.
    fn failed(&mut self, client: &ClientName, round: u32, task: Task, reason: &Rejection) {
        let _ = (client, round, task, reason);
    }

    /// A client has evaluated its part of the model. Gives why that does not count.
    fn evaluated(
        &mut self,
        moment: &mut Moment<'_>,
        client: &ClientName,
        round: u32,
        evaluation: Evaluation,
    ) -> Result<(), Rejection> {
        let _ = (client, evaluation);
        Err(moment.run.wrong_round(round))
    }

    /// A client whose model is cut says something in its steps.
    fn stepped(&mut self, moment: &mut Moment<'_>, client: &ClientName, message: FromClient, payload: &[u8]) {
        let _ = (moment, client, message, payload);
    }

    /// A client said something that cannot be of its steps.
    fn misstepped(&mut self, moment: &mut Moment<'_>, client: &ClientName, reason: &Rejection) {
        let _ = (moment, client, reason);
    }

    /// The coordinator has evaluated something.
    fn tested(&mut self, round: u32, trial: &Trial, evaluation: Result<Option<Tested>, String>) {
        let _ = (round, trial, evaluation);
    }

    /// A client's connection is lost; it may come back, unless it has left for good.
    fn left(&mut self, moment: &mut Moment<'_>, client: &ClientName, for_good: bool) {
        let _ = (moment, client, for_good);
    }

    /// A client is there, for the first time or again.
    fn joined(&mut self, moment: &mut Moment<'_>, client: &ClientName) {
        let _ = (moment, client);
    }

    /// Time has passed, and all that came until now was heard.
    fn ticked(&mut self, now: Duration) {
        let _ = now;
    }

    /// When it has to be looked at again, if nothing happens before.
    fn due(&self, run: &Run) -> Option<Duration> {
        let _ = run;
        None
    }

    /// Goes as far as it goes without hearing anything new.
    fn advance(self: Box<Self>, moment: &mut Moment<'_>) -> Next;

    /// The operator wants the run to end.
    fn stop(self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        let _ = moment;
        Next::Finish(Outcome::Stopped)
    }
}

/// The run is over: nothing comes of anything.
pub(super) struct Finished;

impl Phase for Finished {
    fn advance(self: Box<Self>, _: &mut Moment<'_>) -> Next {
        Next::Stay(self)
    }

    fn stop(self: Box<Self>, _: &mut Moment<'_>) -> Next {
        Next::Stay(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use selvedge_models::Weights;

    use super::*;
    use crate::{Engine, Event, Roster};

    const DESCRIPTION: &str = r#"
        rounds = 1
        clients = 1
        data = { source = "fashion-mnist-small" }
        model = { input = [2], layers = [{ kind = "dense", units = 2 }] }
        training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
    "#;

    /// Goes on with another after so many events.
    struct Waiting(u32, Then<u32>);

    impl Phase for Waiting {
        fn due(&self, _: &Run) -> Option<Duration> {
            Some(Duration::from_secs(self.0.into()))
        }

        fn advance(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
            let Some(left) = self.0.checked_sub(1) else {
                let then = self.1;
                return then(3, moment);
            };
            self.0 = left;
            Next::Stay(self)
        }
    }

    #[test]
    fn phases_of_any_kind_follow_one_another_as_they_say() -> Result<(), Box<dyn std::error::Error>> {
        let description = Arc::new(Description::parse(DESCRIPTION, "test", &[])?);
        let parts = Arc::new(description.parts()?);
        let weights = Weights::zeros(parts.layout());
        let roster = Roster::Joined(Default::default());
        let phase = Waiting(1, |events, moment| {
            moment.run.round += 1;
            Next::Phase(Box::new(Waiting(events, |_, _| Next::Finish(Outcome::Completed))))
        });
        let mut engine = Engine {
            run: Run::new(description, parts, weights, roster, 1),
            phase: Box::new(phase),
        };
        let mut dues = Vec::new();
        let mut hear = |engine: &mut Engine, event| {
            let actions = engine.handle(Duration::ZERO, event);
            dues.push((engine.round(), engine.next_deadline().map(|due| due.as_secs())));
            actions
        };
        assert!(hear(&mut engine, Event::Tick).is_empty());
        // What it is not made for is turned down, or passes.
        let evaluated = Event::Evaluated {
            client: ClientName::numbered(0),
            round: 7,
            evaluation: Evaluation::default(),
        };
        let turned_down = hear(&mut engine, evaluated);
        let reason = Rejection::WrongRound { update: 7, now: 0 };
        assert!(matches!(&turned_down[..], [Action::Answer { verdict: Err(why), .. }] if *why == reason));
        assert!(hear(&mut engine, Event::Tick).is_empty());
        assert!(hear(&mut engine, Event::Tick).is_empty());
        let ended = hear(&mut engine, Event::Tick);
        assert!(matches!(ended[..], [Action::Finish(Outcome::Completed)]));
        assert_eq!(
            dues,
            [(0, Some(0)), (1, Some(2)), (1, Some(1)), (1, Some(0)), (1, None)]
        );
        Ok(())
    }
}
