//! What a step spends its time in, on slices of `f32`: matrix products and the gathering of image patches.
//!
//! Everything here runs on one thread: parallelism is across clients.

pub(crate) mod convolution;
pub(crate) mod descent;
pub(crate) mod dots;
pub(crate) mod matrix;
mod panels;
pub(crate) mod patches;
pub(crate) mod pooling;
mod sparse;
pub(crate) mod sums;
pub(crate) mod thin;
mod tile;
