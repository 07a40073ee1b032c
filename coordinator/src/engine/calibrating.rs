//! *calibrate*: clients take the statistics that batch norm is to evaluate the new model with.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use selvedge_models::{Layout, Moments};
use selvedge_protocols::{
    Card, ClientName, Rejection, Width, description::Weighting, message::Task, update::expected_statistics,
};

use super::{
    Action, GlobalModel, Opened, Outcome,
    cohort::Cohort,
    collection::Collection,
    hands::Hands,
    phase::{Moment, Next, Offer, Phase, Then},
    run::Run,
    training::Closed,
};

/// A round whose model is being calibrated: each client that has trained runs its examples through a specimen of its own
/// width.
pub(super) struct Calibrating {
    collection: Collection,
    /// What came of the training; its record is with the collection meanwhile.
    closed: Closed,
    weighting: Weighting,
    /// What was met at each width, and how the specimen is laid out.
    moments: BTreeMap<Width, (Layout, Moments)>,
    then: Then<(Closed, BTreeMap<Width, Vec<f32>>)>,
}

impl Calibrating {
    /// Asks the cohort, each client for a specimen of its width.
    pub(super) fn open(
        moment: &mut Moment<'_>,
        mut closed: Closed,
        cohort: Cohort<Opened>,
        cards: Vec<Card>,
        model: Arc<GlobalModel>,
        then: Then<(Closed, BTreeMap<Width, Vec<f32>>)>,
    ) -> Self {
        let description = &moment.run.description;
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
        collection.open(unplayable, &BTreeSet::new(), moment.actions);
        Self {
            collection,
            closed,
            weighting: description.weighting(),
            moments: BTreeMap::new(),
            then,
        }
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
    fn close(mut self) -> (Closed, BTreeMap<Width, Vec<f32>>) {
        let of_width =
            |(width, (layout, moments)): (&Width, &(Layout, Moments))| Some((*width, moments.statistics(layout)?));
        let statistics = self.moments.iter().filter_map(of_width).collect();
        self.closed.record = self.collection.record;
        (self.closed, statistics)
    }
}

impl Phase for Calibrating {
    fn offered(&mut self, _: &mut Moment<'_>, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        if offer.task == Task::Calibrate {
            return self.collection.offered(client, offer);
        }
        // An update that comes when the training is over.
        let record = &mut self.collection.record;
        let reason = self.closed.cohort.late(client, offer.round, record.round);
        record.turn_down(&reason);
        Err(reason)
    }

    fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        task: Task,
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        self.collection.received(client, round, task, update)
    }

    fn failed(&mut self, client: &ClientName, round: u32, task: Task, reason: &Rejection) {
        self.collection.failed(client, round, task, reason);
    }

    fn left(&mut self, moment: &mut Moment<'_>, client: &ClientName, for_good: bool) {
        self.collection.left(moment, client, for_good);
    }

    fn joined(&mut self, moment: &mut Moment<'_>, client: &ClientName) {
        moment.actions.extend(self.collection.rejoined(client));
    }

    fn due(&self, _: &Run) -> Option<Duration> {
        self.collection.cohort.next_deadline()
    }

    /// Folds the statistics whose turn it is, and asks for those within the window.
    fn advance(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        for (at, opened) in self.collection.take(moment.now, moment.run.grace()) {
            self.fold(at, &opened);
        }
        if !self.collection.ask_for(moment.run.window, moment.now, moment.actions) {
            return Next::Stay(self);
        }
        let then = self.then;
        then(self.close(), moment)
    }

    /// The model is there already: its round is recorded, though it is not evaluated.
    fn stop(self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        let (closed, _) = self.close();
        let record = closed.recorded(moment.now);
        moment.actions.push(Action::Record(Box::new(record)));
        Next::Finish(Outcome::Stopped)
    }
}
