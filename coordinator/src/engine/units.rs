//! How often units were trained.

use selvedge_protocols::Part;
use serde::{Deserialize, Serialize};

/// Of each unit of each width group, how many updates that moved the model have trained it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitCounts(pub Vec<Vec<u64>>);

impl UnitCounts {
    /// No unit of this part trained yet.
    pub(super) fn none(part: &Part) -> Self {
        Self(
            part.coordinates
                .units
                .iter()
                .map(|units| vec![0; units.len()])
                .collect(),
        )
    }

    /// An update has trained these units of each group.
    pub(super) fn add(&mut self, units: &[Vec<u32>]) {
        for (counts, units) in self.0.iter_mut().zip(units) {
            units.iter().for_each(|unit| counts[*unit as usize] += 1);
        }
    }

    /// Adds another's counts.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (counts, other) in self.0.iter_mut().zip(&other.0) {
            counts.iter_mut().zip(other).for_each(|(count, other)| *count += other);
        }
    }
}
