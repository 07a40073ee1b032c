//! Blocks drawn as if nobody else had drawn.

use rand::seq::index;
use selvedge_words::{Purpose, Seed};

use super::partitioned::Partitioned;
use crate::plan::{Card, Dealer, Position, Seat};

/// Each client of each round draws its block, or blocks, uniformly from all. The comparison that shows what dealing
/// without replacement brings.
#[derive(Debug)]
pub(super) struct WithReplacement {
    pub(super) blocks: u32,
}

impl Dealer for WithReplacement {
    fn deal(&mut self, seed: u64, round: u32, cohort: &[Seat]) -> Vec<Card> {
        let mut random = Seed(seed).round_stream(Purpose::Dealing, round);
        let card = |seat: &Seat| {
            let count = Partitioned::at_once(self.blocks, seat.width);
            let drawn = index::sample(&mut random, self.blocks as usize, count);
            let blocks = drawn.into_iter().map(|block| block as u32).collect();
            Card::new(seed, round, seat.width, blocks)
        };
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        Position::new()
    }

    fn resume(&mut self, _: Position) {}
}
