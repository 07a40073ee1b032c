//! Gradient descent on the server, with momentum. Hsu, Qi and Brown, *Measuring the Effects of Non-Identical Data
//! Distribution for Federated Visual Classification*, 2019; without momentum η_g of Karimireddy et al., 2020.

use serde::{Deserialize, Serialize};

use super::ServerStep;
use crate::{Context, Shape, Vectors};

/// The change Δ to which the updates came is a gradient: `v ← β v + Δ`, `x ← x + η v`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// η, above 0; 1 goes all the way. Default 1.
    pub learning_rate: f32,
    /// β, how much of the last round's movement goes on, in [0, 1). Default 0.
    pub momentum: f32,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { learning_rate: 1.0, momentum: 0.0 }
    }
}

impl ServerStep for Sgd {
    fn step(&self, x: &[f32], next: &mut [f32], memory: &mut Vectors, _: &mut Context<'_>) {
        let &Self { learning_rate: eta, momentum: beta } = self;
        if beta == 0.0 {
            // Written so that η = 1 is the aggregate itself.
            for (next, x) in next.iter_mut().zip(x) {
                *next = (1.0 - eta) * *x + eta * *next;
            }
            return;
        }
        let v = memory.entry("velocity", Shape::Parameters, || vec![0.0; x.len()]);
        for ((next, x), v) in next.iter_mut().zip(x).zip(v) {
            *v = beta * *v + (*next - x);
            *next = x + eta * *v;
        }
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        None.or(super::positive("learning_rate", self.learning_rate))
            .or(super::decay("momentum", self.momentum))
    }
}
