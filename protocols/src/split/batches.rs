//! Global batches that look uniformly drawn. Kohankhaki et al., *Parallel Split Learning with Global Sampling*,
//! arXiv:2407.15738: the server fixes the size of the global batch, and how much of it each client contributes follows from
//! drawing it uniformly, without replacement, from what all clients have left.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Hypergeometric};
use serde::{Deserialize, Serialize};

/// Who says how many examples a client contributes to a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchSizes {
    /// The client: `training.batch_size`, as long as it has examples.
    #[default]
    Local,
    /// The server: of each global batch, of `training.batch_size` examples for each client of the cohort, as many as a
    /// uniform draw from all clients' examples gives it.
    Global,
}

/// The most steps of a pass: their sizes travel in one message.
pub const MOST_STEPS: usize = 30_000;

/// For each client, how many examples it contributes to each step of a pass over all that there are, or over as many as
/// [`MOST_STEPS`] steps take. `pools` is what each has; each batch but the last has `global` examples.
pub fn global_batches(pools: &[u64], global: u64, random: &mut ChaCha8Rng) -> Vec<Vec<u32>> {
    let mut left = pools.to_vec();
    let mut sizes = vec![Vec::new(); pools.len()];
    let mut all: u64 = pools.iter().sum();
    for _ in 0..MOST_STEPS {
        if all == 0 {
            break;
        }
        // A uniform draw without replacement, one client after the other: of those that are not yet drawn, as many are a
        // client's as a hypergeometric variable says.
        let (mut wanted, mut others) = (global.min(all), all);
        all -= wanted;
        for (left, sizes) in left.iter_mut().zip(&mut sizes) {
            let drawn = match Hypergeometric::new(others, *left, wanted) {
                Ok(draw) if wanted > 0 && *left > 0 => draw.sample(random),
                _ => 0,
            };
            others -= *left;
            *left -= drawn;
            wanted -= drawn;
            sizes.push(u32::try_from(drawn).unwrap_or(u32::MAX));
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_example_is_used_once_and_batches_are_as_large_as_asked() {
        let pools = [100, 0, 7, 33];
        let sizes = global_batches(&pools, 16, &mut ChaCha8Rng::seed_from_u64(1));
        for (pool, sizes) in pools.iter().zip(&sizes) {
            assert_eq!(sizes.iter().map(|size| u64::from(*size)).sum::<u64>(), *pool);
        }
        let batch = |step: usize| sizes.iter().map(|sizes| sizes[step]).sum::<u32>();
        let steps = sizes[0].len();
        assert_eq!(steps, 9);
        assert!((0..steps - 1).all(|step| batch(step) == 16));
        assert_eq!(batch(steps - 1), 140 - 8 * 16);
    }

    #[test]
    fn a_client_contributes_by_what_it_has() {
        let pools = [9000, 1000];
        let sizes = global_batches(&pools, 10, &mut ChaCha8Rng::seed_from_u64(2));
        let first: u32 = sizes[0][..500].iter().sum();
        assert!((4300..4700).contains(&first), "{first} of 5000");
    }
}
