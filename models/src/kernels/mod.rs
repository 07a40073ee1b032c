//! What a step spends its time in, on slices of `f32`: matrix products, convolutions, pooling, sums, and the step of
//! plain gradient descent.
//!
//! Everything here runs on one thread: parallelism is across clients.

use pulp::{Simd, WithSimd};

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

/// Up to so many rows of a batch, dense layers have kernels of their own.
pub(crate) const FEW: usize = 64;

/// Runs an operation with the widest vectors that this processor has.
fn dispatch<Op: WithSimd>(operation: Op) -> Op::Output {
    #[cfg(test)]
    match LANES.get() {
        1 => return pulp::Scalar.vectorize(operation),
        4 => return pulp::Scalar128b.vectorize(operation),
        16 => return pulp::Scalar512b.vectorize(operation),
        _ => {}
    }
    pulp::Arch::new().dispatch(operation)
}

/// `a * b + c`, rounded once where the processor can.
#[inline(always)]
fn multiply_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
    if S::IS_SCALAR {
        // Without vectors there is no instruction for it either, and a library's function is many times slower.
        simd.add_f32s(simd.mul_f32s(a, b), c)
    } else {
        simd.mul_add_f32s(a, b, c)
    }
}

#[cfg(test)]
thread_local! {
    /// As how wide a processor's vectors are tested; 0: as they are.
    static LANES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Runs `test` as on a processor with vectors of so many values; 0: as on this one.
#[cfg(test)]
fn with_lanes<R>(lanes: usize, test: impl FnOnce() -> R) -> R {
    LANES.set(lanes);
    let result = test();
    LANES.set(0);
    result
}
