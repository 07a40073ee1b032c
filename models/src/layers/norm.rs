//! What the norms share.

use crate::{layer::DeclaredTensor, layout::Initial, width::Axis};

/// What norms add to a variance unless told otherwise.
pub(super) fn epsilon() -> f32 {
    1e-5
}

/// A norm's parameters: a weight of 1 and a bias of 0 for each channel.
pub(super) fn scale_and_shift(channels: usize, width: Axis) -> [DeclaredTensor; 2] {
    let declared = |name, value| DeclaredTensor::new(name, [(channels, width)], Initial::Constant(value));
    [declared("weight", 1.0), declared("bias", 0.0)]
}
