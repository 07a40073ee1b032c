//! Split learning as it began. Gupta & Raskar, *Distributed learning of deep neural network over multiple agents*, JNCA 2018,
//! Algorithm 2 (peer to peer, here by way of the server).

use serde::{Deserialize, Serialize};

use crate::SplitMethod;

/// Client after client trains with the server; each goes on with the front that the one before it has left. A round is a
/// turn of each client of the cohort. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequential {}

impl SplitMethod for Sequential {
    // for i in cohort:  w_c,i ← w_c,i−1;  all steps of i with the server
    fn takes_turns(&self) -> bool {
        true
    }
}
