//! The algorithms, a file each. A new one is a new file and a line in the list below.

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;

/// Declares the modules and the `[algorithm]` table of a description: `kind = "fedavg"`, then the settings, which are
/// the fields of the algorithm's own type.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $module:ident::$Algorithm:ident,)*) => {
        $(mod $module; pub use $module::$Algorithm;)*

        /// `[algorithm]`: which algorithm, by `kind`, and its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        pub enum AlgorithmDescription {
            $($(#[$doc])* $Algorithm($Algorithm),)*
        }

        impl std::ops::Deref for AlgorithmDescription {
            type Target = dyn Algorithm;
            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$Algorithm(algorithm) => algorithm,)*
                }
            }
        }
    };
}

algorithms! {
    /// Federated averaging.
    fed_avg::FedAvg,
    /// FedAvg with a proximal term.
    fed_prox::FedProx,
    /// Control variates against client drift.
    scaffold::Scaffold,
    /// FedAvg with Adam on the server.
    fed_adam::FedAdam,
    /// Coordinate-wise median, robust to a minority of arbitrary updates.
    median::Median,
}

impl Default for AlgorithmDescription {
    fn default() -> Self {
        Self::FedAvg(FedAvg {})
    }
}
