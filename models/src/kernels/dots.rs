//! Every row of one matrix with every row of another: a dense layer's forward.
//!
//! For a small batch a general matrix product spends most of its time bringing the weights into its own order. Here
//! they are read once, as they lie.

use pulp::{Simd, WithSimd};

use super::{
    FEW, dispatch,
    matrix::{Matrix, MatrixMut},
    multiply_add,
};

/// Rows of inputs that are worked on together.
const INPUTS: usize = 5;

/// Writes `out[i][j]`, the product of row `i` of `inputs` with row `j` of `weights`, both rows of `length` values.
pub(crate) fn products_of_rows(inputs: &[f32], weights: &[f32], length: usize, out: &mut [f32]) {
    let (rows, columns) = (inputs.len() / length, weights.len() / length);
    assert_eq!(out.len(), rows * columns);
    if rows > FEW {
        let weights = Matrix::new(weights, columns, length).transposed();
        let inputs = Matrix::new(inputs, rows, length);
        return MatrixMut::new(out, rows, columns).product(0.0, 1.0, inputs, weights);
    }
    dispatch(Products {
        inputs,
        weights,
        length,
        out,
    });
}

struct Products<'a> {
    inputs: &'a [f32],
    weights: &'a [f32],
    length: usize,
    out: &'a mut [f32],
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many sums of rows of weights with rows of inputs as the vector registers hold beside the rows.
        if S::REGISTER_COUNT < 32 {
            self.by::<S, 2>(simd);
        } else {
            self.by::<S, 4>(simd);
        }
    }
}

impl Products<'_> {
    /// Takes `W` rows of weights together.
    #[inline(always)]
    fn by<S: Simd, const W: usize>(self, simd: S) {
        let columns = self.weights.len() / self.length;
        let block = W * self.length;
        for (first_column, weights) in (0..).step_by(W).zip(self.weights.chunks(block)) {
            let block = INPUTS * self.length;
            for (first_row, inputs) in (0..).step_by(INPUTS).zip(self.inputs.chunks(block)) {
                let sums = tile::<S, W>(simd, rows(weights, self.length), rows(inputs, self.length));
                let column_count = weights.len() / self.length;
                for (row, sums) in (first_row..).zip(sums).take(inputs.len() / self.length) {
                    let start = row * columns + first_column;
                    self.out[start..start + column_count].copy_from_slice(&sums[..column_count]);
                }
            }
        }
    }
}

/// The rows of a block; where it has fewer than `N`, its last one again.
#[inline(always)]
fn rows<const N: usize>(block: &[f32], length: usize) -> [&[f32]; N] {
    let last = block.len() / length - 1;
    let mut rows = [block; N];
    for (row, values) in rows.iter_mut().enumerate() {
        let start = row.min(last) * length;
        *values = &block[start..start + length];
    }
    rows
}

/// The products of each input with each weight.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn tile<S: Simd, const W: usize>(simd: S, weights: [&[f32]; W], inputs: [&[f32]; INPUTS]) -> [[f32; W]; INPUTS] {
    // Loops over indices, not closures: what is not inlined here is compiled without the vector instructions.
    let (whole, _) = S::as_simd_f32s(weights[0]);
    let vectors = whole.len();
    let mut weight_vectors = [whole; W];
    let mut input_vectors = [whole; INPUTS];
    for row in 0..W {
        weight_vectors[row] = &S::as_simd_f32s(weights[row]).0[..vectors];
    }
    for row in 0..INPUTS {
        input_vectors[row] = &S::as_simd_f32s(inputs[row]).0[..vectors];
    }
    let mut sums = [[simd.splat_f32s(0.0); W]; INPUTS];
    for index in 0..vectors {
        for input in 0..INPUTS {
            let value = input_vectors[input][index];
            for weight in 0..W {
                let sum = &mut sums[input][weight];
                *sum = multiply_add(simd, weight_vectors[weight][index], value, *sum);
            }
        }
    }
    let mut products = [[0.0; W]; INPUTS];
    let done = size_of_val(whole) / size_of::<f32>();
    for input in 0..INPUTS {
        for weight in 0..W {
            let mut product = simd.reduce_sum_f32s(sums[input][weight]);
            for index in done..weights[weight].len() {
                product += inputs[input][index] * weights[weight][index];
            }
            products[input][weight] = product;
        }
    }
    products
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::with_lanes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_product_of_small_whole_numbers_is_exact(
            rows in 1usize..80,
            columns in 1usize..11,
            length in 1usize..50,
            lanes in prop_oneof![Just(0usize), Just(1), Just(4), Just(16)],
        ) {
            let whole = |index: usize| (index % 7) as f32 - 3.0;
            let inputs: Vec<f32> = (0..rows * length).map(whole).collect();
            let weights: Vec<f32> = (0..columns * length).map(|index| whole(index * 3)).collect();
            let mut out = vec![f32::NAN; rows * columns];
            with_lanes(lanes, || products_of_rows(&inputs, &weights, length, &mut out));
            for row in 0..rows {
                for column in 0..columns {
                    let one = &inputs[row * length..(row + 1) * length];
                    let other = &weights[column * length..(column + 1) * length];
                    let expected: f32 = one.iter().zip(other).map(|(a, b)| a * b).sum();
                    prop_assert_eq!(out[row * columns + column], expected);
                }
            }
        }
    }
}
