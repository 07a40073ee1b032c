//! FedNova. Wang et al., *Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization*, NeurIPS
//! 2020.

use selvedge_words::choice::Choice;
use serde::{Deserialize, Serialize};

use crate::{aggregation::{self, AggregationRule}, algorithm::Algorithm};

/// Local training and normalised averaging: a name for `fedavg` with `[aggregation] kind = "nova"`. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedNova {}

impl Algorithm for FedNova {
    fn is_plain(&self) -> bool {
        true
    }

    fn rule(&self) -> Option<Choice<dyn AggregationRule>> {
        Some(Choice::of(aggregation::Nova {}))
    }
}
