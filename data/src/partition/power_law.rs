//! Sizes by a power law.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::cut::cut;
use super::shuffled;

/// Deals the examples of each class to the clients that hold it, in proportion to rank^-exponent. The client of
/// rank r, counted from 0, holds the classes r, r + 1, … r + `each` - 1 (modulo their number).
pub(super) fn owners(
    by_class: &[Vec<u32>],
    clients: usize,
    each: usize,
    exponent: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<u32> {
    let classes = by_class.len();
    let client_of_rank = shuffled(clients, rng);
    let mut owners = vec![0; by_class.iter().map(Vec::len).sum()];
    for (class, examples) in by_class.iter().enumerate().filter(|(_, examples)| !examples.is_empty()) {
        let first_ranks = (0..each.min(classes)).map(|earlier| (class + classes - earlier) % classes);
        let mut ranks: Vec<usize> = first_ranks
            .flat_map(|first| (first..clients).step_by(classes))
            .collect();
        if ranks.is_empty() {
            ranks.push(class % clients);
        }
        // In relation to the first rank of them: however steep the law, one share is 1.
        let first = ranks.iter().copied().min().unwrap_or(0) as f64 + 1.0;
        let share = |&rank: &usize| ((rank as f64 + 1.0) / first).powf(-exponent);
        let shares: Vec<f64> = ranks.iter().map(share).collect();

        let mut examples = examples.clone();
        examples.shuffle(rng);
        for (&rank, range) in ranks.iter().zip(cut(examples.len(), &shares, rng)) {
            examples[range]
                .iter()
                .for_each(|&example| owners[example as usize] = client_of_rank[rank]);
        }
    }
    owners
}
