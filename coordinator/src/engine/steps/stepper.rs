//! A client of a round whose model is cut, and what the steps came to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_models::Pieces;
use selvedge_protocols::ClientName;

use super::backs::StepLoss;

/// A client of the round whose model is cut.
pub(in crate::engine) struct Stepper {
    pub(in crate::engine) name: ClientName,
    /// Its place in the cohort.
    pub(in crate::engine) at: usize,
    pub(in crate::engine) pieces: Arc<Pieces>,
    /// How many steps it makes, once it has entered.
    pub(in crate::engine) steps: Option<u64>,
    /// How many examples it trains on.
    pub(super) examples: u64,
    /// Whether it is there.
    pub(super) present: bool,
    /// Whether anything more is expected of it.
    pub(super) open: bool,
    /// Whether it was late: nobody waits for it until it has caught up.
    pub(super) is_behind: bool,
    pub(super) loss: StepLoss,
    /// How many examples of each class it has sent.
    pub(super) classes: Vec<u64>,
}

impl Stepper {
    pub(in crate::engine) fn new(name: ClientName, at: usize, pieces: Arc<Pieces>) -> Self {
        Self {
            name,
            at,
            pieces,
            steps: None,
            examples: 0,
            present: false,
            open: true,
            is_behind: false,
            loss: StepLoss::default(),
            classes: Vec::new(),
        }
    }
}

/// What the steps came to, beside the trained parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::engine) struct Tally {
    /// Steps in which the back moved.
    pub(in crate::engine) steps: u64,
    /// How often somebody was waited for in vain, or said what could not be of a step, by reason.
    pub(in crate::engine) lost: BTreeMap<String, usize>,
    /// How many of the steps went on without a client that was to contribute to them.
    pub(in crate::engine) missed: BTreeMap<ClientName, u64>,
    /// How often each client led, where fronts' gradients are aligned.
    pub(in crate::engine) led: BTreeMap<ClientName, u64>,
    /// Each time that leaders were identified among several, how much the clients' gradients agreed.
    pub(super) agreements: Vec<f64>,
    /// When the first step began and the last ended.
    pub(super) began: Option<Duration>,
    pub(super) ended: Duration,
    /// Payload bytes that clients sent.
    pub(in crate::engine) bytes_up: u64,
    /// Payload bytes that they were sent.
    pub(in crate::engine) bytes_down: u64,
}

impl Tally {
    /// How much clients' gradients agreed, on the mean.
    pub(in crate::engine) fn agreement(&self) -> Option<f64> {
        let count = self.agreements.len();
        (count > 0).then(|| self.agreements.iter().sum::<f64>() / count as f64)
    }

    /// How long a step took, on the mean.
    pub(in crate::engine) fn seconds_a_step(&self) -> Option<f64> {
        let seconds = self.ended.saturating_sub(self.began?).as_secs_f64();
        // A clock that stands still measures nothing.
        (self.steps > 0 && seconds > 0.0).then(|| seconds / self.steps as f64)
    }
}
