//! Whether the algorithm, the rule of aggregation, the server steps and the filters are in order and go together.

use selvedge_learning::{Shape, aggregation::Mean};
use selvedge_models::Entry;

use super::{Description, Problem, Weighting};

impl Description {
    /// All that is wrong with them; empty when nothing is.
    pub(super) fn problems_of_components(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, key: &str, message: String| {
            if !holds {
                let key = key.into();
                problems.push(Problem { key, message });
            }
        };
        let algorithm = &self.algorithm;
        if let Some((key, message)) = algorithm.problem(&self.training.optimiser) {
            require(false, &format!("algorithm.{key}"), message);
        }
        let rule = self.rule();
        if let Some((key, message)) = rule.problem(self.updates_at_a_time(), &self.training.optimiser) {
            require(false, &format!("aggregation.{key}"), message);
        }
        let is_named_once = algorithm.rule().is_none() || self.aggregation.rule.is::<Mean>();
        let (name, kind) = (algorithm.kind(), rule.kind());
        let message = format!("the algorithm `{name}` is a name for `{kind}`: leave one of them out");
        require(is_named_once, "aggregation.kind", message);
        let is_weighted = rule.is_weighted() || self.aggregation.weighting != Some(Weighting::Examples);
        let message = format!("with `{kind}` all updates count alike: leave it out");
        require(is_weighted, "aggregation.weighting", message);
        for (at, step) in self.server.iter().enumerate() {
            if let Some((key, message)) = step.problem() {
                require(false, &format!("server[{at}].{key}"), message);
            }
        }
        let beside: Vec<&str> = algorithm.update_vectors().iter().map(|(name, _)| *name).collect();
        let beside = beside.join(", ");
        for (at, filter) in self.filters.iter().enumerate() {
            let key = format!("filters[{at}]");
            if let Some((setting, message)) = filter.problem() {
                require(false, &format!("{key}.{setting}"), message);
            }
            let after = &self.filters[at + 1..];
            let message = "nothing can follow a filter that encodes: put it last";
            require(after.is_empty() || filter.encoding().is_none(), &key, message.into());
            let message = format!("it bounds the model's change only, but this algorithm sends `{beside}` beside it");
            require(beside.is_empty() || !filter.bounds(), &key, message);
            if let Some(longer) = after.iter().find(|filter| filter.lengthens().is_infinite()) {
                let kind = longer.kind();
                let message = format!("it bounds the change, but `{kind}` after it can send any: put it last");
                require(!filter.bounds(), &key, message);
            }
        }
        let trains_parts = self
            .sub_models
            .as_ref()
            .is_some_and(|sub_models| !sub_models.plan.trains_whole());
        let message = format!("clients of `{name}` have models of their own, and train the whole model: leave it out");
        require(!(trains_parts && algorithm.needs_whole_model()), "sub_models", message);
        problems.extend(self.problems_of_personal_layers());
        problems
    }

    /// Whether the run comes to one model: not where clients keep fronts or layers of their own.
    pub fn has_one_model(&self) -> bool {
        !self.keeps_fronts() && self.algorithm.personal_layers().is_empty()
    }

    /// What is wrong with personal layers in the rest of the run; empty when nothing is, or there are none.
    fn problems_of_personal_layers(&self) -> Vec<Problem> {
        let layers = self.algorithm.personal_layers();
        let (Some(_), Ok(layout)) = (layers.first(), self.model.layout()) else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let key = key.into();
            problems.push(Problem { key, message });
        };
        let has = |layer: &String| layout.parameters.iter().any(|tensor| tensor.is_of_layer(layer));
        if let Some(layer) = layers.iter().find(|layer| !has(layer)) {
            let message = format!("the model has no layer {layer:?} with parameters: see `selvedge model show`");
            refuse("algorithm.personal", message);
        }
        let mut vectors = self
            .algorithm
            .update_vectors()
            .iter()
            .chain(self.algorithm.broadcast_vectors());
        if let Some((name, _)) = vectors.find(|(_, shape)| !matches!(shape, Shape::Free(_))) {
            let message =
                format!("this algorithm sends `{name}` beside the model, which has a value for what stays too");
            refuse("algorithm.kind", message);
        }
        let stays = |tensor: &Entry| layers.iter().any(|layer| tensor.is_of_layer(layer));
        if layout.parameters.iter().all(stays) {
            refuse("algorithm.personal", "nothing is left to be learned together".into());
        }
        if self.evaluation.training_examples > 0 {
            let message = "the coordinator has no personal layer to evaluate: leave it out";
            refuse("evaluation.training_examples", message.into());
        }
        problems
    }
}
