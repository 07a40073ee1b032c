//! One block for the whole cohort.

use super::partitioned::Partitioned;
use crate::plan::{Card, Dealer, Position, Seat};

/// The name of `rounds` in the position.
const ROUNDS: &str = "rounds";

/// In round t of pass e everybody trains block σ_e(t mod S); a client that trains several blocks at once, the next ones
/// of the pass too. A round that does not move the model is made up for.
#[derive(Debug)]
pub(super) struct SameForAll {
    blocks: u32,
    /// Rounds that have moved the model.
    rounds: u64,
}

impl SameForAll {
    pub(super) fn new(blocks: u32) -> Self {
        Self { blocks, rounds: 0 }
    }
}

impl Dealer for SameForAll {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        let blocks = u64::from(self.blocks);
        let (pass, t) = (1 + (self.rounds / blocks) as u32, (self.rounds % blocks) as usize);
        let order = Partitioned::shuffled(self.blocks, seed, pass);
        let card = |seat: &Seat| {
            let next = order
                .iter()
                .cycle()
                .skip(t)
                .take(Partitioned::at_once(self.blocks, seat.width));
            Card::new(seed, pass, seat.width, next.copied().collect())
        };
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        Position::from([(ROUNDS.into(), vec![self.rounds])])
    }

    fn resume(&mut self, position: Position) {
        self.rounds = position
            .get(ROUNDS)
            .and_then(|rounds| rounds.first().copied())
            .unwrap_or(0);
    }

    fn settle(&mut self, trained: &[bool]) {
        self.rounds += u64::from(trained.contains(&true));
    }
}
