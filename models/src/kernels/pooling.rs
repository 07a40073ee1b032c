//! The largest value of each window, and where it was.

use pulp::{Simd, WithSimd};

use super::{dispatch, patches::Patches};

/// Writes the largest value of each window and its place in its channel's image. Of equals the first wins; a NaN wins
/// over everything, so that it is not hidden.
pub(crate) fn largest(patches: &Patches, input: &[f32], output: &mut [f32], winners: &mut [u32]) {
    dispatch(Largest {
        patches,
        input,
        output,
        winners,
    });
}

struct Largest<'a> {
    patches: &'a Patches,
    input: &'a [f32],
    output: &'a mut [f32],
    winners: &'a mut [u32],
}

impl WithSimd for Largest<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Patches {
            height,
            width,
            kernel,
            stride,
            out_height,
            out_width,
            ..
        } = *self.patches;
        let mut rows = self
            .output
            .chunks_exact_mut(out_width)
            .zip(self.winners.chunks_exact_mut(out_width));
        for image in self.input.chunks_exact(height * width) {
            for (row, (output, winners)) in rows.by_ref().take(out_height).enumerate() {
                let first = row * stride * width;
                if (kernel, stride) == (2, 2) {
                    of_squares(&image[first..first + 2 * width], first, output, winners);
                } else {
                    of_windows(self.patches, image, first, output, winners);
                }
            }
        }
    }
}

/// The winner of a value and one that comes after it, with their places. Compiles to a selection, not a branch: which
/// of them wins cannot be predicted.
#[inline(always)]
fn larger((best, winner): (f32, u32), (value, at): (f32, u32)) -> (f32, u32) {
    let is_better = (value > best) | value.is_nan();
    (
        if is_better { value } else { best },
        if is_better { at } else { winner },
    )
}

/// A row of windows of 2x2, side by side in two rows of an image that begin at pixel `first`.
#[inline(always)]
fn of_squares(image: &[f32], first: usize, output: &mut [f32], winners: &mut [u32]) {
    let (top, bottom) = image.split_at(image.len() / 2);
    let squares = Squares {
        top: top.as_chunks::<2>().0,
        bottom: bottom.as_chunks::<2>().0,
        first: first as u32,
        below: (first + top.len()) as u32,
    };
    match output.len() {
        8.. => squares.by::<8>(output, winners),
        4.. => squares.by::<4>(output, winners),
        _ => squares.by::<1>(output, winners),
    }
}

struct Squares<'a> {
    top: &'a [[f32; 2]],
    bottom: &'a [[f32; 2]],
    first: u32,
    below: u32,
}

impl Squares<'_> {
    /// Takes `N` squares at a time, which fill vectors; the last ones overlap with those before them.
    #[inline(always)]
    fn by<const N: usize>(&self, output: &mut [f32], winners: &mut [u32]) {
        let last = output.len() - N;
        for start in (0..last).step_by(N).chain([last]) {
            let top = self.top[start..].first_chunk::<N>();
            let bottom = self.bottom[start..].first_chunk::<N>();
            let output = output[start..].first_chunk_mut::<N>();
            let winners = winners[start..].first_chunk_mut::<N>();
            if let (Some(top), Some(bottom), Some(output), Some(winners)) = (top, bottom, output, winners) {
                for place in 0..N {
                    let at = 2 * (start + place) as u32;
                    let (upper, lower) = (self.first + at, self.below + at);
                    let upper = larger((top[place][0], upper), (top[place][1], upper + 1));
                    let lower = larger((bottom[place][0], lower), (bottom[place][1], lower + 1));
                    (output[place], winners[place]) = larger(upper, lower);
                }
            }
        }
    }
}

/// A row of windows, the first of which begins at pixel `first`.
#[inline(always)]
fn of_windows(patches: &Patches, image: &[f32], first: usize, output: &mut [f32], winners: &mut [u32]) {
    let (kernel, stride) = (patches.kernel, patches.stride);
    output.fill(f32::NEG_INFINITY);
    for (place, winner) in winners.iter_mut().enumerate() {
        *winner = (first + place * stride) as u32;
    }
    for pixel in 0..kernel * kernel {
        let start = first + pixel / kernel * patches.width + pixel % kernel;
        for (place, (best, winner)) in output.iter_mut().zip(&mut *winners).enumerate() {
            let at = start + place * stride;
            (*best, *winner) = larger((*best, *winner), (image[at], at as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::with_lanes;
    use proptest::prelude::*;

    fn pooled(kernel: usize, stride: usize, image: [[f32; 4]; 4]) -> (Vec<f32>, Vec<u32>) {
        let out = (4 - kernel) / stride + 1;
        let patches = Patches {
            channels: 1,
            height: 4,
            width: 4,
            kernel,
            stride,
            padding: 0,
            out_height: out,
            out_width: out,
        };
        let (mut output, mut winners) = (vec![0.0; out * out], vec![0; out * out]);
        largest(&patches, image.as_flattened(), &mut output, &mut winners);
        (output, winners)
    }

    #[test]
    fn of_equals_the_first_wins() {
        let image = [
            [1.0, 1.0, 0.0, 2.0],
            [1.0, 1.0, 2.0, 0.0],
            [f32::NEG_INFINITY; 4],
            [f32::NEG_INFINITY; 4],
        ];
        let (output, winners) = pooled(2, 2, image);
        assert_eq!(output, [1.0, 2.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
        assert_eq!(winners, [0, 3, 8, 10]);
        let (output, winners) = pooled(2, 1, image);
        assert_eq!(output[..3], [1.0, 2.0, 2.0]);
        assert_eq!(winners[..3], [0, 6, 3]);
        assert_eq!(winners[6..], [8, 9, 10]);
    }

    #[test]
    fn a_nan_is_not_hidden() {
        for at in 0..4 {
            let mut image = [[1.0; 4]; 4];
            image[at / 2][at % 2] = f32::NAN;
            for stride in [1, 2] {
                let (output, winners) = pooled(2, stride, image);
                assert!(output[0].is_nan());
                assert_eq!(winners[0] as usize, at / 2 * 4 + at % 2);
            }
        }
    }

    proptest! {
        #[test]
        fn squares_are_windows_of_two_by_two(
            (height, width) in (2usize..8, 2usize..40),
            seed in 1usize..1000,
            lanes in prop_oneof![Just(0usize), Just(1), Just(4), Just(16)],
        ) {
            let (out_height, out_width) = (height / 2, width / 2);
            let patches = Patches {
                channels: 2, height, width, kernel: 2, stride: 2, padding: 0, out_height, out_width,
            };
            let value = |index: usize| match (index * seed) % 11 {
                10 => f32::NAN,
                value => (value % 4) as f32,
            };
            let input: Vec<f32> = (0..patches.image()).map(value).collect();
            let (mut output, mut winners) = (vec![0.0; 2 * patches.places()], vec![0; 2 * patches.places()]);
            with_lanes(lanes, || largest(&patches, &input, &mut output, &mut winners));
            let images = input.chunks_exact(height * width);
            let pooled = output.chunks_exact(patches.places()).zip(winners.chunks_exact(patches.places()));
            for (image, (output, winners)) in images.zip(pooled) {
                for row in 0..out_height {
                    let mut expected = (vec![0.0; out_width], vec![0; out_width]);
                    of_windows(&patches, image, 2 * row * width, &mut expected.0, &mut expected.1);
                    let range = row * out_width..(row + 1) * out_width;
                    prop_assert_eq!(&winners[range.clone()], expected.1);
                    for (value, expected) in output[range].iter().zip(expected.0) {
                        prop_assert_eq!(value.to_bits(), expected.to_bits());
                    }
                }
            }
        }
    }
}
