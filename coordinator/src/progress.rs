//! What a run tells whoever watches it.

use std::sync::Arc;

use selvedge_protocols::ServerState;

use crate::{
    Outcome,
    checkpoint::Clients,
    engine::{Fronts, Snapshot, UnitCounts},
    record::RoundRecord,
};

/// A moment of a run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The run waits for clients.
    Waiting {
        /// How many are there.
        clients: usize,
        /// How many are needed.
        needed: usize,
    },
    /// A round is under way.
    Round {
        /// The round, counted from 1.
        round: u32,
        /// How many clients have answered.
        answered: usize,
        /// How many were asked.
        asked: usize,
    },
    /// A round is over.
    Record {
        /// What is written down about it.
        record: &'a RoundRecord,
        /// The model after it.
        state: &'a ServerState,
        /// How often each unit of the model has been trained.
        units: &'a UnitCounts,
        /// Where clients keep their fronts, those that were evaluated last.
        fronts: &'a Fronts,
    },
    /// Where the run is after a round, where that is asked for: it can be taken up again from here.
    Snapshot {
        /// The run.
        snapshot: &'a Arc<Snapshot>,
        /// What else there is to be known of its clients.
        clients: &'a Clients,
        /// The rounds after which the run can be taken up again, by what was written down of it: to be replaced by whoever
        /// writes.
        resumable: &'a mut Vec<u32>,
    },
    /// The run is over, and what is to be saved is to be saved now: over the network clients are parted from afterwards, which
    /// may take a while.
    Ended {
        /// How.
        outcome: Outcome,
        /// The final model.
        state: &'a ServerState,
        /// How often each unit of the model has been trained.
        units: &'a UnitCounts,
        /// Where clients keep their fronts, those that were evaluated last.
        fronts: &'a Fronts,
    },
    /// Something that a person should know of, such as a client that was turned away.
    Notice(&'a str),
}

/// Watches a run.
pub type Observer<'a> = &'a mut dyn FnMut(Progress<'_>);
