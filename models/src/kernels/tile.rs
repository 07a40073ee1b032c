//! A tile of sums that stays in the processor's registers, and the innermost loop of convolutions on it.
//!
//! A tile is up to [`ROWS`] rows of [`VECTORS`] vectors: twelve sums, two vectors to multiply and a factor take 15 of the 16
//! registers of AVX2.

use pulp::Simd;

use super::multiply_add;

/// Rows of the largest tile.
pub(super) const ROWS: usize = 6;

/// Vectors in a row of a tile.
pub(super) const VECTORS: usize = 2;

/// The widest row of any processor, in values.
pub(super) const WIDEST: usize = 32;

/// Values in a row of a tile.
pub(super) const fn width<S: Simd>() -> usize {
    VECTORS * S::F32_LANES
}

/// Rows that are worked on at a time.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Divides `count` rows among tiles, as evenly as can be.
pub(super) fn tiles(count: usize) -> impl Iterator<Item = Rows> {
    let tiles = count.div_ceil(ROWS);
    let (share, more) = (count / tiles.max(1), count % tiles.max(1));
    (0..tiles).scan(0, move |next, tile| {
        let rows = Rows {
            first: *next,
            count: share + usize::from(tile < more),
        };
        *next += rows.count;
        Some(rows)
    })
}

/// `sums[row] += Σ_k left[k * rows + row] * right[k]`, where `right` and `sums` have rows as wide as a tile.
#[inline(always)]
pub(super) fn add_product<S: Simd>(simd: S, rows: usize, left: &[f32], right: &[f32], sums: &mut [f32]) {
    match rows {
        1 => product::<S, 1>(simd, left, right, sums),
        2 => product::<S, 2>(simd, left, right, sums),
        3 => product::<S, 3>(simd, left, right, sums),
        4 => product::<S, 4>(simd, left, right, sums),
        5 => product::<S, 5>(simd, left, right, sums),
        _ => product::<S, ROWS>(simd, left, right, sums),
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn product<S: Simd, const R: usize>(simd: S, left: &[f32], right: &[f32], sums: &mut [f32]) {
    let mut tile = load::<S, R>(simd, sums);
    let right = S::as_simd_f32s(right).0.as_chunks::<VECTORS>().0;
    for (left, right) in left.as_chunks::<R>().0.iter().zip(right) {
        // Loops over indices, not closures: what is not inlined here is compiled without the vector instructions.
        for row in 0..R {
            let times = simd.splat_f32s(left[row]);
            for vector in 0..VECTORS {
                tile[row][vector] = multiply_add(simd, times, right[vector], tile[row][vector]);
            }
        }
    }
    store::<S, R>(tile, sums);
}

/// `sums[row] += Σ_place left[row][place] * right[place]`, where `right` and `sums` have rows as wide as a tile, and so has
/// `left`, in panels that begin `stride` values apart: a panel has a row's next places.
#[inline(always)]
pub(super) fn add_product_of_panels<S: Simd>(
    simd: S,
    rows: usize,
    left: &[f32],
    stride: usize,
    right: &[f32],
    sums: &mut [f32],
) {
    match rows {
        1 => product_of_panels::<S, 1>(simd, left, stride, right, sums),
        2 => product_of_panels::<S, 2>(simd, left, stride, right, sums),
        3 => product_of_panels::<S, 3>(simd, left, stride, right, sums),
        4 => product_of_panels::<S, 4>(simd, left, stride, right, sums),
        5 => product_of_panels::<S, 5>(simd, left, stride, right, sums),
        _ => product_of_panels::<S, ROWS>(simd, left, stride, right, sums),
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn product_of_panels<S: Simd, const R: usize>(simd: S, left: &[f32], stride: usize, right: &[f32], sums: &mut [f32]) {
    let width = width::<S>();
    let mut tile = load::<S, R>(simd, sums);
    for (left, right) in left.chunks(stride).zip(right.chunks(width * width)) {
        let right = S::as_simd_f32s(right).0.as_chunks::<VECTORS>().0;
        let mut rows = [left; R];
        for row in 0..R {
            rows[row] = &left[row * width..][..right.len()];
        }
        for place in 0..right.len() {
            for row in 0..R {
                let times = simd.splat_f32s(rows[row][place]);
                for vector in 0..VECTORS {
                    tile[row][vector] = multiply_add(simd, times, right[place][vector], tile[row][vector]);
                }
            }
        }
    }
    store::<S, R>(tile, sums);
}

#[inline(always)]
fn load<S: Simd, const R: usize>(simd: S, sums: &[f32]) -> [[S::f32s; VECTORS]; R] {
    let mut tile = [[simd.splat_f32s(0.0); VECTORS]; R];
    for (tile, sums) in tile.iter_mut().zip(S::as_simd_f32s(sums).0.as_chunks().0) {
        *tile = *sums;
    }
    tile
}

#[inline(always)]
fn store<S: Simd, const R: usize>(tile: [[S::f32s; VECTORS]; R], sums: &mut [f32]) {
    let rows = S::as_mut_simd_f32s(sums).0.as_chunks_mut().0;
    for (sums, tile) in rows.iter_mut().zip(tile) {
        *sums = tile;
    }
}
