//! `[buffer]`: clients are asked one by one, and the model moves every few updates.

use selvedge_learning::staleness::Staleness;
use serde::{Deserialize, Serialize};

use super::{Description, Problem};

/// `[buffer]`: clients are asked one by one, `cohort.size` at a time, and the model moves every few updates. Nguyen et al.,
/// *Federated Learning with Buffered Asynchronous Aggregation*, AISTATS 2022.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// By how many updates the model moves, from 1 to the size of the cohort.
    pub size: usize,
    /// How an update is weighted by its staleness. Default `polynomial`, with the exponent 0.5.
    #[serde(default)]
    pub staleness: Staleness,
    /// How often the model may have moved since an update's client was sent it; a staler update is rejected. Default 100.
    #[serde(default = "default_maximum_staleness")]
    pub maximum_staleness: u32,
}

fn default_maximum_staleness() -> u32 {
    100
}

impl Description {
    /// How many updates move the model at a time.
    pub fn updates_at_a_time(&self) -> usize {
        self.buffer.map_or_else(|| self.cohort_size(), |buffer| buffer.size)
    }
}

impl Buffer {
    /// All that is wrong with the values in a run of `description`; empty when nothing is.
    pub(super) fn problems(&self, description: &Description) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, key: &str, message: String| {
            if !holds {
                let key = key.into();
                problems.push(Problem { key, message });
            }
        };
        let (size, cohort) = (self.size, description.cohort_size());
        let range = format!("{size} is not from 1 to the {cohort} clients that are under way at a time");
        require((1..=cohort).contains(&size), "buffer.size", range);
        if let Staleness::Polynomial { exponent } = self.staleness {
            let range = format!("{exponent} is not a number of at least 0");
            let holds = exponent >= 0.0 && exponent.is_finite();
            require(holds, "buffer.staleness.exponent", range);
        }
        let message = "its clients train the whole model: leave out one of them";
        require(
            description.sub_models.is_none(),
            "buffer",
            format!("not with `sub_models`: {message}"),
        );
        let message = "its clients make their steps by themselves: leave out one of them";
        require(
            description.split.is_none(),
            "buffer",
            format!("not with `split`: {message}"),
        );
        let beside: Vec<&str> = description
            .algorithm
            .update_vectors()
            .iter()
            .map(|(name, _)| *name)
            .collect();
        let (kind, beside_all) = (description.algorithm.kind(), beside.join(", "));
        let message = format!(
            "only changes of the model are weighted by their staleness, but `{kind}` sends `{beside_all}` beside it: choose \
             another algorithm"
        );
        require(beside.is_empty(), "buffer", message);
        problems
    }
}
