//! SplitFed v2. Thapa et al., *SplitFed: When Federated Learning Meets Split Learning*, AAAI 2022, section 3.3. There the
//! server goes through the clients' smashed data one client after the other, in random order; here it takes them as one
//! batch.

use serde::{Deserialize, Serialize};

use crate::SplitMethod;

/// One back for all, and fronts that are averaged after the round: `w_c ← Σ (n_i / n) w_c,i`. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitFedV2 {}

impl SplitMethod for SplitFedV2 {}
