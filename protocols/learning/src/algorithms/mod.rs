//! The algorithms, a file each. A new one is a new file and a line in the list below.

use selvedge_words::{Choice, choice::DefaultChoice, choices};

use crate::algorithm::Algorithm;

choices! {
    dyn Algorithm, "algorithm":
    fed_avg::FedAvg = "fedavg",
    fed_prox::FedProx = "fedprox",
    scaffold::Scaffold = "scaffold",
    fed_avg_m::FedAvgM = "fedavgm",
    fed_adam::FedAdam = "fedadam",
    fed_yogi::FedYogi = "fedyogi",
    fed_nova::FedNova = "fednova",
    fed_per::FedPer = "fedper",
    ditto::Ditto = "ditto",
    median::Median = "median",
}

impl DefaultChoice for dyn Algorithm {
    fn default_choice() -> Choice<Self> {
        Choice::of(FedAvg {})
    }
}

/// A server step's problem as that of an algorithm which is a name for it.
fn of_server(problem: Option<(&'static str, String)>) -> Option<(&'static str, String)> {
    problem.map(|(key, message)| match key {
        "learning_rate" => ("server_learning_rate", message),
        key => (key, message),
    })
}
