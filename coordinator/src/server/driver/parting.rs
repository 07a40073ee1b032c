//! The end of a run, for its clients.

use std::collections::BTreeMap;

use selvedge_models::Weights;
use selvedge_protocols::{
    message::{FINAL_MODEL_WITHIN, ToClient},
    wire::Held,
};
use tokio::time::{Instant, timeout_at};

use super::Driver;
use crate::{
    Outcome,
    server::session::{Session, Signal},
};

impl Driver {
    /// How a run ended, for its clients.
    pub(in crate::server) fn reason(&self, outcome: Outcome) -> &'static str {
        match outcome {
            Outcome::Completed => "all rounds are done",
            Outcome::Stopped if self.is_put_down(outcome) => "the run was put down, and can be taken up again",
            Outcome::Stopped => "the coordinator was stopped",
            Outcome::TooFewClients => "there were too few clients",
        }
    }

    /// Whether the run can go on from where it was stopped.
    pub(super) fn is_put_down(&self, outcome: Outcome) -> bool {
        outcome == Outcome::Stopped && !self.resumable.is_empty()
    }

    /// Tells everybody that the run is over, and waits a little while they hang up; those who want the final model fetch it
    /// first. Of a run that was put down nobody is told so: its clients wait for it to be taken up again.
    pub(super) async fn part(&mut self, outcome: Outcome, weights: &Weights) {
        if self.is_put_down(outcome) {
            return;
        }
        let reason = self.reason(outcome);
        let began = Instant::now();
        let mut model = None;
        // Those who have not hung up, and whether they fetch the model.
        let mut left: BTreeMap<u64, bool> = BTreeMap::new();
        let mut joined: Vec<Session> = std::mem::take(&mut self.sessions).into_values().collect();
        loop {
            for session in joined.drain(..) {
                left.insert(session.number, session.keeps_model);
                if session.keeps_model && model.is_none() {
                    model = self.final_model(weights);
                }
                let held = model.as_ref().filter(|_| session.keeps_model);
                let _ = session.told.try_send(ToClient::Finished {
                    reason: reason.into(),
                    model: held.map(Held::reference),
                });
            }
            if left.is_empty() {
                return;
            }
            let limit = match left.values().any(|&fetches| fetches) {
                true => FINAL_MODEL_WITHIN.max(self.limits.connect),
                false => self.limits.connect,
            };
            match timeout_at(began + limit, self.heard.recv()).await {
                Ok(Some(Signal::Left { number, .. })) => drop(left.remove(&number)),
                Ok(Some(Signal::Joined(_, _, session))) => joined.push(session),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Offers the final model, if the run has one.
    pub(super) fn final_model(&self, weights: &Weights) -> Option<Held> {
        if !self.description.has_one_model() {
            return None;
        }
        let layout = self.description.model.layout().ok()?;
        let file = weights.to_safetensors(&layout).ok()?;
        self.broadcasts.store().hold(file.into()).ok()
    }
}
