//! What the target columns or arrays of a data set mean.

use serde::{Deserialize, Serialize};

/// What the target columns or arrays of a data set mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// One class for each example. The default.
    #[default]
    Classes,
    /// Any number of labels for each example, each between 0 and 1.
    MultiLabel,
    /// Real values, for regression.
    Values,
}
