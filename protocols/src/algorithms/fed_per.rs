//! FedPer. Arivazhagan et al., *Federated Learning with Personalization Layers*, 2019, Algorithms 1 and 2.

use serde::{Deserialize, Serialize};

use crate::{
    Broadcast, Context, Vectors,
    algorithm::Algorithm,
    local::{LocalError, LocalSteps, Update},
};

/// FedAvg on the base layers; the personal ones stay with each client. What a client evaluates is its own model; the
/// coordinator, which has no personal layer, evaluates nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedPer {
    /// The places of the personal layers, as `selvedge model show` numbers them: `["6"]`.
    pub personal: Vec<String>,
}

impl Algorithm for FedPer {
    fn client(
        &self,
        broadcast: &Broadcast,
        _: &mut Vectors,
        local: &mut dyn LocalSteps,
        _: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        // (W_B, W_P) ← SGD from what was broadcast and what is the client's own
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn personal_layers(&self) -> &[String] {
        &self.personal
    }
}
