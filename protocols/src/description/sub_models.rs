//! `[sub_models]`: clients train parts of the model, as large as each can hold.

use std::collections::BTreeSet;

use selvedge_models::{Layout, Loss, ModelError};
use selvedge_parts::{
    Card, Division, Parts,
    plan::{Plan, Width},
    plans::Full,
};
use selvedge_words::{Choice, Purpose};
use serde::{Deserialize, Serialize};

use super::{Problem, Shares};
use crate::Description;

/// `[sub_models]`: clients train parts of the model, as large as each can hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubModels {
    /// Which units of each width group a client trains.
    pub plan: Choice<dyn Plan>,
    /// How much of the model clients can train. Default, for a partitioned plan, one block; for the full plan, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacities: Vec<Capacity>,
    /// Over whom a coordinate is averaged. Default `coverage`.
    #[serde(default)]
    pub averaging: Averaging,
    /// The Euclidean norm within which a client's parameters are kept after each step, above 0. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radius: Option<f64>,
    /// Whether the outputs of a thinned layer are divided by the share of its units that is kept, so that the whole model
    /// meets sums as large as its parts were trained on. Default false.
    #[serde(default)]
    pub scaler: bool,
    /// Whether a client's loss leaves out the classes of which it has no examples: their outputs count as 0, and are not
    /// trained. Default false.
    #[serde(default)]
    pub masked_loss: bool,
    /// Which statistics batch norm evaluates with. Default `running`.
    #[serde(default)]
    pub batch_norm: BatchNormStatistics,
}

/// How much of the model some of the clients can train.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The share of the units of each width group, above 0 and at most 1.
    pub width: Width,
    /// The share of the clients. Given for all capacities, and then they sum to 1, or for none: then each client
    /// reports, as it joins, what it has, and gets the largest width that it can train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// Which statistics batch norm evaluates with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchNormStatistics {
    /// Those that follow local training: they travel with the model, and are averaged as its parameters are.
    #[default]
    Running,
    /// None travel and none are kept: before a model is evaluated, clients that can hold it run their training examples
    /// through it, and its statistics are taken over all of these (Diao et al. 2021).
    Static,
}

/// Over whom a coordinate is averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Averaging {
    /// Those who trained it.
    #[default]
    Coverage,
    /// All of the round's clients: who did not train it counts as having left it as it was.
    Uniform,
}

/// The plan of a run without `[sub_models]`.
static WHOLE: Full = Full {};

impl Description {
    /// Which sub-models there are.
    pub fn plan(&self) -> &dyn Plan {
        match &self.sub_models {
            Some(sub_models) => &*sub_models.plan,
            None => &WHOLE,
        }
    }

    /// The parts of the model: what the cards of its plan stand for.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn parts(&self) -> Result<Parts, ModelError> {
        let sub_models = self.sub_models.as_ref();
        let division = Division {
            plan: sub_models.map_or_else(|| Choice::of(Full {}), |sub_models| sub_models.plan.clone()),
            widths: self.widths(),
            scaler: sub_models.is_some_and(|sub_models| sub_models.scaler),
            statistics_travel: !self.is_calibrated(),
            personal_layers: self.algorithm.personal_layers().to_vec(),
            seed: self.seed,
        };
        Parts::of(self.model.clone(), division)
    }

    /// The widths at which clients train, largest first.
    pub fn widths(&self) -> Vec<Width> {
        let sub_models = self.sub_models.as_ref();
        let mut widths: Vec<_> = match sub_models.map_or(&[][..], |sub_models| &sub_models.capacities) {
            [] => vec![
                self.plan()
                    .blocks()
                    .map_or(Width::WHOLE, |blocks| Width(1.0 / f64::from(blocks))),
            ],
            capacities => capacities.iter().map(|capacity| capacity.width).collect(),
        };
        widths.sort_unstable_by(|one, other| other.cmp(one));
        widths.dedup();
        widths
    }

    /// Whether batch norm's statistics are taken before each evaluation, and do not travel with the model.
    pub fn is_calibrated(&self) -> bool {
        let statistics = self.sub_models.as_ref().map(|sub_models| sub_models.batch_norm);
        statistics == Some(BatchNormStatistics::Static)
    }

    /// Whether clients report what they have, and get the width that fits.
    pub fn capacities_are_reported(&self) -> bool {
        let capacities = self.sub_models.iter().flat_map(|sub_models| &sub_models.capacities);
        capacities.into_iter().any(|capacity| capacity.share.is_none())
    }

    /// The largest width that each client can train, where the description says so.
    pub fn capacities(&self) -> Shares<Width> {
        let given = self
            .sub_models
            .as_ref()
            .map_or(&[][..], |sub_models| &sub_models.capacities);
        let shares: Vec<_> = given
            .iter()
            .filter_map(|capacity| Some((capacity.width, capacity.share?)))
            .collect();
        if shares.len() < 2 {
            let only = shares.first().map_or_else(|| self.widths()[0], |(width, _)| *width);
            return Shares::Alike(only);
        }
        Shares::deal(self, shares, Purpose::Capacities)
    }
}

/// Widths that are nearer than this are one.
const SAME_WIDTH: f64 = 1e-6;

/// The most capacities.
const MOST_CAPACITIES: usize = 100;

impl SubModels {
    /// All that is wrong with the values in a run of `description`; empty when nothing is.
    pub(super) fn problems(&self, description: &Description) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let key = format!("sub_models.{key}");
            problems.push(Problem { key, message });
        };
        if let Some((key, message)) = self.plan.problem() {
            refuse(&format!("plan.{key}"), message);
        }
        let plan = &*self.plan;
        let is_full = plan.trains_whole();
        if is_full && self.capacities.iter().any(|capacity| capacity.width != Width::WHOLE) {
            refuse(
                "capacities",
                "with the plan `full` everybody trains the whole model: leave them out".into(),
            );
        }
        if !is_full && plan.blocks().is_none() && self.capacities.is_empty() {
            let message = "say how much of the model clients can train, such as [{ width = 0.25, share = 1.0 }]";
            refuse("capacities", message.into());
        }
        if let Some(message) = self.wrong_shares() {
            refuse("capacities", message);
        }
        for (at, Capacity { width, .. }) in self.capacities.iter().enumerate() {
            let blocks = plan.blocks().map(f64::from);
            let whole = |blocks: f64| ((width.0 * blocks).round() - width.0 * blocks).abs() < 1e-6;
            if !width.is_possible() {
                refuse(
                    &format!("capacities[{at}].width"),
                    format!("{} is not above 0 and at most 1", width.0),
                );
            } else if let Some(blocks) = blocks.filter(|blocks| !(whole(*blocks) && width.0 * blocks > 0.5)) {
                let message = format!("{} of {blocks} blocks is not a whole number of them", width.0);
                refuse(&format!("capacities[{at}].width"), message);
            }
        }
        if let Some(radius) = self.radius.filter(|radius| !(*radius > 0.0 && radius.is_finite())) {
            refuse("radius", format!("{radius} is not a number above 0"));
        }
        if self.masked_loss && description.training.loss != Loss::CrossEntropy {
            refuse(
                "masked_loss",
                "only the loss `cross-entropy` has classes to leave out".into(),
            );
        }
        let keeps = description.algorithm.keeps() || description.filters.iter().any(|filter| filter.keeps());
        if plan.ranks_units() && keeps {
            let message = "clients of this algorithm (or a filter of theirs) keep state for each coordinate, and with the \
                           plan `magnitude` only the server knows which coordinates they have";
            refuse("plan", message.into());
        }
        let rule = description.rule();
        let averages_whole = self.averaging == Averaging::Uniform || description.widths() == [Width::WHOLE];
        if !rule.is_coordinate_wise() && !averages_whole {
            let kind = rule.kind();
            let message = format!(
                "`{kind}` compares whole models, and here clients train different parts: leave out one \
                                   of them"
            );
            refuse("plan", message);
        }
        if problems.is_empty()
            && !is_full
            && let Ok(layout) = description.model.layout()
        {
            problems.extend(self.misfit(description, &layout).map(|message| Problem {
                key: "sub_models".into(),
                message,
            }));
        }
        problems
    }

    /// What is wrong with the capacities' shares, if anything.
    fn wrong_shares(&self) -> Option<String> {
        let shares: Vec<f64> = self.capacities.iter().filter_map(|capacity| capacity.share).collect();
        let mut widths: Vec<f64> = self.capacities.iter().map(|capacity| capacity.width.0).collect();
        widths.sort_unstable_by(f64::total_cmp);
        let sum: f64 = shares.iter().sum();
        if self.capacities.len() > MOST_CAPACITIES {
            Some(format!(
                "{} are given; {MOST_CAPACITIES} are the most",
                self.capacities.len()
            ))
        } else if widths.windows(2).any(|pair| pair[1] - pair[0] < SAME_WIDTH) {
            Some("a width is given twice".into())
        } else if shares.is_empty() {
            None
        } else if shares.len() < self.capacities.len() {
            Some("give a `share` for each, or for none: then clients report what they have".into())
        } else if let Some(share) = shares.iter().find(|share| share.is_nan() || **share <= 0.0) {
            Some(format!("the share {share} is not above 0"))
        } else if (sum - 1.0).abs() > 1e-6 {
            Some(format!("their shares sum to {sum}, not to 1"))
        } else {
            None
        }
    }

    /// What the model has against being divided like this, if anything.
    fn misfit(&self, description: &Description, layout: &Layout) -> Option<String> {
        if layout.groups.is_empty() {
            let message = "the model has no width group: it keeps its inputs and its outputs, and has nothing between \
                           them that could be thinned";
            return Some(message.into());
        }
        let groups: Vec<usize> = layout.groups.iter().map(|group| group.units).collect();
        if let Some(blocks) = self.plan.blocks() {
            let small = layout.groups.iter().find(|group| group.units < blocks as usize);
            if let Some(group) = small {
                let (place, units) = (&group.place, group.units);
                return Some(format!(
                    "layer {place} has {units} units, too few for plan.blocks = {blocks}: a sub-model would have none of \
                     them"
                ));
            }
        }
        for group in layout.groups.iter().filter(|group| group.are_heads) {
            let widths = match self.plan.blocks() {
                Some(blocks) => vec![Width(1.0 / f64::from(blocks))],
                None => description.widths(),
            };
            let heads = |width: &Width| width.0 * group.units as f64;
            let uneven = |width: &&Width| (heads(width) - heads(width).round()).abs() > 1e-6;
            if let Some(width) = widths.iter().find(uneven) {
                let (place, heads) = (&group.place, group.units);
                return Some(format!(
                    "layer {place} (attention) has {heads} heads, and {width} of them is not a whole number"
                ));
            }
        }
        let mut tried = BTreeSet::new();
        let widths = description.widths();
        // Of blocks, every width has the same.
        let widths = if self.plan.blocks().is_some() {
            &widths[..1]
        } else {
            &widths[..]
        };
        for width in widths.iter().copied() {
            for card in self.kinds(width) {
                let kept: Vec<usize> = self.plan.units(&card, &groups).iter().map(Vec::len).collect();
                if !tried.insert(kept.clone()) {
                    continue;
                }
                if let Err(error) = description.model.thinned(&kept, self.scaler) {
                    return Some(match self.plan.blocks() {
                        Some(blocks) => format!("with one of {blocks} blocks: {error}"),
                        None => format!("at width {width}: {error}"),
                    });
                }
            }
        }
        None
    }

    /// Cards of this width among which are all numbers of units that a sub-model can have.
    fn kinds(&self, width: Width) -> Vec<Card> {
        let specimen = self.plan.specimen(0, 1, width);
        let Some(blocks) = self.plan.blocks() else {
            return vec![specimen];
        };
        // Where each block alone is in order, several are: a norm's groups divide their sum too.
        let card = |block| Card {
            blocks: vec![block],
            ..specimen.clone()
        };
        (0..blocks).map(card).collect()
    }
}
