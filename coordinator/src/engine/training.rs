//! *train*: the cohort trains, and its updates are checked and folded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_models::Weights;
use selvedge_protocols::{
    Card, ClientName, Description, Metrics, Rejection, Trained, Vectors, Width,
    aggregation::{AGGREGATION, Aggregate, Aggregator, Contribution, Coverage},
    description::Averaging,
    message::Task,
    split::{FromClient, leader::Leaders},
    update::expected_sections,
};

use super::{
    Action, Fronts, GlobalModel, Opened,
    cohort::Cohort,
    collection::Collection,
    hands::Hands,
    phase::{Moment, Next, Offer, Phase, Then},
    run::Run,
    splitting::{Shared, Splitting, TrainedPart},
    units::UnitCounts,
};
use crate::record::RoundRecord;

/// A round in which clients train.
pub(super) struct Training {
    started: Duration,
    collection: Collection,
    description: Arc<Description>,
    aggregator: Box<dyn Aggregator>,
    coverage: Coverage,
    units: UnitCounts,
    steps: Option<Splitting>,
    loss: WeightedLoss,
    losses: BTreeMap<Width, WeightedLoss>,
    then: Then<Closed>,
}

/// The mean of losses, weighted by examples.
#[derive(Clone, Copy, Default)]
pub(super) struct WeightedLoss {
    sum: f64,
    examples: f64,
}

impl WeightedLoss {
    pub(super) fn add(&mut self, loss: f64, examples: f64) {
        self.sum += loss * examples;
        self.examples += examples;
    }

    pub(super) fn mean(self) -> Option<f64> {
        (self.examples > 0.0).then(|| self.sum / self.examples)
    }
}

impl Training {
    /// Asks the cohort to train, each client what it was dealt. Those who have a front of their own have what they need
    /// already.
    pub(super) fn open(
        moment: &mut Moment<'_>,
        cohort: Cohort<Opened>,
        cards: Vec<Card>,
        model: Arc<GlobalModel>,
        then: Then<Closed>,
    ) -> Self {
        let run = &*moment.run;
        let (description, round) = (run.description.clone(), run.round);
        let (hands, unplayable) = Hands::new(cards, &description, &model, |part| {
            if part.pieces.is_some() && !description.fronts_travel(round) {
                return Ok(Vec::new());
            }
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
            description: description.clone(),
            record,
            gone: Vec::new(),
        };
        collection.open(unplayable, &run.has_front, moment.actions);
        let steps = match Splitting::open(&description, &collection, Leaders::clone(&run.leaders), moment.now) {
            Ok(steps) => steps,
            Err(error) => {
                // What a description is checked for works; if this does not, nobody can train.
                let names: Vec<ClientName> = collection.cohort.names().cloned().collect();
                for name in names {
                    collection.give_up(&name, &Rejection::ClientFailed(error.to_string()));
                }
                None
            }
        };
        Self {
            started: moment.now,
            collection,
            aggregator: description.rule().begin(),
            description,
            coverage: Coverage::default(),
            units,
            steps,
            loss: WeightedLoss::default(),
            losses: BTreeMap::new(),
            then,
        }
    }

    fn fold(&mut self, now: Duration, at: usize, opened: Opened, actions: &mut Vec<Action>) {
        let Opened {
            mut update,
            mut part,
            metrics,
        } = opened;
        let client = self.collection.cohort.members[at].name.clone();
        self.collection.record.note_of(&client, metrics);
        let weight = self.description.weighting().of(update.trained.examples);
        let mut is_folded = true;
        if let Some(splitting) = self.steps.as_mut().filter(|splitting| splitting.has(at)) {
            update.trained.loss = update.trained.loss.or(splitting.loss(at));
            // It cannot have made more than it was led through.
            let most = splitting.most_steps(at).unwrap_or(u64::from(u32::MAX));
            update.trained.steps = update.trained.steps.min(most);
            let weights = std::mem::take(&mut update.trained.weights);
            // One that was left out of every step has trained nothing: that is not averaged with what others have.
            let has_trained = update.trained.steps > 0;
            let weight = if has_trained { weight } else { 0.0 };
            let trained = TrainedPart {
                at,
                weight,
                weights,
                part: &part,
            };
            match splitting.take(now, trained, actions) {
                // Its update is that of the joined parts, as if the client had trained both.
                Some((weights, joined)) => {
                    update.trained.weights = weights;
                    part = joined;
                }
                None => is_folded = false,
            }
        }
        let examples = update.trained.examples as f64;
        let Collection { hands, model, .. } = &self.collection;
        let width = hands.width(at);
        if let Some(loss) = update.trained.loss {
            self.loss.add(loss, examples);
            self.losses.entry(width).or_default().add(loss, examples);
        }
        let averaging = self
            .description
            .sub_models
            .as_ref()
            .map(|sub_models| sub_models.averaging);
        self.units.add(&part.coordinates.units);
        if is_folded {
            self.coverage.add(&part.coordinates);
        }
        // What is not folded stays with the client, or counts with others.
        if is_folded && averaging == Some(Averaging::Uniform) {
            // What was not trained counts as left as it was.
            let mut whole = Weights::clone(&model.whole().weights);
            part.coordinates.merge(&update.trained.weights, &mut whole);
            update.trained.weights = whole;
            let mut vectors = Vectors::new();
            vectors.merge(std::mem::take(&mut update.vectors), &part.coordinates);
            update.vectors = vectors;
            part = model.all().clone();
        }
        if is_folded {
            self.aggregator.fold(Contribution {
                client: Some(&client),
                version: self.collection.record.round,
                part: &part.coordinates,
                weight,
                update,
            });
        }
        let record = &mut self.collection.record;
        record.completed += 1;
        if let Some(width) = record.width(width, &self.description) {
            width.completed += 1;
        }
    }

    /// What the updates came to; `None`, with a note in the record, when they are too few to move the model.
    fn close(mut self) -> Closed {
        let (mut fronts, mut classes, mut leaders) = (Fronts::new(), BTreeMap::new(), None);
        if let Some(splitting) = self.steps.take() {
            let ended = splitting.close();
            for Shared {
                weights,
                coordinates,
                weight,
            } in ended.shared
            {
                self.coverage.add(&coordinates);
                let trained = Trained {
                    weights,
                    examples: 0,
                    steps: 0,
                    loss: None,
                };
                self.aggregator.fold(Contribution {
                    client: None,
                    version: self.collection.record.round,
                    part: &coordinates,
                    weight,
                    update: trained.into(),
                });
            }
            let record = &mut self.collection.record;
            record.bytes_up += ended.bytes.0;
            record.bytes_down += ended.bytes.1;
            record.steps = Some(ended.record);
            (fronts, classes, leaders) = (ended.fronts, ended.classes, Some(ended.leaders));
        }
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
        let of = record.selected;
        let aggregate = combine(self.aggregator, &self.description, &model, &mut record, of);
        Closed {
            started: self.started,
            cohort,
            hands,
            aggregate,
            coverage: self.coverage,
            units: self.units,
            fronts,
            classes,
            leaders,
            record,
        }
    }
}

/// What the updates of a round came to, of which there could be `of`; `None`, with a note in the record, when they are too
/// few to move the model.
pub(super) fn combine(
    aggregator: Box<dyn Aggregator>,
    description: &Description,
    model: &GlobalModel,
    record: &mut RoundRecord,
    of: usize,
) -> Option<Aggregate> {
    // A client without examples has done what there was to do.
    let without_examples = record.failed.get(Rejection::NoExamples.code()).copied().unwrap_or(0);
    let answered = record.completed + without_examples;
    let quorum = description.quorum(of);
    if answered < quorum {
        record.remark(format!(
            "{answered} of {of} clients have done their part, {quorum} are needed: the model stays as it was",
        ));
        return None;
    }
    let mut occasion = description.occasion(record.round, None, model.layout());
    occasion.cohort = of;
    let mut metrics = Metrics::default();
    let context = &mut occasion.context(AGGREGATION, &mut metrics);
    let finished = aggregator.finish(&model.whole().weights, context);
    record.note(metrics);
    let aggregate = match finished {
        Ok(Some(aggregate)) => Ok(aggregate),
        Ok(None) => Err(match &record.steps {
            Some(steps) if steps.made == 0 => "no step was made".into(),
            Some(_) => "no client has made a step to its end".into(),
            None => "none of the clients that answered holds an example".into(),
        }),
        Err(few) => Err(few.to_string()),
    };
    aggregate
        .map_err(|reason: String| record.remark(format!("{reason}: the model stays as it was")))
        .ok()
}

impl Phase for Training {
    fn offered(&mut self, moment: &mut Moment<'_>, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        match offer.task {
            Task::Train => self.collection.offered(client, offer),
            Task::Calibrate | Task::Evaluate => Err(moment.run.wrong_round(offer.round)),
        }
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

    fn stepped(&mut self, moment: &mut Moment<'_>, client: &ClientName, message: FromClient, payload: &[u8]) {
        match &mut self.steps {
            Some(splitting) => splitting.said(moment.now, client, message, payload, moment.actions),
            None => self.collection.record.turn_down(&Rejection::NotSelected),
        }
    }

    fn misstepped(&mut self, moment: &mut Moment<'_>, client: &ClientName, reason: &Rejection) {
        match &mut self.steps {
            Some(splitting) => splitting.misstepped(moment.now, client, reason, moment.actions),
            None => self.collection.record.turn_down(reason),
        }
    }

    fn left(&mut self, moment: &mut Moment<'_>, client: &ClientName, for_good: bool) {
        if let Some(splitting) = &mut self.steps {
            splitting.left(moment.now, client, moment.actions);
        }
        self.collection.left(moment, client, for_good);
    }

    fn joined(&mut self, moment: &mut Moment<'_>, client: &ClientName) {
        moment.actions.extend(self.collection.rejoined(client));
    }

    fn due(&self, _: &Run) -> Option<Duration> {
        let of_steps = self.steps.as_ref().and_then(Splitting::next_deadline);
        let of_cohort = self.collection.cohort.next_deadline();
        [of_cohort, of_steps].into_iter().flatten().min()
    }

    /// Folds the updates whose turn it is, and asks for those within the window.
    fn advance(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        let Moment { now, ref run, .. } = *moment;
        let (grace, window) = (run.grace(), run.window);
        let actions = &mut *moment.actions;
        if let Some(splitting) = &mut self.steps {
            let members = &self.collection.cohort.members;
            let is_handing_in = |at: usize| members.get(at).is_some_and(|member| member.is_handing_in());
            // Whose turn is over has no part in the round either: the next one's answer need not wait for it.
            for client in splitting.advance(now, is_handing_in, actions) {
                self.collection.give_up(&client, &Rejection::Deadline);
            }
        }
        for (at, opened) in self.collection.take(now, grace) {
            self.fold(now, at, opened, actions);
        }
        // Of those who were given up nothing more is awaited in the steps either.
        for client in std::mem::take(&mut self.collection.gone) {
            if let Some(splitting) = &mut self.steps {
                splitting.give_up(now, &client, actions);
            }
        }
        if !self.collection.ask_for(window, now, actions) {
            return Next::Stay(self);
        }
        let then = self.then;
        then(self.close(), moment)
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
    /// Where clients keep their fronts, those that they have sent to be evaluated.
    pub(super) fronts: Fronts,
    /// How often each class was among the examples of those whose models are cut.
    pub(super) classes: BTreeMap<ClientName, Vec<u64>>,
    /// The directions of the fronts' and of the back's gradients.
    pub(super) leaders: Option<Leaders>,
    pub(super) record: RoundRecord,
}

impl Closed {
    /// What is written down of the round as it is.
    pub(super) fn recorded(self, now: Duration) -> RoundRecord {
        RoundRecord {
            seconds: now.saturating_sub(self.started).as_secs_f64(),
            ..self.record
        }
    }
}
