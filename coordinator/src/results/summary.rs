//! A run in ten figures.

use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

use super::peak_memory::peak_rss_bytes;
use crate::{Outcome, RoundRecord};

/// What a run came to: `summary.json`, and the last line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many rounds were run.
    pub rounds: usize,
    /// How many of them moved the model.
    pub applied: usize,
    /// How the run ended.
    pub outcome: Outcome,
    /// The accuracy on the coordinator's test set, in [0, 1], when it was last measured; `None` when it never was.
    pub test_accuracy: Option<f64>,
    /// The best of all rounds.
    pub best_test_accuracy: Option<f64>,
    /// How long the run took.
    pub seconds: f64,
    /// Tensor bytes of the updates that were taken in.
    pub bytes_up: u64,
    /// Tensor bytes of the models that clients were asked to work on.
    pub bytes_down: u64,
    /// The most memory that the process has held at once; `None` where the system does not say.
    pub peak_rss_bytes: Option<u64>,
    /// The hash of the final weights: BLAKE3 of all parameters, then all buffers, in the model's order, as
    /// little-endian 32-bit floats. Two runs with the same hash gave the same model, bit for bit.
    pub weights_blake3: String,
}

impl Summary {
    pub(super) fn new(records: &[RoundRecord], outcome: Outcome, weights: &Weights, seconds: f64) -> Self {
        let accuracies = || records.iter().filter_map(|record| finite(record.test_accuracy));
        let sum = |bytes: fn(&RoundRecord) -> u64| records.iter().map(bytes).fold(0, u64::saturating_add);
        Self {
            rounds: records.len(),
            applied: records.iter().filter(|record| record.applied).count(),
            outcome,
            test_accuracy: accuracies().next_back(),
            best_test_accuracy: accuracies().reduce(f64::max),
            seconds: finite(Some(seconds)).unwrap_or(0.0),
            bytes_up: sum(|record| record.bytes_up),
            bytes_down: sum(|record| record.bytes_down),
            peak_rss_bytes: peak_rss_bytes(),
            weights_blake3: weights.blake3(),
        }
    }
}

/// The value, if it is a number that JSON and a chart can hold.
pub(super) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}
