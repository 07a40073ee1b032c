//! Coordinate-wise median. Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*,
//! ICML 2018, Algorithm 1 (option I), with local training in place of one gradient.

use selvedge_words::choice::Choice;
use serde::{Deserialize, Serialize};

use crate::{aggregation::{self, AggregationRule}, algorithm::Algorithm};

/// Local training and the median: a name for `fedavg` with `[aggregation] kind = "median"`. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Median {}

impl Algorithm for Median {
    fn is_plain(&self) -> bool {
        true
    }

    fn rule(&self) -> Option<Choice<dyn AggregationRule>> {
        Some(Choice::of(aggregation::Median {}))
    }
}
