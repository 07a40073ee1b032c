//! The plans, a file each. A new one is a new file and a line in the list below.

mod deck;
mod latin_square;
mod partitioned;
mod same_for_all;
mod with_replacement;

pub use partitioned::{Dealing, Pairing, Partitioned};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Declares the modules and the `plan` of `[sub_models]`: `kind = "rolling"`, then the settings, which are the fields of
/// the plan's own type.
macro_rules! plans {
    ($($(#[$doc:meta])* $module:ident::$Plan:ident,)*) => {
        $(mod $module; pub use $module::$Plan;)*

        /// `plan` of `[sub_models]`: which plan, by `kind`, and its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum PlanDescription {
            $($(#[$doc])* $Plan($Plan),)*
            /// The model is divided in advance into blocks of units, and the blocks are dealt.
            Partitioned(Partitioned),
        }

        impl std::ops::Deref for PlanDescription {
            type Target = dyn Plan;
            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$Plan(plan) => plan,)*
                    Self::Partitioned(plan) => plan,
                }
            }
        }
    };
}

plans! {
    /// Everybody trains the whole model.
    full::Full,
    /// The first units, always.
    r#static::Static,
    /// The first units, of a width drawn in every step.
    ordered::Ordered,
    /// A window of units that moves on by one in every round.
    rolling::Rolling,
    /// Units drawn anew for each client in every round.
    random::Random,
    /// The units with the largest norms.
    magnitude::Magnitude,
}

/// How many of a group's units a card's width keeps.
fn kept(units: usize, card: &crate::plan::Card) -> u32 {
    selvedge_models::units_kept(units, card.width.0) as u32
}
