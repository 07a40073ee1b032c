//! Cuts a number of examples into shares, exactly.

use std::ops::Range;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Cuts `0..count` into consecutive ranges, as long as `shares` say in relation to their sum, which must be
/// positive and finite.
///
/// The cuts fall on ⌊cumulative share + u⌋ with one u from [0, 1) for all of them (systematic sampling): a range
/// is its share rounded up or down and equal to it on average, and the ranges end at `count` exactly. A u of its
/// own for each class keeps small shares of several classes from falling on the same clients.
pub(super) fn cut<'a>(
    count: usize,
    shares: &'a [f64],
    rng: &mut ChaCha8Rng,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let total: f64 = shares.iter().sum();
    let phase: f64 = rng.random();
    let (mut sum, mut begin) = (0.0, 0);
    shares.iter().map(move |share| {
        sum += share;
        let end = ((sum / total * count as f64 + phase) as usize).min(count);
        let range = begin..end;
        begin = end;
        range
    })
}
