//! What happens to an update on its way, a file for each filter. `[[filters]]` of a description lists them; the
//! client applies them in that order, and the server undoes them in the reverse order. A new filter is a new file and a
//! line in the list below.

mod sparse;

use selvedge_words::{Choice, Rejection, choices};

use crate::{
    Context, Memory, Metrics, Occasion, Vectors,
    sections::{Encoding, Values},
};

choices! {
    dyn Filter, "filter":
    clip::Clip = "clip",
    bf16::Bf16 = "bf16",
    top_k::TopK = "top-k",
}

/// A step on an update's way from the client to the aggregation. The model's parameters and each vector beside them that
/// has their shape go this way, one after the other; running statistics and short vectors go as they are.
///
/// Implementations are the settings themselves, read from an entry of `[[filters]]`.
pub trait Filter: Send + Sync {
    /// The client's half: changes what is about to be sent. What the filter keeps of these values from round to round is
    /// `memory`; it counts once the update does.
    fn client(
        &self,
        values: Values,
        reference: Reference<'_>,
        memory: &mut Vectors,
        context: &mut Context<'_>,
    ) -> Values;

    /// The server's half: undoes what has to be undone. What the filters after this one may have added to the norm of the
    /// change is `lengthened`, as a share of it.
    ///
    /// # Errors
    /// When the values cannot be what the client's half made.
    fn server(
        &self,
        values: Values,
        reference: Reference<'_>,
        lengthened: f64,
        context: &mut Context<'_>,
    ) -> Result<Values, Rejection> {
        let _ = (reference, lengthened, context);
        Ok(values)
    }

    /// The encoding that the client's half leaves behind, if it is not plain numbers: no filter can follow it.
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// How many values of its encoding the client's half makes of so many.
    fn encoded(&self, values: u64) -> u64 {
        values
    }

    /// Whether it bounds what one client can send, so that nothing may pass beside it.
    fn bounds(&self) -> bool {
        false
    }

    /// Whether it keeps something of each coordinate from round to round.
    fn keeps(&self) -> bool {
        false
    }

    /// By how much it may lengthen a change, as a share of its Euclidean norm: what is to pass a bound before it must be
    /// let through with as much more.
    fn lengthens(&self) -> f64 {
        0.0
    }

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// What values are a change of: the model that the round began with, or nothing, for those that are changes themselves.
#[derive(Clone, Copy, Debug)]
pub enum Reference<'a> {
    /// These values.
    Model(&'a [f32]),
    /// Zeros, this many.
    Zeros(usize),
}

impl Reference<'_> {
    /// The values.
    pub fn values(self) -> impl Iterator<Item = f32> {
        let (model, zeros) = match self {
            Self::Model(values) => (values, 0),
            Self::Zeros(count) => (&[][..], count),
        };
        model.iter().copied().chain(std::iter::repeat_n(0.0, zeros))
    }
}

/// Under which name a filter keeps what it keeps of a section's values.
fn component(at: usize, section: &str) -> String {
    format!("filters.{at}.{section}")
}

/// Applies the client's halves to the values of a section, in order.
pub fn apply(
    filters: &[Choice<dyn Filter>],
    section: &str,
    values: Values,
    reference: Reference<'_>,
    memory: &mut Memory,
    occasion: &Occasion<'_>,
    metrics: &mut Metrics,
) -> Values {
    filters.iter().enumerate().fold(values, |values, (at, filter)| {
        let component = component(at, section);
        let context = &mut occasion.context(component.as_str(), metrics);
        filter.client(values, reference, memory.of_mut(&component), context)
    })
}

/// Applies the server's halves to the values of a section, in reverse order.
///
/// # Errors
/// When a filter finds that the values cannot be what its client's half made.
pub fn undo(
    filters: &[Choice<dyn Filter>],
    section: &str,
    mut values: Values,
    reference: Reference<'_>,
    occasion: &Occasion<'_>,
    metrics: &mut Metrics,
) -> Result<Values, Rejection> {
    let mut lengthened = 1.0;
    for (at, filter) in filters.iter().enumerate().rev() {
        let context = &mut occasion.context(component(at, section), metrics);
        values = filter.server(values, reference, lengthened - 1.0, context)?;
        lengthened *= 1.0 + filter.lengthens();
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
