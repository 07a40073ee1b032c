//! FedAvg. McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized Data*, AISTATS 2017,
//! Algorithm 1.

use serde::{Deserialize, Serialize};

use crate::{Broadcast, Context, Vectors, algorithm::Algorithm, local::{LocalError, LocalSteps, Update}};

/// Federated averaging: `w ← Σ_k (n_k / n) w_k`. No settings of its own: the mean is the rule of `[aggregation]`, and
/// without a server step the model becomes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedAvg {}

impl Algorithm for FedAvg {
    fn client(
        &self,
        broadcast: &Broadcast,
        _: &mut Vectors,
        local: &mut dyn LocalSteps,
        _: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        // w_k ← w_k − η ∇ℓ(w_k; b), for each local batch b
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    fn is_plain(&self) -> bool {
        true
    }
}
