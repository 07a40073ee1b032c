//! What the coordinator asked for.

use selvedge_protocols::{Card, message::Task, sections::SectionHeader, wire::BlobReference};

/// What the coordinator asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    pub(super) round: u32,
    pub(super) task: Task,
    pub(super) card: Card,
    /// What the broadcast holds.
    pub(super) sections: Vec<SectionHeader>,
    /// The broadcast.
    pub(super) blob: BlobReference,
    /// Of which round is what the client keeps, when it begins with this; 0 for nothing.
    pub(super) kept: u32,
}

/// What a client keeps must be of a round before this one, when it begins with a task: training goes on from the rounds before
/// its own, and what is evaluated is what its round left.
pub(super) fn kept_before(round: u32, task: Task) -> u32 {
    match task {
        Task::Train => round,
        Task::Calibrate | Task::Evaluate => round.saturating_add(1),
    }
}

impl Assignment {
    /// Whether it is to train a model that is cut.
    pub(super) fn is_of_steps(&self) -> bool {
        self.task == Task::Train && self.card.cut.is_some()
    }

    /// Whether what is done for this is the answer to `other` too. A coordinator that begins anew asks for the same round
    /// again: if it sends the same, and the client begins with the same, the same comes of it. What comes of steps depends on
    /// the coordinator's part too: it is an answer as long as the coordinator has not begun anew.
    pub(super) fn answers(&self, other: &Self) -> bool {
        match self.is_of_steps() {
            true => other.is_of_steps() && self.round == other.round,
            false => self == other,
        }
    }

    pub(super) fn is(&self, round: u32, task: Task) -> bool {
        (self.round, self.task) == (round, task)
    }
}
