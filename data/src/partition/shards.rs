//! Label skew by shards of label-sorted examples.

use rand_chacha::ChaCha8Rng;

/// Cuts `sorted` (examples sorted by label) into `clients` × `per_client` shards whose sizes differ by at most
/// one, and deals `per_client` random ones to each client. Of more shards than examples, most are empty.
pub(super) fn owners(sorted: &[u32], clients: usize, per_client: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    // Beyond the largest number (on small processors) further places would stay empty anyway.
    let shards = clients.saturating_mul(per_client);
    let filled = shards.min(sorted.len());
    let mut owners = vec![0; sorted.len()];
    // A place among all the shards dealt, for each that holds anything; places in random order.
    for (shard, place) in rand::seq::index::sample(rng, shards, filled).into_iter().enumerate() {
        let bound = |shard: usize| (shard as u128 * sorted.len() as u128 / filled as u128) as usize;
        for &example in &sorted[bound(shard)..bound(shard + 1)] {
            owners[example as usize] = (place / per_client) as u32;
        }
    }
    owners
}
