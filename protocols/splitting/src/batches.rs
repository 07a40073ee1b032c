//! Global batches that look uniformly drawn. Kohankhaki et al., *Parallel Split Learning with Global Sampling*,
//! arXiv:2407.15738: the server fixes the size of the global batch, and how much of it each client contributes follows from
//! drawing it uniformly, without replacement, from what all clients have left.

use rand_chacha::ChaCha8Rng;
use rand_distr::weighted::WeightedTreeIndex;
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

/// The most steps of a round: their sizes travel in one message.
pub const MOST_STEPS: usize = 30_000;

/// For each client, how many examples it contributes to each step of so many passes over all that there are, or of as many
/// passes as [`MOST_STEPS`] steps take. `pools` is what each has; each batch but the last of a pass has `global` examples.
pub fn global_batches(pools: &[u64], global: u64, passes: u32, random: &mut ChaCha8Rng) -> Vec<Vec<u32>> {
    let mut sizes = vec![Vec::new(); pools.len()];
    let steps = pools.iter().sum::<u64>().div_ceil(global.max(1));
    let mut left = MOST_STEPS as u64;
    for _ in 0..passes {
        let steps = steps.min(left);
        if steps == 0 {
            break;
        }
        left -= steps;
        // A weight that is a sum of counts of examples cannot overflow.
        let Ok(mut pool) = WeightedTreeIndex::new(pools) else {
            break;
        };
        for _ in 0..steps {
            sizes.iter_mut().for_each(|sizes| sizes.push(0));
            // A uniform draw without replacement: each example that is left is as likely as any other.
            for _ in 0..global {
                let Ok(client) = pool.try_sample(random) else { break };
                if pool.update(client, pool.get(client) - 1).is_err() {
                    break;
                }
                if let Some(size) = sizes[client].last_mut() {
                    *size += 1;
                }
            }
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
        let sizes = global_batches(&pools, 16, 1, &mut ChaCha8Rng::seed_from_u64(1));
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
        let sizes = global_batches(&pools, 10, 1, &mut ChaCha8Rng::seed_from_u64(2));
        let first: u32 = sizes[0][..500].iter().sum();
        assert!((4300..4700).contains(&first), "{first} of 5000");
    }

    #[test]
    fn small_clients_are_drawn_as_early_as_large_ones_wherever_they_stand() {
        for pools in [[100, 100, 5000, 5000], [5000, 5000, 100, 100]] {
            let sizes = global_batches(&pools, 100, 1, &mut ChaCha8Rng::seed_from_u64(3));
            let half = |client: usize| sizes[client][..51].iter().sum::<u32>();
            for (client, pool) in pools.iter().enumerate() {
                let (half, expected) = (f64::from(half(client)), *pool as f64 / 2.0);
                assert!((half - expected).abs() < 4.0 * expected.sqrt(), "{half} of {pool}");
            }
        }
    }

    #[test]
    fn passes_follow_one_another_whole_and_end_where_a_message_would() {
        let pools = [5, 8];
        let sizes = global_batches(&pools, 4, 3, &mut ChaCha8Rng::seed_from_u64(4));
        for (pool, sizes) in pools.iter().zip(&sizes) {
            assert_eq!(sizes.len(), 3 * 4);
            assert!(
                sizes
                    .chunks(4)
                    .all(|pass| pass.iter().map(|size| u64::from(*size)).sum::<u64>() == *pool)
            );
        }
        let sizes = global_batches(&[1 << 20, 3], 1, 5, &mut ChaCha8Rng::seed_from_u64(5));
        assert_eq!(sizes[0].len(), MOST_STEPS);
        assert_eq!(
            global_batches(&[0, 0], 4, 2, &mut ChaCha8Rng::seed_from_u64(6)),
            [[], []] as [[u32; 0]; 2]
        );
    }
}
