//! Gradient-aligned parallel split learning in the style of GAPSL: Lin et al., *GAPSL: A Gradient-Aligned Parallel Split
//! Learning on Heterogeneous Data*, arXiv:2603.18540. Its abstract has the two parts, a leader gradient from clients whose
//! gradients agree and a regularisation of each client's gradient towards it; how both are done here is ours.

use candle_core::Tensor;
use selvedge_models::{ModelError, STEP};
use serde::{Deserialize, Serialize};

use crate::{Alignment, Back, SplitMethod, alignment::Placement};

/// Parallel split learning with aligned gradients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gapsl(Alignment);

impl SplitMethod for Gapsl {
    fn keeps_fronts(&self) -> bool {
        true
    }

    fn alignment(&self) -> Option<&Alignment> {
        Some(&self.0)
    }

    fn backward(&self, back: &mut Back, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        match self.0.placement {
            _ if !self.0.is_active() => back.backward(gradients),
            Placement::Front => back.backward(gradients),
            // g_i = ∂L_i/∂w_s for each client; w_s moves by Σ_i ρ_i g'_i
            Placement::Back | Placement::Both => back.backward_aligned(gradients, &self.0),
        }
    }

    fn needs_one_cut(&self) -> bool {
        true
    }

    fn runs_again(&self) -> bool {
        self.0.placement != Placement::Front && self.0.is_active()
    }

    fn server_work(&self, clients: usize) -> f64 {
        let again = if self.runs_again() { 1.0 } else { 0.0 };
        (STEP + again) * clients as f64
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        self.0.problem()
    }
}
