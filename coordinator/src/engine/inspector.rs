//! What is needed to open the update of one client.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_protocols::{
    Card, ClientName, Description, Metrics, Part, Rejection, Update, sections::SectionHeader, update::SealedUpdate,
};

use super::GlobalModel;

/// All that is needed to open a client's update, apart from the engine, so that it can be done on any thread.
#[derive(Debug)]
pub struct Inspector {
    pub(super) description: Arc<Description>,
    pub(super) client: ClientName,
    pub(super) round: u32,
    /// Whether filters were applied to it: to what was trained.
    pub(super) is_filtered: bool,
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
    /// What the client has reported, and what filters have measured as it was opened.
    pub metrics: BTreeMap<String, f64>,
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
        let description = &self.description;
        let filters = if self.is_filtered {
            &description.filters[..]
        } else {
            &[]
        };
        // Only filters look at what was broadcast.
        let global = match filters {
            [] => self.model.whole().clone(),
            _ => self.model.broadcast(&part),
        };
        let occasion = description.occasion(self.round, Some(&self.client), &part.layout);
        let mut metrics = Metrics::default();
        let mut reported = update.report.metrics.clone();
        let update = update.open(
            &self.expected,
            &*description.algorithm,
            filters,
            &global.weights,
            &occasion,
            &mut metrics,
        )?;
        reported.append(&mut metrics.own);
        Ok(Opened {
            update,
            part,
            metrics: reported,
        })
    }
}
