//! The plans, a file each. A new one is a new file and a line in the list below.

mod deck;
mod latin_square;
mod same_for_all;
mod with_replacement;

pub use partitioned::{Dealing, Pairing};

use selvedge_words::choices;

use crate::plan::Plan;

choices! {
    dyn Plan, "plan":
    full::Full = "full",
    r#static::Static = "static",
    ordered::Ordered = "ordered",
    rolling::Rolling = "rolling",
    random::Random = "random",
    magnitude::Magnitude = "magnitude",
    partitioned::Partitioned = "partitioned",
}

/// How many of a group's units a card's width keeps.
fn kept(units: usize, card: &crate::plan::Card) -> u32 {
    selvedge_models::units_kept(units, card.width.0) as u32
}
