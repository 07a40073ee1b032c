//! FedAvg. McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized Data*, AISTATS 2017,
//! Algorithm 1.

use serde::{Deserialize, Serialize};

use crate::{
    Broadcast,
    aggregation::Aggregate,
    algorithm::{Algorithm, Federation, LocalError, LocalSteps, ServerState, Update, Vectors},
};

/// Federated averaging: `w ← Σ_k (n_k / n) w_k`. No settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedAvg {}

impl Algorithm for FedAvg {
    fn client(
        &self,
        broadcast: &Broadcast,
        _kept: &mut Vectors,
        local: &mut dyn LocalSteps,
    ) -> Result<Update, LocalError> {
        // w_k ← w_k − η ∇ℓ(w_k; b), for each local batch b
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    fn server(&self, state: &mut ServerState, aggregate: Aggregate, _: Federation) {
        // w ← Σ_k (n_k / n) w_k
        state.weights = aggregate.weights;
    }
}
