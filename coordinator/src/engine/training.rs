//! *train*: the cohort trains, and its updates are checked and folded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{
    Card, Description, Rejection, Width,
    aggregation::{Aggregate, Aggregator, Coverage},
    description::Averaging,
    message::Task,
    update::expected_sections,
};

use super::{Action, GlobalModel, Opened, cohort::Cohort, collection::Collection, hands::Hands, units::UnitCounts};
use crate::record::RoundRecord;

/// A round in which clients train.
pub(super) struct Training {
    started: Duration,
    pub(super) collection: Collection,
    description: Arc<Description>,
    aggregator: Box<dyn Aggregator>,
    coverage: Coverage,
    units: UnitCounts,
    loss: WeightedLoss,
    losses: BTreeMap<Width, WeightedLoss>,
}

#[derive(Clone, Copy, Default)]
struct WeightedLoss {
    sum: f64,
    examples: f64,
}

impl WeightedLoss {
    fn add(&mut self, loss: f64, examples: f64) {
        self.sum += loss * examples;
        self.examples += examples;
    }

    fn mean(self) -> Option<f64> {
        (self.examples > 0.0).then(|| self.sum / self.examples)
    }
}

impl Training {
    /// Asks the cohort to train, each client what it was dealt.
    pub(super) fn open(
        round: u32,
        cohort: Cohort<Opened>,
        cards: Vec<Card>,
        now: Duration,
        description: Arc<Description>,
        model: Arc<GlobalModel>,
        actions: &mut Vec<Action>,
    ) -> Self {
        let (hands, unplayable) = Hands::new(cards, &description, &model, |part| {
            let (algorithm, filters) = (&*description.algorithm, &description.filters);
            Ok(expected_sections(&part.coordinates, algorithm, filters))
        });
        let mut record = RoundRecord {
            round,
            selected: cohort.members.len(),
            ..RoundRecord::default()
        };
        for at in 0..cohort.members.len() {
            if let Some(width) = record.width(hands.width(at), &description) {
                width.selected += 1;
            }
        }
        let units = UnitCounts::none(model.all());
        let mut collection = Collection {
            task: Task::Train,
            cohort,
            hands,
            model,
            filters: description.filters.clone(),
            record,
        };
        collection.open(unplayable, actions);
        Self {
            started: now,
            collection,
            aggregator: description.algorithm.aggregator(),
            description,
            coverage: Coverage::default(),
            units,
            loss: WeightedLoss::default(),
            losses: BTreeMap::new(),
        }
    }

    /// Folds the updates whose turn it is, and asks for those within the window. Says whether all are settled.
    pub(super) fn advance(&mut self, now: Duration, grace: Duration, window: usize, actions: &mut Vec<Action>) -> bool {
        for (at, opened) in self.collection.take(now, grace) {
            self.fold(at, opened);
        }
        self.collection.ask_for(window, now, actions)
    }

    fn fold(&mut self, at: usize, opened: Opened) {
        let Opened { mut update, part } = opened;
        let examples = update.trained.examples as f64;
        let Collection { hands, model, .. } = &self.collection;
        let width = hands.width(at);
        if let Some(loss) = update.trained.loss {
            self.loss.add(loss, examples);
            self.losses.entry(width).or_default().add(loss, examples);
        }
        let weight = self.description.aggregation.weighting.of(update.trained.examples);
        let averaging = self
            .description
            .sub_models
            .as_ref()
            .map(|sub_models| sub_models.averaging);
        self.coverage.add(&part.coordinates);
        self.units.add(&part.coordinates.units);
        if averaging == Some(Averaging::Uniform) {
            // What was not trained counts as left as it was.
            let mut whole = model.whole().weights.clone();
            part.coordinates.merge(&update.trained.weights, &mut whole);
            update.trained.weights = whole;
            let mut vectors = Default::default();
            part.merge(std::mem::take(&mut update.vectors), &mut vectors);
            update.vectors = vectors;
            let all = &model.all().coordinates;
            self.aggregator.fold(update, all, weight);
        } else {
            self.aggregator.fold(update, &part.coordinates, weight);
        }
        let record = &mut self.collection.record;
        record.completed += 1;
        if let Some(width) = record.width(width, &self.description) {
            width.completed += 1;
        }
    }

    /// What the updates came to; `None`, with a note in the record, when they are too few to move the model.
    pub(super) fn close(self) -> Closed {
        let Collection {
            cohort,
            hands,
            model,
            mut record,
            ..
        } = self.collection;
        record.train_loss = self.loss.mean();
        for (width, loss) in self.losses {
            if let Some(width) = record.width(width, &self.description) {
                width.train_loss = loss.mean();
            }
        }
        // A client without examples has done what there was to do.
        let without_examples = record.failed.get(Rejection::NoExamples.code()).copied().unwrap_or(0);
        let answered = record.completed + without_examples;
        let quorum = self.description.quorum(record.selected);
        let aggregate = if answered < quorum {
            let selected = record.selected;
            record.remark(format!(
                "{answered} of {selected} clients have done their part, {quorum} are needed: the model stays as it was",
            ));
            None
        } else {
            self.aggregator.finish(&model.whole().weights).or_else(|| {
                record.remark("none of the clients that answered holds an example: the model stays as it was".into());
                None
            })
        };
        Closed {
            started: self.started,
            cohort,
            hands,
            aggregate,
            coverage: self.coverage,
            units: self.units,
            record,
        }
    }
}

/// A round in which all have trained who will.
pub(super) struct Closed {
    pub(super) started: Duration,
    pub(super) cohort: Cohort<Opened>,
    pub(super) hands: Hands,
    pub(super) aggregate: Option<Aggregate>,
    /// Which coordinates were trained.
    pub(super) coverage: Coverage,
    /// How often each unit was trained.
    pub(super) units: UnitCounts,
    pub(super) record: RoundRecord,
}
