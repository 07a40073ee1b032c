//! `[aggregation]`: how updates become one.

use selvedge_learning::aggregation::AggregationRule;
use selvedge_words::Choice;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::{Table, Value};

use super::Description;

/// `[aggregation]`: how updates become one. The rule's settings stand beside `kind` and `weighting`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Aggregation {
    /// What an update weighs, with a rule that weighs them. Default `examples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighting: Option<Weighting>,
    /// The rule, by its `kind`. Default `mean`.
    #[serde(flatten)]
    pub rule: Choice<dyn AggregationRule>,
}

/// What an update weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// As many as the client has examples.
    #[default]
    Examples,
    /// All alike.
    Uniform,
}

impl Weighting {
    /// What the update of a client with so many examples weighs.
    pub fn of(self, examples: u64) -> f64 {
        match self {
            Self::Examples => examples as f64,
            Self::Uniform => 1.0,
        }
    }
}

impl<'de> Deserialize<'de> for Aggregation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut rule = Table::deserialize(deserializer)?;
        let weighting = rule.remove("weighting").map(Weighting::deserialize);
        let kind = rule.entry("kind");
        kind.or_insert_with(|| Value::String(Self::default().rule.kind().into()));
        Ok(Self {
            weighting: weighting.transpose().map_err(D::Error::custom)?,
            rule: Choice::deserialize(Value::Table(rule)).map_err(|error| D::Error::custom(error.message()))?,
        })
    }
}

impl Description {
    /// How updates become one: by the algorithm's rule where it is a name for a combination, else by `aggregation.kind`.
    pub fn rule(&self) -> Choice<dyn AggregationRule> {
        self.algorithm.rule().unwrap_or_else(|| self.aggregation.rule.clone())
    }

    /// What the updates weigh.
    pub fn weighting(&self) -> Weighting {
        self.aggregation.weighting.unwrap_or_default()
    }
}
