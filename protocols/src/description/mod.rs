//! The run's description: one TOML file says everything about a run.
//!
//! The same file serves a simulation and a federation over the network. Unknown keys are errors; each key below says
//! its unit, default and range.

mod aggregation;
mod buffer;
mod check;
mod components;
mod devices;
mod read;
mod shares;
mod split;
mod sub_models;

pub use aggregation::{Aggregation, Weighting};
pub use buffer::Buffer;
pub use check::Problem;
pub use devices::{DealtDevices, Devices, Drawn, OfEach, ValueShare};
pub use read::{DescriptionError, Override};
pub use shares::Shares;
pub use split::{CutShare, Cuts, Labels, Split};
pub use sub_models::{Averaging, BatchNormStatistics, Capacity, SubModels};

use std::time::Duration;

use selvedge_data::{PartitionDescription, Source};
use selvedge_learning::{Occasion, Precision, algorithm::Algorithm, filters::Filter, server::ServerStep};
use selvedge_models::{Layout, Loss, ModelDescription, OptimiserDescription, Weights};
use selvedge_wire::Limits;
use selvedge_words::{Choice, ClientName, Seed};
use serde::{Deserialize, Serialize};

/// A commented description, as `selvedge init` writes it: it is also the built-in example.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Everything about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// A name for the run, shown in its report. Default `run`.
    #[serde(default = "default_name")]
    pub name: String,
    /// From which all randomness of the run is derived. Default 1.
    #[serde(default = "default_seed")]
    pub seed: Seed,
    /// How many rounds are run, at least 1.
    pub rounds: u32,
    /// How many clients the federation has, at least 1.
    pub clients: usize,
    /// Where the examples come from.
    pub data: Source,
    /// How the examples are dealt to the clients of a simulation. Default `iid`.
    #[serde(default = "default_partition")]
    pub partition: PartitionDescription,
    /// The model.
    pub model: ModelDescription,
    /// Clients train parts of the model. Default: all train all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_models: Option<SubModels>,
    /// Clients train the front of the model, the coordinator the back. Default: clients train all that they are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// What a client does in a round.
    pub training: Training,
    /// Who takes part in a round, and how long it may take.
    #[serde(default)]
    pub cohort: Cohort,
    /// Clients are asked one by one, and the model moves every few updates. Default: rounds are synchronous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// How the model travels to clients. Default: as it is.
    #[serde(default, skip_serializing_if = "BroadcastSettings::is_default")]
    pub broadcast: BroadcastSettings,
    /// The algorithm. Default FedAvg.
    #[serde(default)]
    pub algorithm: Choice<dyn Algorithm>,
    /// How updates become one. Default their mean.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// What moves the model by what the updates came to, in order. Default nothing: the model becomes it.
    #[serde(default)]
    pub server: Vec<Choice<dyn ServerStep>>,
    /// What happens to an update on its way, in order. Default nothing.
    #[serde(default)]
    pub filters: Vec<Choice<dyn Filter>>,
    /// When and by whom the model is evaluated.
    #[serde(default)]
    pub evaluation: EvaluationDescription,
    /// What the devices of a simulation's clients are like. Default: nothing takes any time, and all are always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// Settings that matter over the network only.
    #[serde(default)]
    pub network: NetworkSettings,
}

/// `[training]`: what a client does in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Passes over the client's examples, at least 1. Default 1. Not together with `steps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Batches in a round, at least 1, passing over the examples as often as that takes. Not together with `epochs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Examples in a batch, at least 1; the last batch of a pass may be smaller. Default 10.
    #[serde(default = "default_batch_size")]
    pub batch_size: usize,
    /// The loss. Default cross-entropy.
    #[serde(default = "default_loss")]
    pub loss: Loss,
    /// The local optimiser, fresh in every round.
    pub optimiser: OptimiserDescription,
}

impl Training {
    /// How many steps a client with so many examples makes in a round.
    pub fn steps_on(&self, examples: usize) -> u64 {
        let pass = examples.div_ceil(self.batch_size.max(1)) as u64;
        match (self.steps, self.epochs) {
            _ if pass == 0 => 0,
            (Some(steps), _) => u64::from(steps),
            (None, epochs) => u64::from(epochs.unwrap_or(1)).saturating_mul(pass),
        }
    }
}

/// `[cohort]`: who takes part in a round, and how long it may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cohort {
    /// Clients selected for a round, at least 1 and at most `clients`. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The share of the cohort whose updates a round needs, in (0, 1]; with fewer the model stays as it was.
    /// Default 0.5.
    pub quorum: f64,
    /// Seconds after which a round goes on without those who have not answered, 0.001 to ten years. Default 600.
    pub deadline_seconds: f64,
}

impl Default for Cohort {
    fn default() -> Self {
        Self {
            size: None,
            quorum: 0.5,
            deadline_seconds: 600.0,
        }
    }
}

/// `[broadcast]`: how the model travels to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BroadcastSettings {
    /// In how many bits those who train receive it, and an algorithm's vectors of its shape. Default `f32`. Who evaluates it
    /// receives it as it is.
    pub precision: Precision,
}

impl BroadcastSettings {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[evaluation]`: when and by whom the model is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationDescription {
    /// Rounds from one evaluation to the next, at least 1; the last round is always evaluated. Default 1.
    pub every: u32,
    /// Whether the cohort's clients evaluate the new model on examples of their own that were held out: pooled
    /// accuracy is right answers over examples. Needs `holdout` above 0. Default false.
    pub by_clients: bool,
    /// The share of each client's examples that is held out of training, in [0, 1). Default 0.
    pub holdout: f64,
    /// Of a simulation, how many training examples the new model is evaluated on too, for the gap between training and
    /// test: the first clients' first. Default 0.
    pub training_examples: usize,
}

impl Default for EvaluationDescription {
    fn default() -> Self {
        Self {
            every: 1,
            by_clients: false,
            holdout: 0.0,
            training_examples: 0,
        }
    }
}

/// `[network]`: settings that matter over the network only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// Clients that must have joined before the first round. Default: all `clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_with: Option<usize>,
    /// Seconds that the run waits for enough clients before it gives up, 0.001 to ten years. Default 3600.
    pub wait_seconds: f64,
    /// Seconds that a connection may take to be made, 0.001 to ten years. Default 10.
    pub connect_seconds: f64,
    /// Seconds of silence after which the other side counts as gone, 1 to ten years. Default 30.
    pub idle_seconds: f64,
}

impl From<&NetworkSettings> for Limits {
    fn from(network: &NetworkSettings) -> Self {
        Self {
            connect: Duration::from_secs_f64(network.connect_seconds),
            idle: Duration::from_secs_f64(network.idle_seconds),
        }
    }
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            start_with: None,
            wait_seconds: 3600.0,
            connect_seconds: 10.0,
            idle_seconds: 30.0,
        }
    }
}

impl Description {
    /// A run of one's own making, with every default: 10 clients that are dealt examples of the program's own alike, FedAvg
    /// for `rounds` rounds of one pass. All else is a field to be set.
    pub fn new(model: ModelDescription, optimiser: OptimiserDescription, rounds: u32) -> Self {
        Self {
            name: default_name(),
            seed: default_seed(),
            rounds,
            clients: 10,
            data: Source::Memory {},
            partition: default_partition(),
            model,
            sub_models: None,
            split: None,
            training: Training {
                epochs: None,
                steps: None,
                batch_size: default_batch_size(),
                loss: default_loss(),
                optimiser,
            },
            cohort: Cohort::default(),
            buffer: None,
            broadcast: BroadcastSettings::default(),
            algorithm: Choice::default(),
            aggregation: Aggregation::default(),
            server: Vec::new(),
            filters: Vec::new(),
            evaluation: EvaluationDescription::default(),
            devices: None,
            network: NetworkSettings::default(),
        }
    }

    /// Whether the values are in range and go together: what reading a description checks, for one that a program has made.
    ///
    /// # Errors
    /// When they do not; the error lists all that is wrong.
    pub fn check(&self) -> Result<(), DescriptionError> {
        let problems = self.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(DescriptionError::Problems {
                origin: "the description".into(),
                problems,
            }),
        }
    }

    /// Whether a run of it can begin with weights of a program's own.
    ///
    /// # Errors
    /// When it cannot: clients with personal layers draw those that they begin with themselves.
    pub fn check_initial(&self, initial: Option<&Weights>) -> Result<(), DescriptionError> {
        if initial.is_none() || self.algorithm.personal_layers().is_empty() {
            return Ok(());
        }
        let message =
            "clients begin with personal layers that they draw from the run's seed: leave the first weights out";
        Err(DescriptionError::Problems {
            origin: "the first weights".into(),
            problems: vec![Problem {
                key: "algorithm.personal".into(),
                message: message.into(),
            }],
        })
    }

    /// What a component may know in a round, on a client's account or on that of the whole cohort; `layout` says where the
    /// values of the model, or of the client's part of it, lie.
    pub fn occasion<'a>(&'a self, round: u32, client: Option<&'a ClientName>, layout: &'a Layout) -> Occasion<'a> {
        Occasion {
            seed: self.seed,
            round,
            rounds: self.rounds,
            clients: self.clients,
            cohort: self.cohort_size(),
            client,
            layout,
            optimiser: &self.training.optimiser,
        }
    }

    /// Clients selected for a round.
    pub fn cohort_size(&self) -> usize {
        self.cohort.size.unwrap_or(self.clients)
    }

    /// Updates that a round of `cohort` clients needs, at least one.
    pub fn quorum(&self, cohort: usize) -> usize {
        ((self.cohort.quorum * cohort as f64).ceil() as usize).clamp(1, cohort.max(1))
    }

    /// Whether the model is evaluated after `round` (counted from 1).
    pub fn is_evaluated(&self, round: u32) -> bool {
        round.is_multiple_of(self.evaluation.every.max(1)) || round == self.rounds
    }
}

fn default_name() -> String {
    "run".into()
}

fn default_seed() -> Seed {
    Seed(1)
}

fn default_partition() -> PartitionDescription {
    PartitionDescription::Iid {}
}

fn default_batch_size() -> usize {
    10
}

fn default_loss() -> Loss {
    Loss::CrossEntropy
}
