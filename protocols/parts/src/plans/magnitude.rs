//! Sub-models of the units that matter most, by their norms.

use serde::{Deserialize, Serialize};

use super::Static;
use crate::plan::{Card, Dealer, Plan};

/// A client of width p trains the ⌈pK⌉ of the K units of each width group whose values have the largest Euclidean norm in
/// the global model at the beginning of the round; of equals, the first. No settings.
///
/// Only the server knows which they are: it cannot be combined with an algorithm for which clients keep state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Magnitude {}

impl Plan for Magnitude {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        Static {}.units(card, groups)
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(Static {})
    }

    fn ranks_units(&self) -> bool {
        true
    }
}
