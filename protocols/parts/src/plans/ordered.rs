//! Ordered dropout. Horváth et al., *FjORD: Fair and Accurate Federated Learning under heterogeneous targets with
//! Ordered Dropout*, NeurIPS 2021. Without its self-distillation.

use serde::{Deserialize, Serialize};

use super::Static;
use crate::plan::{Card, Dealer, Plan};

/// A client of width p receives the first ⌈pK⌉ of the K units of each width group; in each step it draws one of the
/// description's widths up to its own, and trains the first units of that width only. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ordered {}

impl Plan for Ordered {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        Static {}.units(card, groups)
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(Static {})
    }

    fn draws_widths(&self) -> bool {
        true
    }
}
