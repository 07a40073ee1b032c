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
pub struct Gapsl(pub Alignment);

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
            Placement::Back | Placement::Both => backward_aligned(back, gradients, &self.0),
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

/// Each client's gradient of the back is taken by itself and turned towards that of the leaders before they are summed.
/// Takes a forward and a backward for each client, and memory for a gradient of each.
fn backward_aligned(
    back: &mut Back,
    gradients: &[Option<Tensor>],
    alignment: &Alignment,
) -> Result<Vec<Tensor>, ModelError> {
    // g_i = ∂L_i/∂w_s
    let (batch, shares) = (back.batch().to_vec(), back.shares(gradients));
    let (mut cut_gradients, mut own) = (Vec::new(), Vec::new());
    for ((arrival, gradient), rho) in batch.into_iter().zip(gradients).zip(shares) {
        if gradient.is_none() {
            cut_gradients.push(arrival.smashed.zeros_like()?);
            continue;
        }
        back.forward_again(vec![arrival])?;
        cut_gradients.extend(back.backward_weighted(std::slice::from_ref(gradient), &[1.0])?);
        own.push((back.gradient(), rho));
    }

    // ℓ ← the direction of those whose gradients agree
    if alignment.is_refreshed(back.step()) {
        let (gradients, shares): (Vec<&[f32]>, Vec<f64>) = own.iter().map(|(g, rho)| (g.as_slice(), *rho)).unzip();
        let leaders = alignment.selector.leaders(&gradients, &shares);
        let led: Vec<_> = leaders.into_iter().map(|at| (gradients[at], shares[at])).collect();
        back.leader.follow(&led, alignment.smoothing);
    }

    // w_s moves by Σ_i ρ_i g'_i, where g'_i is g_i turned towards ℓ
    let mut sum = vec![0.0; own.first().map_or(0, |(g, _)| g.len())];
    for (g, rho) in &mut own {
        if let Some(leader) = back.leader.direction() {
            alignment.align(g, leader);
        }
        let parts = g.iter().map(|value| (*rho * f64::from(*value)) as f32);
        sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
    }
    back.set_gradient(&sum)?;
    Ok(cut_gradients)
}
