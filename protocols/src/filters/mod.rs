//! What happens to an update on its way, a file for each filter. `[[filters]]` of a description lists them; the
//! client applies them in that order, and the server undoes them in the reverse order.

mod bf16;
mod clip;

pub use bf16::Bf16;
pub use clip::Clip;

use rand_chacha::ChaCha8Rng;
use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

use crate::{
    Rejection,
    sections::{Encoding, Values},
};

/// A step on an update's way from the client to the aggregation.
pub trait Filter: Send + Sync {
    /// The client's half: changes what is about to be sent. `global` is the model that the round began with; `random`
    /// is this client's own stream in this round.
    fn client(&self, values: Values, global: &Weights, random: &mut ChaCha8Rng) -> Values;

    /// The server's half: undoes what has to be undone.
    ///
    /// # Errors
    /// When the values cannot be what the client's half made.
    fn server(&self, values: Values, global: &Weights) -> Result<Values, Rejection> {
        let _ = global;
        Ok(values)
    }

    /// The encoding that the client's half leaves behind, if it is not plain numbers: no filter can follow it.
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Whether it bounds what one client can send, so that nothing may pass beside it.
    fn bounds(&self) -> bool {
        false
    }

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// One entry of `[[filters]]`: which filter, by `kind`, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum FilterDescription {
    /// Bounds the change's Euclidean norm.
    Clip(Clip),
    /// Sends the change in 16 bits.
    Bf16(Bf16),
}

impl std::ops::Deref for FilterDescription {
    type Target = dyn Filter;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Clip(filter) => filter,
            Self::Bf16(filter) => filter,
        }
    }
}

/// Applies the client's halves, in order.
pub fn apply(filters: &[FilterDescription], values: Values, global: &Weights, random: &mut ChaCha8Rng) -> Values {
    filters
        .iter()
        .fold(values, |values, filter| filter.client(values, global, random))
}

/// Applies the server's halves, in reverse order.
///
/// # Errors
/// When a filter finds that the values cannot be what its client's half made.
pub fn undo(filters: &[FilterDescription], values: Values, global: &Weights) -> Result<Values, Rejection> {
    filters
        .iter()
        .rev()
        .try_fold(values, |values, filter| filter.server(values, global))
}
