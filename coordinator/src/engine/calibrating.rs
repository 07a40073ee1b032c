//! *calibrate*: clients take the statistics that batch norm is to evaluate the new model with.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use selvedge_models::{Layout, Moments};
use selvedge_protocols::{
    Card, ClientName, Description, Rejection, Width, description::Weighting, message::Task, update::expected_statistics,
};

use super::{Action, GlobalModel, Opened, cohort::Cohort, collection::Collection, hands::Hands, training::Closed};
use crate::RoundRecord;

/// A round whose model is being calibrated: each client that has trained runs its examples through a specimen of its own
/// width.
pub(super) struct Calibrating {
    pub(super) collection: Collection,
    /// What came of the training; its record is with the collection meanwhile.
    closed: Closed,
    weighting: Weighting,
    /// What was met at each width, and how the specimen is laid out.
    moments: BTreeMap<Width, (Layout, Moments)>,
}

impl Calibrating {
    /// Asks the cohort, each client for a specimen of its width.
    pub(super) fn open(
        mut closed: Closed,
        cohort: Cohort<Opened>,
        cards: Vec<Card>,
        description: &Arc<Description>,
        model: Arc<GlobalModel>,
        actions: &mut Vec<Action>,
    ) -> Self {
        let (hands, unplayable) = Hands::new(cards, description, &model, |part| {
            Ok(expected_statistics(&part.model.layout()?))
        });
        let mut collection = Collection {
            task: Task::Calibrate,
            cohort,
            hands,
            model,
            description: description.clone(),
            record: std::mem::take(&mut closed.record),
            gone: Vec::new(),
        };
        collection.open(unplayable, &BTreeSet::new(), actions);
        Self {
            collection,
            closed,
            weighting: description.weighting(),
            moments: BTreeMap::new(),
        }
    }

    /// Turns down an update that comes when the training is over.
    pub(super) fn late(&mut self, client: &ClientName, round: u32) -> Rejection {
        let record = &mut self.collection.record;
        let reason = self.closed.cohort.late(client, round, record.round);
        record.turn_down(&reason);
        reason
    }

    /// Folds the statistics whose turn it is, and asks for those within the window. Says whether all are settled.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration, window: usize, actions: &mut Vec<Action>) -> bool {
        for (at, opened) in self.collection.take(now, grace) {
            self.fold(at, &opened);
        }
        self.collection.ask_for(window, now, actions)
    }

    fn fold(&mut self, at: usize, opened: &Opened) {
        let Ok(layout) = opened.part.model.layout() else { return };
        let trained = &opened.update.trained;
        let weight = self.weighting.of(trained.examples);
        let entry = self.moments.entry(self.collection.hands.width(at));
        let (layout, moments) = entry.or_insert_with(|| (layout, Moments::default()));
        moments.add(layout, &trained.weights.buffers, weight);
    }

    /// What came of the training, and the statistics of each width that was calibrated.
    pub(super) fn close(mut self) -> (Closed, BTreeMap<Width, Vec<f32>>) {
        let of_width =
            |(width, (layout, moments)): (&Width, &(Layout, Moments))| Some((*width, moments.statistics(layout)?));
        let statistics = self.moments.iter().filter_map(of_width).collect();
        self.closed.record = self.collection.record;
        (self.closed, statistics)
    }

    /// The record of a round that is not completed.
    pub(super) fn stopped(self, now: Duration) -> RoundRecord {
        RoundRecord {
            seconds: now.saturating_sub(self.closed.started).as_secs_f64(),
            ..self.collection.record
        }
    }
}
