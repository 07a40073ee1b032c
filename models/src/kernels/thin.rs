//! Matrix products of few terms, as a small batch makes them.
//!
//! With few terms the result is read and written about as fast as it is computed, and a general product spends its time
//! bringing the operands into its own order. Here they are read as they lie, and each tile of the result is used at
//! once while it is in the processor's registers.

use pulp::{Simd, WithSimd};

use super::{
    FEW, dispatch,
    matrix::Matrix,
    multiply_add,
    tile::{ROWS, tiles},
};

/// What becomes of a product, value for value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Then {
    /// It takes the place of what is there.
    Replace,
    /// It is added to what is there.
    Add,
    /// It is a gradient: `into -= rate * product`.
    Descend(f32),
}

/// Multiplies `left`, a `rows x terms` matrix, with `right`, a `terms x columns` matrix, for at most [`FEW`] terms, and
/// uses the product on `into`, a `rows x columns` matrix. Both of these row after row.
pub(crate) fn thin_product(left: Matrix<'_>, right: &[f32], columns: usize, then: Then, into: &mut [f32]) {
    let (rows, terms) = (left.rows(), right.len() / columns);
    assert!(terms <= FEW && terms == left.column_count());
    assert_eq!((rows * columns, terms * columns), (into.len(), right.len()));
    let mut factors = [0.0; FEW * ROWS];
    for tile in tiles(rows) {
        for row in 0..tile.count {
            let into = factors[row..].iter_mut().step_by(tile.count);
            for (into, from) in into.zip(left.row(tile.first + row)) {
                *into = *from;
            }
        }
        dispatch(Strip {
            rows: tile.count,
            columns,
            left: &factors[..terms * tile.count],
            right,
            then,
            into: &mut into[tile.first * columns..][..tile.count * columns],
        });
    }
}

/// As many rows of a product as a tile has.
struct Strip<'a> {
    rows: usize,
    columns: usize,
    /// For each term, a factor for each row.
    left: &'a [f32],
    right: &'a [f32],
    then: Then,
    into: &'a mut [f32],
}

impl WithSimd for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.rows {
            1 => self.fill::<S, 1>(simd),
            2 => self.fill::<S, 2>(simd),
            3 => self.fill::<S, 3>(simd),
            4 => self.fill::<S, 4>(simd),
            5 => self.fill::<S, 5>(simd),
            _ => self.fill::<S, ROWS>(simd),
        }
    }
}

impl Strip<'_> {
    #[inline(always)]
    fn fill<S: Simd, const R: usize>(mut self, simd: S) {
        let lanes = S::F32_LANES;
        let pairs = self.columns / (2 * lanes) * 2 * lanes;
        let whole = self.columns / lanes * lanes;
        for column in (0..pairs).step_by(2 * lanes) {
            self.tile::<S, R, 2>(simd, column);
        }
        for column in (pairs..whole).step_by(lanes) {
            self.tile::<S, R, 1>(simd, column);
        }
        for column in whole..self.columns {
            self.column::<R>(column);
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn tile<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, column: usize) {
        let width = V * S::F32_LANES;
        let mut tile = [[simd.splat_f32s(0.0); V]; R];
        let terms = self
            .left
            .as_chunks::<R>()
            .0
            .iter()
            .zip(self.right.chunks_exact(self.columns));
        for (left, right) in terms {
            let right = S::as_simd_f32s(&right[column..column + width]).0;
            for row in 0..R {
                let times = simd.splat_f32s(left[row]);
                for vector in 0..V {
                    tile[row][vector] = multiply_add(simd, times, right[vector], tile[row][vector]);
                }
            }
        }
        for row in 0..R {
            let into = S::as_mut_simd_f32s(&mut self.into[row * self.columns + column..][..width]).0;
            for vector in 0..V {
                let (there, value) = (into[vector], tile[row][vector]);
                into[vector] = match self.then {
                    Then::Replace => value,
                    Then::Add => simd.add_f32s(there, value),
                    Then::Descend(rate) => multiply_add(simd, simd.splat_f32s(-rate), value, there),
                };
            }
        }
    }

    /// A single column, where there are too few left for a vector.
    #[inline(always)]
    fn column<const R: usize>(&mut self, column: usize) {
        for row in 0..R {
            let terms = self
                .left
                .as_chunks::<R>()
                .0
                .iter()
                .zip(self.right.chunks_exact(self.columns));
            let value = terms.fold(0.0, |sum, (left, right)| f32::mul_add(left[row], right[column], sum));
            let there = &mut self.into[row * self.columns + column];
            *there = match self.then {
                Then::Replace => value,
                Then::Add => *there + value,
                Then::Descend(rate) => f32::mul_add(-rate, value, *there),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::with_lanes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_product_of_small_whole_numbers_is_exact_and_used_as_told(
            (rows, columns, terms) in (1usize..20, 1usize..80, 1usize..=FEW),
            turn: bool,
            lanes in prop_oneof![Just(0usize), Just(1), Just(4), Just(16)],
            then in prop_oneof![Just(Then::Replace), Just(Then::Add), Just(Then::Descend(2.0))],
        ) {
            let left: Vec<f32> = (0..rows * terms).map(|index| (index % 7) as f32 - 3.0).collect();
            let right: Vec<f32> = (0..terms * columns).map(|index| (index % 5) as f32 - 2.0).collect();
            let mut into: Vec<f32> = (0..rows * columns).map(|index| (index % 9) as f32).collect();
            let before = into.clone();
            let turned: Vec<f32> = (0..terms * rows).map(|index| left[index % rows * terms + index / rows]).collect();
            let matrix = match turn {
                true => Matrix::new(&turned, terms, rows).transposed(),
                false => Matrix::new(&left, rows, terms),
            };
            with_lanes(lanes, || thin_product(matrix, &right, columns, then, &mut into));
            for (index, (into, before)) in into.iter().zip(before).enumerate() {
                let (row, column) = (index / columns, index % columns);
                let product: f32 = (0..terms)
                    .map(|term| left[row * terms + term] * right[term * columns + column])
                    .sum();
                prop_assert_eq!(*into, match then {
                    Then::Replace => product,
                    Then::Add => before + product,
                    Then::Descend(rate) => before - rate * product,
                });
            }
        }
    }
}
