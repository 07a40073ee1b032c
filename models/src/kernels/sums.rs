//! Sums of long rows, in a fixed order that fills vector registers and keeps rounding small.

const LANES: usize = 16;

/// The sum of the values.
pub(crate) fn sum(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// The sum of the squares of the values' distances from `centre`.
pub(crate) fn squares_about(values: &[f32], centre: f32) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += (value - centre) * (value - centre);
        }
    }
    let rest = rest.iter().map(|value| (value - centre) * (value - centre));
    lanes.iter().sum::<f32>() + rest.sum::<f32>()
}

/// The sum of `weights` times the distances of the values from `centre`.
pub(crate) fn weighted_about(values: &[f32], centre: f32, weights: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let (weight_blocks, weight_rest) = weights.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (block, weights) in blocks.iter().zip(weight_blocks) {
        for ((lane, value), weight) in lanes.iter_mut().zip(block).zip(weights) {
            *lane += weight * (value - centre);
        }
    }
    let rest = rest
        .iter()
        .zip(weight_rest)
        .map(|(value, weight)| weight * (value - centre));
    lanes.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_small_whole_numbers_are_exact_at_any_length() {
        for length in [0, 1, 15, 16, 17, 40] {
            let values: Vec<f32> = (0..length).map(|value| value as f32).collect();
            let expect = |f: fn(f32) -> f32| values.iter().map(|value| f(*value)).sum::<f32>();
            assert_eq!(sum(&values), expect(|value| value));
            assert_eq!(
                squares_about(&values, 3.0),
                expect(|value| (value - 3.0) * (value - 3.0))
            );
            assert_eq!(
                weighted_about(&values, 2.0, &values),
                expect(|value| value * (value - 2.0))
            );
        }
    }
}
