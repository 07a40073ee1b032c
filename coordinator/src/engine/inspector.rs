//! What is needed to open the updates of a round.

use std::sync::Arc;

use selvedge_protocols::{Broadcast, Description, Rejection, Update, sections::SectionHeader, update::SealedUpdate};

/// All that is needed to open the updates of a round, apart from the engine, so that it can be done on any thread.
#[derive(Debug)]
pub struct Inspector {
    pub(super) description: Arc<Description>,
    pub(super) expected: Arc<[SectionHeader]>,
    pub(super) broadcast: Arc<Broadcast>,
}

impl Inspector {
    /// The sections that an update must have.
    pub fn expected(&self) -> &[SectionHeader] {
        &self.expected
    }

    /// Checks an update and undoes the filters.
    ///
    /// # Errors
    /// When it is not as assigned, or a number in it is not finite.
    pub fn open(&self, update: SealedUpdate) -> Result<Update, Rejection> {
        update.open(&self.expected, &self.description.filters, &self.broadcast.weights)
    }
}
