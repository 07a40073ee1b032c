//! `[split]`: clients train the front of the model, the coordinator the back.

mod check;

use std::collections::BTreeSet;

use selvedge_models::{Cut, CutSummary, ModelDescription, ModelError, Pieces};
use selvedge_splitting::{Alignment, Equipment, SplitMethod, StepEncoding, StepTime, batches::BatchSizes};
use selvedge_words::{Choice, Purpose};
use serde::{Deserialize, Serialize};

use super::{Description, Shares};

/// `[split]`: clients train the front of the model, the coordinator the back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Who trains at a time, with which back, and what becomes of the fronts.
    pub method: Choice<dyn SplitMethod>,
    /// After how many layers the model is cut: for all clients one number, or a list with the shares of the clients,
    /// `[{ after = 3, share = 0.5 }, { share = 0.5 }]`. Those without `after` train the whole model.
    pub cut: Cuts,
    /// Where the labels are: `sent` to the coordinator, or in a `u-shape` at home, with the last layers. Default `sent`.
    #[serde(default)]
    pub labels: Labels,
    /// In a `u-shape`, how many layers at the end are the client's, at least 1. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<u32>,
    /// How smashed data travel. Default `f32`.
    #[serde(default)]
    pub smashed: StepEncoding,
    /// How cut gradients travel. Default `f32`.
    #[serde(default)]
    pub gradients: StepEncoding,
    /// What clients, server and links can do, from which the time of a step is predicted. Default: nothing is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Equipment>,
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
            Labels::UShape => self.head.unwrap_or(1),
        }
    }

    /// The cut after so many layers.
    pub fn cut_after(&self, front: u32) -> Cut {
        let head = self.head();
        Cut { front, head }
    }

    /// How the fronts' gradients are aligned, where that changes anything.
    pub fn front_alignment(&self) -> Option<Alignment> {
        let alignment = self.method.alignment().copied();
        alignment.filter(Alignment::is_active_on_fronts)
    }

    /// Those of a model's cuts that are made.
    pub fn made<'a>(&self, cuts: &'a [CutSummary]) -> impl Iterator<Item = &'a CutSummary> {
        let fronts = self.fronts();
        cuts.iter().filter(move |cut| fronts.contains(&(cut.layers as u32)))
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

    /// About how many of so many clients have models that are cut.
    pub fn cut_of(&self, clients: usize) -> usize {
        let share = match &self.cut {
            Cuts::Alike(_) => 1.0,
            Cuts::Shares(shares) => {
                let cut = shares.iter().filter(|share| share.after.is_some());
                cut.map(|share| share.share).sum()
            }
        };
        (share * clients as f64).round() as usize
    }

    /// How many of so many clients with models that are cut take a step together.
    pub fn at_once(&self, clients: usize) -> usize {
        match self.method.takes_turns() {
            true => clients.min(1),
            false => clients,
        }
    }

    /// Of a model in the shape of a U, which of its cuts is the second: what lies behind it is the clients' too.
    pub fn head_cut<'a>(&self, cuts: &'a [CutSummary]) -> Option<&'a CutSummary> {
        // There is a cut after each layer but the last.
        let behind = (cuts.len() + 1).saturating_sub(self.head() as usize);
        cuts.iter().find(|cut| cut.layers == behind)
    }

    /// What the time of a step depends on, when a model is trained with these settings.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn step_time(
        &self,
        model: &ModelDescription,
        devices: Equipment,
        batch: usize,
        clients: usize,
    ) -> Result<StepTime, ModelError> {
        Ok(StepTime {
            smashed: self.smashed,
            gradients: self.gradients,
            head: self.head_cut(&model.cuts(batch as u64)?).cloned(),
            alignment: self.front_alignment(),
            server_work: self.method.server_work(clients),
            ..StepTime::new(devices, batch, clients)
        })
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

    /// The predicted seconds of a step of `clients` clients with the whole width, where the description says what they can
    /// do: of several cuts the longest, as if all had that.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn predicted_step(&self, clients: usize) -> Result<Option<f64>, ModelError> {
        let Some((split, devices)) = self.split.as_ref().and_then(|split| Some((split, split.devices?))) else {
            return Ok(None);
        };
        let batch = self.training.batch_size;
        let time = split.step_time(&self.model, devices, batch, clients)?;
        let cuts = self.model.cuts(batch as u64)?;
        Ok(split.made(&cuts).map(|cut| time.seconds(cut)).reduce(f64::max))
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
            let pieces = Pieces::of(&self.model, split.cut_after(front)).ok()?;
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
        let cut = |front: Option<u32>| front.map(|front| split.cut_after(front));
        match &split.cut {
            Cuts::Alike(front) => Shares::Alike(cut(Some(*front))),
            Cuts::Shares(shares) => {
                let shares = shares.iter().map(|share| (cut(share.after), share.share));
                Shares::deal(self, shares.collect(), Purpose::Cuts)
            }
        }
    }
}
