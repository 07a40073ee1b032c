//! What the engine does once a round's updates are in: it moves the model, and has the new one tried.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{Broadcast, Card, ClientName, Metrics, Rejection, Width, aggregation::Aggregate};

use super::{
    Action, Engine, Fronts, GlobalModel, Phase, calibrating::Calibrating, cohort::Cohort, evaluating::Evaluating,
    training::Closed,
};
use crate::Trial;

impl Engine {
    /// A sub-model that stands for all of its width.
    fn specimen(&self, width: Width) -> Card {
        self.description
            .plan()
            .specimen(self.description.seed.0, self.round, width)
    }

    /// What the coordinator evaluates, and which sub-model that is: the whole model, and a sub-model of each width in use.
    fn trials(&self) -> Vec<(Trial, Option<Card>)> {
        let description = &self.description;
        // Without the personal layers, which only clients have, there is no model to try.
        if self.parts.whole().personal.is_some() {
            return Vec::new();
        }
        if description.keeps_fronts() {
            let stitched = |client: &ClientName| (Trial::Stitched(client.clone()), None);
            return self.fronts.keys().map(stitched).collect();
        }
        let mut trials = vec![(Trial::Whole, None)];
        if description.evaluation.training_examples > 0 {
            trials.push((Trial::OnTraining, None));
        }
        if description.sub_models.is_some() {
            let sub_model = |width| (Trial::SubModel(width), Some(self.specimen(width)));
            // At full width that is the whole model.
            let widths = description.widths().into_iter().filter(|width| *width != Width::WHOLE);
            trials.extend(widths.map(sub_model));
        }
        trials
    }

    /// Moves the model by what the updates came to, and goes on to what is to be done with the new one.
    pub(super) fn applied(&mut self, now: Duration, mut closed: Closed, actions: &mut Vec<Action>) -> Phase {
        self.apply(&mut closed);
        let round = self.round;
        let fronts = std::mem::take(&mut closed.fronts);
        self.fronts = if closed.record.applied { fronts } else { Fronts::new() };
        if let (true, Some(leaders)) = (closed.record.applied, closed.leaders.take()) {
            self.leaders = leaders;
            let keeps = self.description.keeps_fronts();
            self.has_front.extend(closed.cohort.taken().filter(|_| keeps).cloned());
        }
        // Only now is it known whether the updates count: what clients keep must not run ahead of the model.
        actions.extend(closed.cohort.taken().map(|client| Action::Answer {
            client: client.clone(),
            round,
            verdict: match closed.record.applied {
                true => Ok(()),
                false => Err(Rejection::NotApplied),
            },
        }));
        let description = &self.description;
        if description.is_evaluated(round) && self.is_calibrated() {
            return Phase::Calibrating(Box::new(self.calibrate(now, closed, actions)));
        }
        Phase::Evaluating(Box::new(self.evaluate(now, closed, BTreeMap::new(), actions)))
    }

    /// Has those who have trained calibrate a specimen of their width.
    fn calibrate(&self, now: Duration, closed: Closed, actions: &mut Vec<Action>) -> Calibrating {
        let taken = closed.cohort.taken().filter(|name| self.roster.contains(name));
        let names: Vec<ClientName> = taken.cloned().collect();
        let positions = names.iter().filter_map(|name| closed.cohort.position(name));
        let cards = positions.map(|at| self.specimen(closed.hands.width(at))).collect();
        let cohort = Cohort::new(names, now, self.allowed());
        let model = Arc::new(self.new_model());
        Calibrating::open(closed, cohort, cards, &self.description, model, actions)
    }

    /// Has the new model evaluated by those who are there.
    pub(super) fn evaluate(
        &mut self,
        now: Duration,
        mut closed: Closed,
        statistics: BTreeMap<Width, Vec<f32>>,
        actions: &mut Vec<Action>,
    ) -> Evaluating {
        let description = &self.description;
        let is_due = description.is_evaluated(self.round);
        let names = match is_due && description.evaluation.by_clients {
            true => closed
                .cohort
                .names()
                .filter(|name| self.roster.contains(name))
                .cloned()
                .collect(),
            false => Vec::new(),
        };
        let cohort = Cohort::new(names, now, self.allowed());
        let mut trials = if is_due { self.trials() } else { Vec::new() };
        if self.is_calibrated() {
            trials.retain(|(trial, _)| statistics.contains_key(&trial.width()));
            if is_due && !statistics.contains_key(&Width::WHOLE) {
                let note =
                    "no client that holds the whole model has taken its batch norms' statistics: it is not evaluated";
                closed.record.remark(note.into());
            }
            if let (true, Some(whole)) = (closed.record.applied, statistics.get(&Width::WHOLE)) {
                Arc::make_mut(&mut self.state.weights).buffers.clone_from(whole);
            }
        }
        let model = self.new_model().calibrated(statistics).with_fronts(self.fronts.clone());
        let model = Arc::new(model);
        Evaluating::open(closed, cohort, trials, model, actions)
    }

    /// The model as it is now, to be evaluated.
    fn new_model(&self) -> GlobalModel {
        self.model(Broadcast::bare(self.state.weights.clone()))
    }

    /// Whether there are statistics to be taken before an evaluation.
    fn is_calibrated(&self) -> bool {
        self.description.is_calibrated() && self.parts.layout().buffer_count() > 0
    }

    /// Moves the model, unless there is nothing to move it by or it would not be finite any more.
    fn apply(&mut self, closed: &mut Closed) {
        if let Some(aggregate) = closed.aggregate.take() {
            self.move_by(aggregate, closed);
        }
        let trained = closed
            .cohort
            .members
            .iter()
            .map(|member| closed.record.applied && member.is_taken());
        self.dealer.settle(&trained.collect::<Vec<_>>());
        if closed.record.applied {
            self.units.add_all(&closed.units);
        }
    }

    fn move_by(&mut self, aggregate: Aggregate, closed: &mut Closed) {
        let description = &self.description;
        let mut occasion = description.occasion(self.round, None, self.parts.layout());
        occasion.cohort = closed.record.selected;
        let mut metrics = Metrics::default();
        let (algorithm, steps) = (&*description.algorithm, &description.server);
        let coverage = &closed.coverage;
        let moved = self
            .state
            .moved(algorithm, steps, aggregate, coverage, &occasion, &mut metrics);
        closed.record.note(metrics);
        closed.record.applied = moved.is_finite();
        if closed.record.applied {
            self.state = moved;
        } else {
            let note = "the model would not have been finite any more: it stays as it was";
            closed.record.remark(note.into());
        }
    }
}
