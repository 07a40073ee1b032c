//! What the coordinator asked for.

use selvedge_protocols::{Card, message::Task, sections::SectionHeader, wire::BlobReference};

/// What the coordinator asked for.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) round: u32,
    pub(super) task: Task,
    pub(super) card: Card,
    /// What the broadcast holds.
    pub(super) sections: Vec<SectionHeader>,
    /// The broadcast.
    pub(super) blob: BlobReference,
}

impl Assignment {
    /// Whether it is to train a model that is cut.
    pub(super) fn is_of_steps(&self) -> bool {
        self.task == Task::Train && self.card.cut.is_some()
    }

    pub(super) fn is(&self, round: u32, task: Task) -> bool {
        (self.round, self.task) == (round, task)
    }
}
