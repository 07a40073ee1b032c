//! A client's examples, batch by batch.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use selvedge_protocols::description::Training;

/// Passes over a client's examples, each in an order of its own, batch by batch. The last batch of a pass may be smaller.
pub(crate) struct Batches {
    order: Vec<u32>,
    /// Where the next batch of this pass begins.
    at: usize,
    size: usize,
    /// Batches still to come.
    left: u64,
}

impl Batches {
    /// What the description asks for, on these examples.
    pub(crate) fn new(training: &Training, examples: &[u32]) -> Self {
        Self {
            order: examples.to_vec(),
            at: examples.len(),
            size: training.batch_size,
            left: training.steps_on(examples.len()),
        }
    }

    /// Makes as many batches as the server says, whatever the description asks for.
    pub(crate) fn follow(&mut self, batches: usize) {
        self.left = batches as u64;
    }

    /// The next batch, of `size` examples where that is given. Orders are drawn from `random`.
    pub(crate) fn next(&mut self, size: Option<usize>, random: &mut ChaCha8Rng) -> Option<&[u32]> {
        self.left = self.left.checked_sub(1)?;
        if self.at == self.order.len() {
            self.order.shuffle(random);
            self.at = 0;
        }
        let rest = &self.order[self.at..];
        let batch = &rest[..size.unwrap_or(self.size).min(rest.len())];
        self.at += batch.len();
        Some(batch)
    }
}
