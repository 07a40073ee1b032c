//! Adam on the server. Reddi et al., *Adaptive Federated Optimization*, ICLR 2021, Algorithm 2.

use serde::{Deserialize, Serialize};

use super::ServerStep;
use crate::{Context, Shape, Vectors};

/// The change to which the updates came is a gradient to Adam. As in the paper, no bias correction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// η, above 0. Default 0.01.
    pub learning_rate: f32,
    /// β₁, the decay of the first moment, in [0, 1). Default 0.9.
    pub beta1: f32,
    /// β₂, the decay of the second moment, in [0, 1). Default 0.99.
    pub beta2: f32,
    /// τ, the degree of adaptivity, above 0. Default 0.001.
    pub tau: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 0.001 }
    }
}

impl ServerStep for Adam {
    fn step(&self, x: &[f32], next: &mut [f32], memory: &mut Vectors, _: &mut Context<'_>) {
        let &Self { learning_rate: eta, beta1, beta2, tau } = self;
        // m₀ = 0 and v₀ = τ²
        let mut m = memory.remove("first_moment").unwrap_or_else(|| vec![0.0; x.len()]);
        let v = memory.entry("second_moment", Shape::Parameters, || vec![tau * tau; x.len()]);
        for (((next, x), m), v) in next.iter_mut().zip(x).zip(&mut m).zip(v) {
            let delta = *next - x;
            *m = beta1 * *m + (1.0 - beta1) * delta;
            *v = beta2 * *v + (1.0 - beta2) * delta * delta;
            *next = x + eta * *m / (v.sqrt() + tau);
        }
        memory.insert("first_moment", Shape::Parameters, m);
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        None.or(super::positive("learning_rate", self.learning_rate))
            .or(super::decay("beta1", self.beta1))
            .or(super::decay("beta2", self.beta2))
            .or(super::positive("tau", self.tau))
    }
}
