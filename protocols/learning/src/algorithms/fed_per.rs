//! FedPer. Arivazhagan et al., *Federated Learning with Personalization Layers*, 2019, Algorithms 1 and 2.

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;

/// FedAvg on the base layers, W_B; the personal ones, W_P, stay with each client, and are trained with them. What a client evaluates is its own model; the
/// coordinator, which has no personal layer, evaluates nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedPer {
    /// The places of the personal layers, as `selvedge model show` numbers them: `["6"]`.
    pub personal: Vec<String>,
}

impl Algorithm for FedPer {
    fn keeps(&self) -> bool {
        true
    }

    fn personal_layers(&self) -> &[String] {
        &self.personal
    }
}
