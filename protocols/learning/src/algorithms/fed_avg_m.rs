//! FedAvgM. Hsu, Qi and Brown, *Measuring the Effects of Non-Identical Data Distribution for Federated Visual
//! Classification*, 2019, section 4.3.

use selvedge_models::OptimiserDescription;
use selvedge_words::choice::Choice;
use serde::{Deserialize, Serialize};

use crate::{algorithm::Algorithm, server::{ServerStep, Sgd}};

/// FedAvg with momentum on the server: a name for `fedavg` with `[[server]] kind = "sgd"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FedAvgM {
    /// The server's learning rate. Default 1.
    pub server_learning_rate: f32,
    /// β, the server's momentum, in [0, 1). Default 0.9, with which the paper does best.
    pub momentum: f32,
}

impl Default for FedAvgM {
    fn default() -> Self {
        Self { server_learning_rate: 1.0, momentum: 0.9 }
    }
}

impl FedAvgM {
    fn step(&self) -> Sgd {
        let &Self { server_learning_rate: learning_rate, momentum } = self;
        Sgd { learning_rate, momentum }
    }
}

impl Algorithm for FedAvgM {
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
