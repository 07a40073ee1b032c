//! The largest value of each window, and where it was.

use super::patches::Patches;

/// Writes the largest value of each window and its place in its channel's image. Of equals the first wins; a NaN wins
/// over everything, so that it is not hidden.
pub(crate) fn largest(patches: &Patches, input: &[f32], output: &mut [f32], winners: &mut [u32]) {
    let Patches {
        height,
        width,
        kernel,
        stride,
        out_height,
        out_width,
        ..
    } = *patches;
    let mut rows = output
        .chunks_exact_mut(out_width)
        .zip(winners.chunks_exact_mut(out_width));
    for image in input.chunks_exact(height * width) {
        for (row, (output, winners)) in rows.by_ref().take(out_height).enumerate() {
            let first = row * stride * width;
            if (kernel, stride) == (2, 2) {
                of_squares(&image[first..first + 2 * width], first, output, winners);
            } else {
                of_windows(patches, image, first, output, winners);
            }
        }
    }
}

/// Takes `value` where it is larger. Compiles to a selection, not a branch: which value wins cannot be predicted.
#[inline(always)]
fn challenge(best: &mut f32, winner: &mut u32, value: f32, at: usize) {
    let better = (value > *best) | value.is_nan();
    *winner = if better { at as u32 } else { *winner };
    *best = if better { value } else { *best };
}

/// A row of windows of 2x2, side by side in two rows of an image that begin at pixel `first`.
fn of_squares(image: &[f32], first: usize, output: &mut [f32], winners: &mut [u32]) {
    let width = image.len() / 2;
    let (top, bottom) = image.split_at(width);
    let squares = top.as_chunks::<2>().0.iter().zip(bottom.as_chunks::<2>().0);
    for (place, ((output, winner), (top, bottom))) in output.iter_mut().zip(winners).zip(squares).enumerate() {
        let at = first + 2 * place;
        (*output, *winner) = (top[0], at as u32);
        challenge(output, winner, top[1], at + 1);
        challenge(output, winner, bottom[0], at + width);
        challenge(output, winner, bottom[1], at + width + 1);
    }
}

/// A row of windows, the first of which begins at pixel `first`.
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
            challenge(best, winner, image[at], at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
