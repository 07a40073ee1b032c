//! SplitFed v1. Thapa et al., *SplitFed: When Federated Learning Meets Split Learning*, AAAI 2022, Algorithm 1.

use serde::{Deserialize, Serialize};

use crate::SplitMethod;

/// Each client has a back of its own on the server, and both parts are averaged after the round: FedAvg, with the later
/// layers computed elsewhere. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitFedV1 {}

impl SplitMethod for SplitFedV1 {
    // w_s,i ← w_s for each client i; after the round  w_s ← Σ (n_i / n) w_s,i,  w_c ← Σ (n_i / n) w_c,i
    fn has_a_back_for_each(&self) -> bool {
        true
    }
}
