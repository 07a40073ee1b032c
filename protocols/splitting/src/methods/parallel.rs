//! Parallel split learning, and EPSL: Lin et al., *Efficient Parallel Split Learning over Resource-Constrained Wireless
//! Edge Networks*, IEEE TMC 2024 (arXiv:2303.15991). That a batch's aggregated gradients go back through the mean of its
//! smashed data is ours: the paper does not say through what.

use candle_core::Tensor;
use selvedge_models::{ModelError, STEP};
use serde::{Deserialize, Serialize};

use crate::{Back, SplitMethod};

/// Parallel split learning: one back for all, fronts that are never averaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// φ: of each client's batch, the share whose gradients at the outputs are averaged over the clients, example by
    /// example, and go back as one, from 0 to 1. At 1 the server's backward does not grow with the number of clients.
    /// Default 0.
    pub last_layer_aggregation: f64,
}

impl SplitMethod for Parallel {
    fn keeps_fronts(&self) -> bool {
        true
    }

    fn backward(&self, back: &mut Back, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        // m = ⌈φ min_i b_i⌉ examples are aggregated
        // (0.07 times 100 is a little more than 7 in floating point.)
        let aggregated = (self.last_layer_aggregation * back.smallest_batch() as f64 - 1e-9).ceil() as usize;
        if aggregated == 0 {
            return back.backward(gradients);
        }
        // z̄_j = Σ_i ρ_i z_i,j for j ≤ m, back through s̄_j = Σ_i ρ_i s_i,j: one δ̄_j for all
        back.backward_aggregated(gradients, aggregated)
    }

    fn needs_one_cut(&self) -> bool {
        self.last_layer_aggregation > 0.0
    }

    fn runs_again(&self) -> bool {
        self.last_layer_aggregation > 0.0
    }

    fn server_work(&self, clients: usize) -> f64 {
        let (clients, phi) = (clients as f64, self.last_layer_aggregation);
        match self.runs_again() {
            true => clients + STEP * (phi + (1.0 - phi) * clients),
            false => STEP * clients,
        }
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let phi = self.last_layer_aggregation;
        let is_share = (0.0..=1.0).contains(&phi);
        (!is_share).then(|| ("last_layer_aggregation", format!("{phi} is not from 0 to 1")))
    }
}
