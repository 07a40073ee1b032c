//! Backward of a convolution, place by place: for a gradient from above of which less than a third is not 0, as it is
//! below a max-pool, where of each window one place has a gradient; and for the input's gradient with any stride.
//!
//! The patches at a few places are laid out, a row for each, and only rows with a gradient are multiplied. Leaving out
//! the products of finite numbers with 0 leaves a sum as it is. (Where an input or a filter is not finite, neither is the
//! loss, and so the gradient from above is not 0 but NaN.)

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{dispatch, multiply_add, patches::Patches};

/// Places that are worked on at a time, all of one image.
const PLACES: usize = 48;

/// Whether so much of a gradient is 0 that looking for the rest pays.
pub(super) fn is_sparse(gradient: &[f32]) -> bool {
    let others = |block: &[f32]| block.iter().map(|value| u32::from(*value != 0.0)).sum::<u32>() as usize;
    3 * gradient.chunks(1024).map(others).sum::<usize>() < gradient.len()
}

/// A value that is not 0, and which row it multiplies.
#[derive(Clone, Copy, Default)]
struct Factor {
    row: u32,
    value: f32,
}

/// Scratch space.
#[derive(Default)]
pub(super) struct Sparse {
    /// An image with its padding, or its gradient.
    padded: Vec<f32>,
    /// A row for each place.
    rows: Vec<f32>,
    /// A row for each filter.
    filters: Vec<f32>,
    factors: Vec<Factor>,
    /// How many factors there are for each channel, or each place.
    counts: Vec<usize>,
}

impl Sparse {
    /// Adds the gradient of the filters to `gradient`, a `channels x patch` matrix.
    pub(super) fn filter_gradient(
        &mut self,
        patches: &Patches,
        input: &[f32],
        output_gradient: &[f32],
        gradient: &mut [f32],
    ) {
        dispatch(FilterGradient {
            scratch: self,
            patches,
            input,
            output_gradient,
            gradient,
        });
    }

    /// Writes the gradient at the input, for any stride.
    pub(super) fn input_gradient(
        &mut self,
        patches: &Patches,
        filters: &[f32],
        output_gradient: &[f32],
        input_gradient: &mut [f32],
    ) {
        dispatch(InputGradient {
            scratch: self,
            patches,
            filters,
            output_gradient,
            input_gradient,
        });
    }
}

/// The length of a row of whole vectors that holds a patch.
fn stride<S: Simd>(patches: &Patches) -> usize {
    patches.patch().next_multiple_of(S::F32_LANES)
}

struct FilterGradient<'a> {
    scratch: &'a mut Sparse,
    patches: &'a Patches,
    input: &'a [f32],
    output_gradient: &'a [f32],
    gradient: &'a mut [f32],
}

impl WithSimd for FilterGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Sparse {
            padded,
            rows,
            filters: sums,
            factors,
            counts,
        } = self.scratch;
        let patches = self.patches;
        let (patch, places) = (patches.patch(), patches.places());
        let channels = self.gradient.len() / patch;
        let stride = stride::<S>(patches);
        sums.clear();
        sums.resize(channels * stride, 0.0);
        rows.resize(PLACES.min(places) * stride, 0.0);
        let most = PLACES.min(places) + 1;
        factors.resize(channels * most, Factor::default());
        let images = self.input.chunks_exact(patches.image());
        for (image, above) in images.zip(self.output_gradient.chunks_exact(channels * places)) {
            padded.clear();
            patches.pad(image, padded);
            for first in (0..places).step_by(PLACES) {
                let block = first..places.min(first + PLACES);
                patches.lay_out(padded, block.clone(), stride, rows);
                counts.clear();
                for (above, factors) in above.chunks_exact(places).zip(factors.chunks_exact_mut(most)) {
                    let mut count = 0;
                    for (row, value) in above[block.clone()].iter().enumerate() {
                        // Written in any case, and kept if it is not 0: a branch could not be predicted.
                        factors[count] = Factor {
                            row: row as u32,
                            value: *value,
                        };
                        count += usize::from(*value != 0.0);
                    }
                    counts.push(count);
                }
                let factors = Factors { factors, most, counts };
                factors.add_rows(simd, rows, stride, sums);
            }
        }
        for (gradient, sums) in self.gradient.chunks_exact_mut(patch).zip(sums.chunks_exact(stride)) {
            for (gradient, sum) in gradient.iter_mut().zip(sums) {
                *gradient += sum;
            }
        }
    }
}

struct InputGradient<'a> {
    scratch: &'a mut Sparse,
    patches: &'a Patches,
    filters: &'a [f32],
    output_gradient: &'a [f32],
    input_gradient: &'a mut [f32],
}

impl WithSimd for InputGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Sparse {
            padded,
            rows,
            filters,
            factors,
            counts,
        } = self.scratch;
        let patches = self.patches;
        let (patch, places) = (patches.patch(), patches.places());
        let channels = self.filters.len() / patch;
        let stride = stride::<S>(patches);
        filters.clear();
        filters.resize(channels * stride, 0.0);
        for (row, filter) in filters.chunks_exact_mut(stride).zip(self.filters.chunks_exact(patch)) {
            row[..patch].copy_from_slice(filter);
        }
        rows.resize(PLACES.min(places) * stride, 0.0);
        let most = channels + 1;
        factors.resize(PLACES.min(places) * most, Factor::default());
        let images = self.input_gradient.chunks_exact_mut(patches.image());
        for (image, above) in images.zip(self.output_gradient.chunks_exact(channels * places)) {
            padded.clear();
            padded.resize(patches.padded_image(), 0.0);
            for first in (0..places).step_by(PLACES) {
                let block = first..places.min(first + PLACES);
                counts.clear();
                counts.resize(block.len(), 0);
                for (channel, above) in above.chunks_exact(places).enumerate() {
                    let factors = factors.chunks_exact_mut(most);
                    for ((value, factors), count) in above[block.clone()].iter().zip(factors).zip(&mut *counts) {
                        // As above.
                        factors[*count] = Factor {
                            row: channel as u32,
                            value: *value,
                        };
                        *count += usize::from(*value != 0.0);
                    }
                }
                let sums = &mut rows[..block.len() * stride];
                sums.fill(0.0);
                let factors = Factors { factors, most, counts };
                factors.add_rows(simd, filters, stride, sums);
                patches.bring_back(rows, block, stride, padded);
            }
            patches.unpad(padded, image);
        }
    }
}

/// Vectors of a row that are summed at a time, in registers.
const CHUNK: usize = 12;

/// For each of a few sums, the factors that are not 0.
struct Factors<'a> {
    /// As many as there could be, and one to write to, for each sum.
    factors: &'a [Factor],
    most: usize,
    counts: &'a [usize],
}

impl Factors<'_> {
    /// Adds to each of `sums` its rows, each times its factor. All have `stride` values.
    #[inline(always)]
    fn add_rows<S: Simd>(&self, simd: S, rows: &[f32], stride: usize, sums: &mut [f32]) {
        // A part of the columns at a time: that part of all rows stays in the nearest cache.
        let mut column = 0;
        while column < stride {
            column += match (stride - column) / S::F32_LANES {
                CHUNK.. => self.add_columns::<S, CHUNK>(simd, rows, stride, column, sums),
                4.. => self.add_columns::<S, 4>(simd, rows, stride, column, sums),
                _ => self.add_columns::<S, 1>(simd, rows, stride, column, sums),
            };
        }
    }

    /// Adds `N` vectors of columns; gives how many columns these are.
    #[inline(always)]
    fn add_columns<S: Simd, const N: usize>(
        &self,
        simd: S,
        rows: &[f32],
        stride: usize,
        column: usize,
        sums: &mut [f32],
    ) -> usize {
        let factors = self.factors.chunks_exact(self.most).zip(self.counts);
        for ((factors, count), sums) in factors.zip(sums.chunks_exact_mut(stride)) {
            add_chunk::<S, N>(simd, &factors[..*count], &rows[column..], stride, &mut sums[column..]);
        }
        N * S::F32_LANES
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn add_chunk<S: Simd, const N: usize>(simd: S, factors: &[Factor], rows: &[f32], stride: usize, sums: &mut [f32]) {
    let sums = S::as_mut_simd_f32s(&mut sums[..N * S::F32_LANES]).0;
    let mut chunk = [simd.splat_f32s(0.0); N];
    chunk.copy_from_slice(sums);
    for factor in factors {
        let row = S::as_simd_f32s(&rows[factor.row as usize * stride..][..N * S::F32_LANES]).0;
        let times = simd.splat_f32s(factor.value);
        for vector in 0..N {
            chunk[vector] = multiply_add(simd, times, row[vector], chunk[vector]);
        }
    }
    sums.copy_from_slice(&chunk);
}

impl Patches {
    /// Takes an image out of its padding.
    fn unpad(&self, padded: &[f32], image: &mut [f32]) {
        for (first, row) in self.rows().zip(image.chunks_exact_mut(self.width)) {
            row.copy_from_slice(&padded[first..first + self.width]);
        }
    }

    /// Copies the patches at some places of a padded image into rows of `stride` values.
    #[inline(always)]
    fn lay_out(&self, padded: &[f32], places: Range<usize>, stride: usize, rows: &mut [f32]) {
        match self.kernel {
            1 => self.copy::<1>(padded, places, stride, rows),
            3 => self.copy::<3>(padded, places, stride, rows),
            5 => self.copy::<5>(padded, places, stride, rows),
            _ => self.each_run(places, stride, |in_row, in_image| {
                rows[in_row..in_row + self.kernel].copy_from_slice(&padded[in_image..in_image + self.kernel]);
            }),
        }
    }

    #[inline(always)]
    fn copy<const K: usize>(&self, padded: &[f32], places: Range<usize>, stride: usize, rows: &mut [f32]) {
        self.each_run(places, stride, |in_row, in_image| {
            if let (Some(row), Some(image)) = (rows[in_row..].first_chunk_mut(), padded[in_image..].first_chunk::<K>())
            {
                *row = *image;
            }
        });
    }

    /// Adds rows of `stride` values to where the patches at some places lie in a padded image.
    #[inline(always)]
    fn bring_back(&self, rows: &[f32], places: Range<usize>, stride: usize, padded: &mut [f32]) {
        match self.kernel {
            1 => self.add::<1>(rows, places, stride, padded),
            3 => self.add::<3>(rows, places, stride, padded),
            5 => self.add::<5>(rows, places, stride, padded),
            _ => self.each_run(places, stride, |in_row, in_image| {
                let row = &rows[in_row..in_row + self.kernel];
                for (pixel, value) in padded[in_image..].iter_mut().zip(row) {
                    *pixel += value;
                }
            }),
        }
    }

    #[inline(always)]
    fn add<const K: usize>(&self, rows: &[f32], places: Range<usize>, stride: usize, padded: &mut [f32]) {
        self.each_run(places, stride, |in_row, in_image| {
            if let (Some(row), Some(image)) = (
                rows[in_row..].first_chunk::<K>(),
                padded[in_image..].first_chunk_mut::<K>(),
            ) {
                // All are read before any is written: that fills vectors.
                let mut sums = *image;
                for pixel in 0..K {
                    sums[pixel] += row[pixel];
                }
                *image = sums;
            }
        });
    }

    /// Visits the pixels of patches that lie side by side: where they begin in rows of `stride` values, a row for each
    /// place, and in a padded image.
    #[inline(always)]
    fn each_run(&self, places: Range<usize>, stride: usize, mut visit: impl FnMut(usize, usize)) {
        let (width, height) = self.padded();
        for (row, place) in places.enumerate() {
            let (y, x) = (place / self.out_width, place % self.out_width);
            let mut in_row = row * stride;
            for channel in 0..self.channels {
                let mut in_image = (channel * height + y * self.stride) * width + x * self.stride;
                for _ in 0..self.kernel {
                    visit(in_row, in_image);
                    in_row += self.kernel;
                    in_image += width;
                }
            }
        }
    }
}
