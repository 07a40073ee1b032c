//! The methods, a file each. A new one is a new file and a line in the list below.

use serde::{Deserialize, Serialize};

use super::SplitMethod;

/// Declares the modules and the `method` of `[split]`: `kind = "parallel"`, then the settings, which are the fields of the
/// method's own type.
macro_rules! methods {
    ($($(#[$doc:meta])* $module:ident::$Method:ident = $name:literal,)*) => {
        $(mod $module; pub use $module::$Method;)*

        /// `method` of `[split]`: which method, by `kind`, and its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum SplitMethodDescription {
            $($(#[$doc])* #[serde(rename = $name)] $Method($Method),)*
        }

        impl std::ops::Deref for SplitMethodDescription {
            type Target = dyn SplitMethod;
            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$Method(method) => method,)*
                }
            }
        }
    };
}

methods! {
    /// Client after client, with one front that is handed on.
    sequential::Sequential = "sequential",
    /// All at once, a back for each, and both parts averaged after the round.
    splitfed_v1::SplitFedV1 = "splitfed-v1",
    /// All at once, one back, and fronts averaged after the round.
    splitfed_v2::SplitFedV2 = "splitfed-v2",
    /// All at once, one back, and fronts that are never averaged.
    parallel::Parallel = "parallel",
    /// The same with fronts whose gradients are aligned.
    gapsl::Gapsl = "gapsl",
}
