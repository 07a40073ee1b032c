//! `[split]`: clients train the front of the model, the coordinator the back.

use std::collections::BTreeSet;

use selvedge_models::{LayerDescription, ModelDescription, ModelError};
use serde::{Deserialize, Serialize};

use super::{Averaging, Description, Problem, Shares};
use crate::{
    Purpose,
    algorithms::AlgorithmDescription,
    plan::Width,
    split::{Alignment, Cut, Devices, Pieces, SplitMethodDescription, StepEncoding, StepTime, batches::BatchSizes},
};

/// `[split]`: clients train the front of the model, the coordinator the back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Who trains at a time, with which back, and what becomes of the fronts.
    pub method: SplitMethodDescription,
    /// After how many layers the model is cut: for all clients one number, or a list with the shares of the clients,
    /// `[{ after = 3, share = 0.5 }, { share = 0.5 }]`. Those without `after` train the whole model.
    pub cut: Cuts,
    /// Where the labels are: `sent` to the coordinator, or in a `u-shape` at home, with the last layers. Default `sent`.
    #[serde(default)]
    pub labels: Labels,
    /// In a `u-shape`, how many layers at the end are the client's, at least 1. Default 1.
    #[serde(default = "default_head")]
    pub head: u32,
    /// How smashed data travel. Default `f32`.
    #[serde(default)]
    pub smashed: StepEncoding,
    /// How cut gradients travel. Default `f32`.
    #[serde(default)]
    pub gradients: StepEncoding,
    /// What clients, server and links can do, from which the time of a step is predicted. Default: nothing is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// Who says how many examples a client contributes to a step. Default `local`.
    #[serde(default)]
    pub batches: BatchSizes,
    /// The share of a step's clients that it needs when its time is over, in (0, 1]; with fewer nothing comes of it.
    /// Default 0.5.
    #[serde(default = "default_step_quorum")]
    pub step_quorum: f64,
    /// Seconds after which a step goes on without those who have not been heard, 0.001 to ten years. Default 30.
    #[serde(default = "default_step_seconds")]
    pub step_seconds: f64,
}

/// After how many layers the model is cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a number of layers, or a list of { after = LAYERS, share = SHARE }"
)]
pub enum Cuts {
    /// The same for all clients.
    Alike(u32),
    /// For each share of the clients.
    Shares(Vec<CutShare>),
}

/// Where the models of some of the clients are cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutShare {
    /// After how many layers; none where they train the whole model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// The share of the clients, above 0; all shares sum to 1.
    pub share: f64,
}

/// Where the labels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Labels {
    /// With the coordinator: they are sent with the smashed data.
    #[default]
    Sent,
    /// With the client, which has the last layers too: the model has the shape of a U.
    #[serde(rename = "u-shape")]
    UShape,
}

fn default_head() -> u32 {
    1
}

fn default_step_quorum() -> f64 {
    0.5
}

fn default_step_seconds() -> f64 {
    30.0
}

impl Split {
    /// How many layers at the end are the client's.
    pub fn head(&self) -> u32 {
        match self.labels {
            Labels::Sent => 0,
            Labels::UShape => self.head,
        }
    }

    /// After how many layers models are cut, each once.
    pub fn fronts(&self) -> BTreeSet<u32> {
        match &self.cut {
            Cuts::Alike(front) => BTreeSet::from([*front]),
            Cuts::Shares(shares) => shares.iter().filter_map(|share| share.after).collect(),
        }
    }

    /// Whether some of the clients train the whole model.
    fn leaves_some_whole(&self) -> bool {
        matches!(&self.cut, Cuts::Shares(shares) if shares.iter().any(|share| share.after.is_none()))
    }

    /// All that is wrong with the values in a run of `description`; empty when nothing is.
    pub(super) fn problems(&self, description: &Description) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let key = format!("split.{key}");
            problems.push(Problem { key, message });
        };
        let method = &*self.method;
        if let Some((key, message)) = method.problem() {
            refuse(&format!("method.{key}"), message);
        }
        if let Cuts::Shares(shares) = &self.cut {
            let sum: f64 = shares.iter().map(|share| share.share).sum();
            if shares.iter().any(|share| share.share.is_nan() || share.share <= 0.0) || (sum - 1.0).abs() > 1e-6 {
                refuse(
                    "cut",
                    format!("the shares must be above 0 and sum to 1; they sum to {sum}"),
                );
            }
            if shares.len() > 100 {
                refuse("cut", format!("{} shares are given; 100 are the most", shares.len()));
            }
        }
        let fronts = self.fronts();
        if fronts.is_empty() {
            refuse(
                "cut",
                "nobody's model is cut: give one of them `after`, or leave out [split]".into(),
            );
        }
        if self.labels == Labels::UShape && self.head == 0 {
            refuse("head", "0 is not at least 1".into());
        } else {
            for front in &fronts {
                let cut = Cut {
                    front: *front,
                    head: self.head(),
                };
                if let Err(message) = check_cut(&description.model, cut) {
                    refuse("cut", message);
                }
            }
        }
        if let Some((key, message)) = self.devices.as_ref().and_then(Devices::problem) {
            refuse(&format!("devices.{key}"), message);
        }
        let quorum = self.step_quorum;
        if !(quorum > 0.0 && quorum <= 1.0) {
            refuse("step_quorum", format!("{quorum} is not in (0, 1]"));
        }
        let seconds = self.step_seconds;
        if !(super::check::SHORTEST..=super::check::LONGEST).contains(&seconds) {
            let (shortest, longest) = (super::check::SHORTEST, super::check::LONGEST);
            refuse("step_seconds", format!("{seconds} is not from {shortest} to {longest}"));
        }
        if method.needs_one_cut() && fronts.len() > 1 {
            refuse(
                "cut",
                "this method compares clients' gradients: all models must be cut at the same place".into(),
            );
        }
        if method.keeps_fronts() && self.leaves_some_whole() {
            let message = "with this method fronts are never averaged, so that nobody can train the whole model beside \
                           them: give all of them `after`, or take the method `splitfed-v1` or `splitfed-v2`";
            refuse("cut", message.into());
        }
        if (method.keeps_fronts() || method.takes_turns()) && !description.filters.is_empty() {
            problems.push(Problem {
                key: "filters".into(),
                message:
                    "with this method fronts stay with the clients or are handed on: there are no updates to filter"
                        .into(),
            });
        }
        if method.keeps_fronts() && description.evaluation.training_examples > 0 {
            problems.push(Problem {
                key: "evaluation.training_examples".into(),
                message: "with this method there is no one model to evaluate on them: leave it out".into(),
            });
        }
        let mut refuse = |key: &str, message: String| {
            let key = format!("split.{key}");
            problems.push(Problem { key, message });
        };
        let is_probed = method.alignment().is_some_and(Alignment::is_probed);
        if is_probed && self.labels == Labels::UShape {
            refuse(
                "labels",
                "the regulariser needs the labels on the server: set `labels = \"sent\"`".into(),
            );
        }
        let is_exact = [self.smashed, self.gradients] == [StepEncoding::F32; 2];
        if is_probed && !is_exact {
            let message = "the regulariser takes differences of gradients, of which other encodings leave nothing: set both to `f32`";
            refuse("gradients", message.into());
        }
        if method.runs_again() && has_dropout(&description.model.layers) {
            let message = "this method runs the back on a batch a second time, where dropout would drop other values: leave \
                           dropout out of the model";
            refuse("method", message.into());
        }
        if method.takes_turns() && (self.leaves_some_whole() || fronts.len() > 1) {
            refuse(
                "cut",
                "a front that is handed on must be the same for all: give one number".into(),
            );
        }
        if self.batches == BatchSizes::Global && (method.takes_turns() || method.has_a_back_for_each()) {
            refuse(
                "batches",
                "there is no global batch with this method: it needs one back for all at once".into(),
            );
        }
        if self.batches == BatchSizes::Global && description.training.steps.is_some() {
            refuse(
                "batches",
                "global batches go through all examples: give `training.epochs` instead of `steps`".into(),
            );
        }
        let algorithm = &description.algorithm;
        if !matches!(
            algorithm,
            AlgorithmDescription::FedAvg(_) | AlgorithmDescription::FedAdam(_)
        ) {
            let message = "with [split] it can be `fedavg` or `fedadam`: others change what clients do in their steps";
            problems.push(Problem {
                key: "algorithm.kind".into(),
                message: message.into(),
            });
        }
        let mut refuse = |key: &str, message: &str| {
            problems.push(Problem {
                key: key.into(),
                message: message.into(),
            });
        };
        if description.evaluation.by_clients {
            refuse(
                "evaluation.by_clients",
                "with [split] clients do not have the whole model: the coordinator evaluates",
            );
        }
        if let Some(sub_models) = &description.sub_models {
            if !method.has_a_back_for_each() && sub_models.averaging == Averaging::Uniform {
                let message = "with [split] it must be `coverage`, unless the method is `splitfed-v1`";
                refuse("sub_models.averaging", message);
            }
            if !method.has_a_back_for_each() && description.widths() != [Width::WHOLE] {
                let message = "clients with sub-models need backs of their own: take the method `splitfed-v1`";
                refuse("split.method", message);
            }
            if sub_models.plan.draws_widths() || sub_models.masked_loss || sub_models.radius.is_some() {
                let message = "with [split], `masked_loss`, `radius` and the plan `ordered` cannot be used: they need the \
                               whole of a client's model in one place";
                refuse("sub_models", message);
            }
            if description.is_calibrated() {
                refuse(
                    "sub_models.batch_norm",
                    "with [split] it must be `running`: clients have no whole model to calibrate",
                );
            }
        }
        problems
    }
}

/// Whether there is dropout among the layers.
fn has_dropout(layers: &[LayerDescription]) -> bool {
    layers.iter().any(|layer| match layer {
        LayerDescription::Dropout(dropout) => dropout.rate > 0.0,
        LayerDescription::Residual(residual) => has_dropout(&residual.layers) || has_dropout(&residual.shortcut),
        _ => false,
    })
}

/// Whether the model can be cut like this.
fn check_cut(model: &ModelDescription, cut: Cut) -> Result<(), String> {
    let pieces = Pieces::of(model, cut).map_err(|error| error.to_string())?;
    // A front that nothing can be learned in is no front to train, but works; a back is what this is for.
    let back = pieces.back.layout().map_err(|error| error.to_string())?;
    match back.parameter_count() {
        0 => Err(format!(
            "cut after {} layers, with {} at the end on the client, it leaves the server nothing to train",
            cut.front, cut.head
        )),
        _ => Ok(()),
    }
}

impl Description {
    /// Whether clients keep their fronts from round to round.
    pub fn keeps_fronts(&self) -> bool {
        self.split.as_ref().is_some_and(|split| split.method.keeps_fronts())
    }

    /// Whether clients with a front send it when they have trained: where fronts are kept, only to be evaluated.
    pub fn fronts_travel(&self, round: u32) -> bool {
        !self.keeps_fronts() || self.is_evaluated(round)
    }

    /// The predicted seconds of a step of `clients` clients, where the description says what they can do: of several cuts
    /// that of the slowest.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn predicted_step(&self, clients: usize) -> Result<Option<f64>, ModelError> {
        let Some((split, devices)) = self.split.as_ref().and_then(|split| Some((split, split.devices?))) else {
            return Ok(None);
        };
        let batch = self.training.batch_size;
        let time = StepTime {
            devices,
            batch,
            clients,
            smashed: split.smashed,
            gradients: split.gradients,
        };
        let fronts = split.fronts();
        let cuts = self.model.cuts(batch as u64)?;
        let used = cuts.iter().filter(|cut| fronts.contains(&(cut.layers as u32)));
        Ok(used.map(|cut| time.seconds(cut)).reduce(f64::max))
    }

    /// The most bytes of a payload in the steps of this run, either way.
    pub fn largest_step(&self) -> u64 {
        let Some(split) = &self.split else { return 0 };
        let cohort = match split.batches {
            BatchSizes::Local => 1,
            BatchSizes::Global => self.cohort_size(),
        };
        let rows = self.training.batch_size.saturating_mul(cohort);
        let size = |model: &ModelDescription| model.output().map_or(0, |shape| shape.iter().product::<usize>());
        let targets = rows.saturating_mul(4).saturating_mul(size(&self.model).max(1));
        let largest = |front: u32| {
            let cut = Cut {
                front,
                head: split.head(),
            };
            let pieces = Pieces::of(&self.model, cut).ok()?;
            let encodings = [split.smashed, split.gradients];
            let rows_of = |values: usize| encodings.map(|encoding| encoding.bytes(rows, values).unwrap_or(usize::MAX));
            let exchanged = [size(&pieces.front), size(&pieces.back)]
                .into_iter()
                .flat_map(rows_of)
                .max()?;
            let own = pieces.client_values().saturating_mul(4);
            Some(exchanged.saturating_add(targets).max(own) as u64)
        };
        split.fronts().into_iter().filter_map(largest).max().unwrap_or(0)
    }

    /// Where each client's model is cut.
    pub fn cuts(&self) -> Shares<Option<Cut>> {
        let Some(split) = &self.split else {
            return Shares::Alike(None);
        };
        let cut = |front: Option<u32>| {
            front.map(|front| Cut {
                front,
                head: split.head(),
            })
        };
        match &split.cut {
            Cuts::Alike(front) => Shares::Alike(cut(Some(*front))),
            Cuts::Shares(shares) => {
                let shares = shares.iter().map(|share| (cut(share.after), share.share));
                Shares::deal(self, shares.collect(), Purpose::Cuts)
            }
        }
    }
}
