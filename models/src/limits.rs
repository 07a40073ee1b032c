//! How large a model may be.

use crate::error::LayerProblem;

/// The most values a model may have as parameters, and as buffers.
pub const LARGEST_MODEL: usize = 1 << 31;

/// The most values one example may hold between two layers.
pub const LARGEST_VALUE: usize = 1 << 28;

/// The product of sizes, if it stays within what one example may hold.
pub(crate) fn bounded(what: &'static str, sizes: &[usize]) -> Result<usize, LayerProblem> {
    sizes
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size))
        .filter(|product| *product <= LARGEST_VALUE)
        .ok_or(LayerProblem::TooLarge {
            what,
            largest: LARGEST_VALUE,
        })
}
