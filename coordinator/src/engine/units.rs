//! How often units were trained.

use serde::{Deserialize, Serialize};

/// Of each unit of each width group, how many updates that moved the model have trained it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitCounts(pub Vec<Vec<u64>>);

impl UnitCounts {
    /// Nothing trained yet.
    pub(super) fn none(groups: impl Iterator<Item = usize>) -> Self {
        Self(groups.map(|units| vec![0; units]).collect())
    }

    /// An update has trained these units of each group.
    pub(super) fn add(&mut self, units: &[Vec<u32>]) {
        self.0.resize(units.len(), Vec::new());
        for (counts, units) in self.0.iter_mut().zip(units) {
            for unit in units {
                let unit = *unit as usize;
                if counts.len() <= unit {
                    counts.resize(unit + 1, 0);
                }
                counts[unit] += 1;
            }
        }
    }

    /// Adds another's counts.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (counts, other) in self.0.iter_mut().zip(&other.0) {
            counts.iter_mut().zip(other).for_each(|(count, other)| *count += other);
        }
    }
}
