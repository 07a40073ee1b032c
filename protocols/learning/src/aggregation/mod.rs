//! Many updates become one, by a rule that the description chooses. A new rule is a new file and a line in the list below.

mod coverage;

pub use coverage::Coverage;
pub use mean::WeightedMean;

use selvedge_models::{OptimiserDescription, SubModel, Weights};
use selvedge_words::{Choice, ClientName, choice::DefaultChoice, choices};

use crate::{Context, Vectors, local::Update};

choices! {
    dyn AggregationRule, "rule of aggregation":
    mean::Mean = "mean",
    nova::Nova = "nova",
    median::Median = "median",
    krum::Krum = "krum",
}

impl DefaultChoice for dyn AggregationRule {
    fn default_choice() -> Choice<Self> {
        Choice::of(Mean {})
    }
}

/// How updates become one: the mean, the median, ….
///
/// Implementations are the settings themselves, read from `[aggregation]` of the description.
pub trait AggregationRule: Send + Sync {
    /// Begins a round.
    fn begin(&self) -> Box<dyn Aggregator>;

    /// Whether updates weigh what `aggregation.weighting` says; else all count alike.
    fn is_weighted(&self) -> bool {
        false
    }

    /// Whether each coordinate is treated by itself, so that updates of parts of the model can be taken in.
    fn is_coordinate_wise(&self) -> bool {
        true
    }

    /// What is wrong with the settings for cohorts of this size and this local optimiser, if anything: (key, what it must
    /// be).
    fn problem(&self, cohort: usize, optimiser: &OptimiserDescription) -> Option<(&'static str, String)> {
        let _ = (cohort, optimiser);
        None
    }
}

/// The name under which the rule measures.
pub const AGGREGATION: &str = "aggregation";

/// What is to be combined with others.
pub struct Contribution<'a> {
    /// Whose update it is; `None` of a part that was trained for several clients at once (a back).
    pub client: Option<&'a ClientName>,
    /// The round whose model it was trained from.
    pub version: u32,
    /// Of which part of the model it is.
    pub part: &'a SubModel,
    /// What it weighs, positive and finite.
    pub weight: f64,
    /// The update, with what the client says of it (its examples and steps).
    pub update: Update,
}

/// What the updates of a round came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The combined model.
    pub weights: Weights,
    /// The combined vectors.
    pub vectors: Vectors,
    /// How many updates went in.
    pub updates: usize,
}

/// A rule was given too few updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{came} updates came, and the rule of aggregation needs {needed}")]
pub struct TooFew {
    /// How many it needs.
    pub needed: usize,
    /// How many there were.
    pub came: usize,
}

/// Combines updates. They come one by one, always in the order of the clients' names, so that a result never depends
/// on who was quick.
pub trait Aggregator: Send {
    /// Takes one update in. All updates of one round have the same vectors, as long as their parts: the round's checks see
    /// to it.
    fn fold(&mut self, contribution: Contribution<'_>);

    /// The result, where nobody trained a coordinate that of `global`, the model that the round began with; `None` when
    /// nothing was folded.
    ///
    /// # Errors
    /// When there are too few updates for the rule.
    fn finish(self: Box<Self>, global: &Weights, context: &mut Context<'_>) -> Result<Option<Aggregate>, TooFew>;
}
