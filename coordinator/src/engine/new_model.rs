//! What becomes of a run's model once a round's updates are in: it is moved, and there is a new one to be tried.

use selvedge_protocols::{Card, ClientName, Metrics, Width, aggregation::Aggregate};

use super::{run::Run, training::Closed};
use crate::Trial;

impl Run {
    /// What the coordinator evaluates, and which sub-model that is: the whole model, and a sub-model of each width in use.
    pub(super) fn trials(&self) -> Vec<(Trial, Option<Card>)> {
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

    /// Whether there are statistics to be taken before an evaluation.
    pub(super) fn is_calibrated(&self) -> bool {
        self.description.is_calibrated() && self.parts.layout().buffer_count() > 0
    }

    /// Moves the model, unless there is nothing to move it by or it would not be finite any more.
    pub(super) fn apply(&mut self, closed: &mut Closed) {
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

    fn move_by(&mut self, mut aggregate: Aggregate, closed: &mut Closed) {
        let description = &self.description;
        let mut occasion = description.occasion(self.round, None, self.parts.layout());
        occasion.cohort = closed.record.selected;
        let mut metrics = Metrics::default();
        let (algorithm, steps) = (&*description.algorithm, &description.server);
        let coverage = &closed.coverage;
        let precision = description.broadcast.precision;
        precision.carry_over(&mut aggregate.weights, &self.state.weights);
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
