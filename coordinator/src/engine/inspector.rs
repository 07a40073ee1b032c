//! What is needed to open the update of one client.

use std::sync::Arc;

use selvedge_protocols::{
    Card, Part, Rejection, Update, filters::FilterDescription, sections::SectionHeader, update::SealedUpdate,
};

use super::GlobalModel;

/// All that is needed to open a client's update, apart from the engine, so that it can be done on any thread.
#[derive(Debug)]
pub struct Inspector {
    pub(super) filters: Vec<FilterDescription>,
    pub(super) model: Arc<GlobalModel>,
    pub(super) card: Card,
    pub(super) expected: Arc<[SectionHeader]>,
}

/// An update that is in order, and which part of the model it is of.
#[derive(Debug)]
pub struct Opened {
    /// The update.
    pub update: Update,
    /// The part that was trained.
    pub part: Arc<Part>,
}

impl Inspector {
    /// The sections that the update must have.
    pub fn expected(&self) -> &[SectionHeader] {
        &self.expected
    }

    /// Checks an update and undoes the filters.
    ///
    /// # Errors
    /// When it is not as assigned, or a number in it is not finite.
    pub fn open(&self, update: SealedUpdate) -> Result<Opened, Rejection> {
        let part = self.model.part(Some(&self.card));
        let part = part.map_err(|error| Rejection::WrongShape(error.to_string()))?;
        // Only filters look at what was broadcast.
        let global = if self.filters.is_empty() {
            self.model.whole().clone()
        } else {
            self.model.broadcast(&part)
        };
        let update = update.open(&self.expected, &self.filters, &global.weights)?;
        Ok(Opened { update, part })
    }
}
