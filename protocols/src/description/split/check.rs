//! Whether the values of `[split]` are in range and go with the rest of the run.

use selvedge_learning::aggregation::Mean;
use selvedge_models::{Cut, LayerDescription, ModelDescription, Pieces};
use selvedge_parts::Width;
use selvedge_splitting::{Equipment, StepEncoding, batches::BatchSizes};

use super::{Cuts, Labels, Split};
use crate::description::{
    Averaging, Description, Problem,
    check::{LONGEST, SHORTEST},
};

impl Split {
    /// All that is wrong with the values in a run of `description`; empty when nothing is.
    pub(in crate::description) fn problems(&self, description: &Description) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let key = key.into();
            problems.push(Problem { key, message });
        };
        self.check_values(&mut refuse);
        self.check_cuts(&description.model, &mut refuse);
        self.check_method(description, &mut refuse);
        self.check_run(description, &mut refuse);
        problems
    }

    /// Each value by itself.
    fn check_values(&self, refuse: &mut dyn FnMut(&str, String)) {
        if let Some((key, message)) = self.method.problem() {
            refuse(&format!("split.method.{key}"), message);
        }
        if let Some((key, message)) = self.devices.as_ref().and_then(Equipment::problem) {
            refuse(&format!("split.devices.{key}"), message);
        }
        let quorum = self.step_quorum;
        if !(quorum > 0.0 && quorum <= 1.0) {
            refuse("split.step_quorum", format!("{quorum} is not in (0, 1]"));
        }
        let seconds = self.step_seconds;
        if !(SHORTEST..=LONGEST).contains(&seconds) {
            let message = format!("{seconds} is not from {SHORTEST} to {LONGEST}");
            refuse("split.step_seconds", message);
        }
        match (self.labels, self.head) {
            (Labels::Sent, Some(_)) => refuse(
                "split.head",
                "clients have layers at the end only where labels stay at home: set `labels = \"u-shape\"`, or leave it out"
                    .into(),
            ),
            (Labels::UShape, Some(0)) => refuse("split.head", "0 is not at least 1".into()),
            _ => {}
        }
    }

    /// Whether the model can be cut as it is to be.
    fn check_cuts(&self, model: &ModelDescription, refuse: &mut dyn FnMut(&str, String)) {
        if let Cuts::Shares(shares) = &self.cut {
            let sum = shares.iter().fold(0.0, |sum, share| sum + share.share);
            if shares.iter().any(|share| share.share.is_nan() || share.share <= 0.0) || (sum - 1.0).abs() > 1e-6 {
                refuse(
                    "split.cut",
                    format!("the shares must be above 0 and sum to 1; they sum to {sum}"),
                );
            }
            if shares.len() > 100 {
                let message = format!("{} shares are given; 100 are the most", shares.len());
                refuse("split.cut", message);
            }
        }
        let fronts = self.fronts();
        if fronts.is_empty() {
            let message = "nobody's model is cut: give one of them `after`, or leave out [split]";
            refuse("split.cut", message.into());
        }
        for front in fronts {
            if let Err(message) = check_cut(model, self.cut_after(front)) {
                refuse("split.cut", message);
            }
        }
    }

    /// What the method asks of the other settings of `[split]`, of the model and of the training.
    fn check_method(&self, description: &Description, refuse: &mut dyn FnMut(&str, String)) {
        let method = &*self.method;
        if let Some(message) = method.contradiction() {
            refuse("split.method", message.into());
        }
        let has_several_cuts = self.fronts().len() > 1;
        if method.needs_one_cut() && has_several_cuts {
            let message = "this method compares clients' gradients: all models must be cut at the same place";
            refuse("split.cut", message.into());
        }
        if method.takes_turns() && (self.leaves_some_whole() || has_several_cuts) {
            let message = "a front that is handed on must be the same for all: give one number";
            refuse("split.cut", message.into());
        }
        if method.keeps_fronts() && self.leaves_some_whole() {
            let message = "with this method fronts are never averaged, so that nobody can train the whole model beside \
                           them: give all of them `after`, or take the method `splitfed-v1` or `splitfed-v2`";
            refuse("split.cut", message.into());
        }
        if self.front_alignment().is_some_and(|alignment| alignment.is_probed()) {
            if self.labels == Labels::UShape {
                let message = "the regulariser needs the labels on the server: set `labels = \"sent\"`";
                refuse("split.labels", message.into());
            }
            if [self.smashed, self.gradients] != [StepEncoding::F32; 2] {
                let message = "the regulariser takes differences of gradients, of which other encodings leave nothing: \
                               set both to `f32`";
                refuse("split.gradients", message.into());
            }
            if description.model.depends_on_the_run() {
                let message = "the regulariser takes differences of gradients, which dropout and batch norm change by \
                               themselves: leave both out of the model";
                refuse("split.method", message.into());
            }
        }
        let layers = &description.model.layers;
        let back = layers.get(self.fronts().first().map_or(0, |front| *front as usize)..);
        let mut back = back.unwrap_or_default().iter();
        if method.runs_again() && back.any(LayerDescription::depends_on_the_run) {
            let message = "this method runs the back on a batch a second time, where dropout would drop other values and \
                           batch norm meet other statistics: leave both out of the model behind the cut";
            refuse("split.method", message.into());
        }
        if self.batches == BatchSizes::Global {
            if method.takes_turns() || method.has_a_back_for_each() {
                let message = "there is no global batch with this method: it needs one back for all at once";
                refuse("split.batches", message.into());
            }
            if description.training.steps.is_some() {
                let message = "global batches go through all examples: give `training.epochs` instead of `steps`";
                refuse("split.batches", message.into());
            }
        }
    }

    /// What cannot be had in the rest of the run.
    fn check_run(&self, description: &Description, refuse: &mut dyn FnMut(&str, String)) {
        let method = &*self.method;
        if !description.algorithm.is_plain() {
            let message = "with [split] it can be `fedavg`, or what differs from it on the server only (`fedadam`, …): \
                           others change what clients do in their steps";
            refuse("algorithm.kind", message.into());
        }
        let rule = description.rule();
        if !rule.is_coordinate_wise() && !method.has_a_back_for_each() {
            let kind = rule.kind();
            let message = format!(
                "`{kind}` compares whole models, and here fronts and backs are averaged apart: take the \
                                   method `splitfed-v1`"
            );
            refuse("aggregation.kind", message);
        }
        if (method.keeps_fronts() || method.takes_turns()) && !description.filters.is_empty() {
            let message =
                "with this method fronts stay with the clients or are handed on: there are no updates to filter";
            refuse("filters", message.into());
        }
        if method.keeps_fronts() {
            let message = "with this method fronts are never averaged, and there is one back: there is nothing to weight or \
                           to compare, leave it out";
            if description.aggregation.weighting.is_some() {
                refuse("aggregation.weighting", message.into());
            }
            if !rule.is::<Mean>() {
                refuse("aggregation.kind", message.into());
            }
        }
        if method.keeps_fronts() && description.evaluation.training_examples > 0 {
            let message = "with this method there is no one model to evaluate on them: leave it out";
            refuse("evaluation.training_examples", message.into());
        }
        if description.evaluation.by_clients {
            let message = "with [split] clients do not have the whole model: the coordinator evaluates";
            refuse("evaluation.by_clients", message.into());
        }
        let Some(sub_models) = &description.sub_models else {
            return;
        };
        if !method.has_a_back_for_each() && sub_models.averaging == Averaging::Uniform {
            let message = "with [split] it must be `coverage`, unless the method is `splitfed-v1`";
            refuse("sub_models.averaging", message.into());
        }
        if !method.has_a_back_for_each() && description.widths() != [Width::WHOLE] {
            let message = "clients with sub-models need backs of their own: take the method `splitfed-v1`";
            refuse("split.method", message.into());
        }
        if sub_models.plan.draws_widths() || sub_models.masked_loss || sub_models.radius.is_some() {
            let message = "with [split], `masked_loss`, `radius` and the plan `ordered` cannot be used: they need the \
                           whole of a client's model in one place";
            refuse("sub_models", message.into());
        }
        if description.is_calibrated() {
            let message = "with [split] it must be `running`: clients have no whole model to calibrate";
            refuse("sub_models.batch_norm", message.into());
        }
    }
}

/// Whether the model can be cut like this.
fn check_cut(model: &ModelDescription, cut: Cut) -> Result<(), String> {
    let Cut { front, head } = cut;
    let layers = model.layers.len();
    if head > 0 && front as usize + head as usize >= layers {
        return Err(format!(
            "cut after {front} layers, with {head} at the end on the client, it leaves the server none of the model's \
             {layers} layers"
        ));
    }
    let pieces = Pieces::of(model, cut).map_err(|error| error.to_string())?;
    // A front that nothing can be learned in is no front to train, but works; a back is what this is for.
    let back = pieces.back.layout().map_err(|error| error.to_string())?;
    match back.parameter_count() {
        0 => Err(format!(
            "cut after {front} layers, with {head} at the end on the client, it leaves the server nothing to train"
        )),
        _ => Ok(()),
    }
}
