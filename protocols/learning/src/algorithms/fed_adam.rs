//! FedAdam. Reddi et al., *Adaptive Federated Optimization*, ICLR 2021, Algorithm 2.

use selvedge_models::OptimiserDescription;
use selvedge_words::choice::Choice;
use serde::{Deserialize, Serialize};

use crate::{algorithm::Algorithm, server::{Adam, ServerStep}};

/// FedAvg whose averaged change is a gradient to Adam on the server: a name for `fedavg` with `[[server]] kind = "adam"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FedAdam {
    /// η, the server's learning rate. Default 0.01.
    pub server_learning_rate: f32,
    /// β₁, the decay of the first moment, in [0, 1). Default 0.9.
    pub beta1: f32,
    /// β₂, the decay of the second moment, in [0, 1). Default 0.99.
    pub beta2: f32,
    /// τ, the degree of adaptivity, above 0. Default 0.001.
    pub tau: f32,
}

impl Default for FedAdam {
    fn default() -> Self {
        let Adam { learning_rate, beta1, beta2, tau } = Adam::default();
        Self { server_learning_rate: learning_rate, beta1, beta2, tau }
    }
}

impl FedAdam {
    fn step(&self) -> Adam {
        let &Self { server_learning_rate: learning_rate, beta1, beta2, tau } = self;
        Adam { learning_rate, beta1, beta2, tau }
    }
}

impl Algorithm for FedAdam {
    fn is_plain(&self) -> bool {
        true
    }

    fn server_steps(&self) -> Vec<Choice<dyn ServerStep>> {
        vec![Choice::of(self.step())]
    }

    fn problem(&self, _: &OptimiserDescription) -> Option<(&'static str, String)> {
        super::of_server(self.step().problem())
    }
}
