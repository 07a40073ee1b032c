//! Blocks from a shuffled deck, without replacement.

use std::collections::VecDeque;

use super::partitioned::Partitioned;
use crate::plan::{Card, Dealer, Seat};

/// Each client gets the next card; an empty deck is followed by another, shuffled anew. A card whose client failed goes
/// back under the deck, so that each pass is completed: every block is trained as often as every other.
///
/// A client that trains several blocks at once gets cards of one pass only; the last of a pass may be fewer.
#[derive(Debug)]
pub(super) struct Deck {
    blocks: u32,
    /// The pass of the last deck that was opened, from 1.
    pass: u32,
    /// (pass, block), the next to be dealt first.
    cards: VecDeque<(u32, u32)>,
    /// What each client of the round has.
    hands: Vec<Vec<(u32, u32)>>,
}

impl Deck {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            blocks,
            pass: 0,
            cards: VecDeque::new(),
            hands: Vec::new(),
        }
    }

    /// The next cards, at most `count`, all of one pass.
    fn hand(&mut self, seed: u64, count: usize) -> Vec<(u32, u32)> {
        if self.cards.is_empty() {
            self.pass += 1;
            let shuffled = Partitioned::shuffled(self.blocks, seed, self.pass);
            self.cards.extend(shuffled.into_iter().map(|block| (self.pass, block)));
        }
        let pass = self.cards.front().map(|(pass, _)| *pass);
        let of_pass = self
            .cards
            .iter()
            .take(count)
            .take_while(|(of, _)| Some(*of) == pass)
            .count();
        self.cards.drain(..of_pass).collect()
    }
}

impl Dealer for Deck {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        self.hands.clear();
        for seat in cohort {
            let hand = self.hand(seed, Partitioned::at_once(self.blocks, seat.width));
            self.hands.push(hand);
        }
        let card = |(seat, hand): (&Seat, &Vec<(u32, u32)>)| Card {
            seed,
            version: hand.first().map_or(0, |(pass, _)| *pass),
            width: seat.width,
            blocks: hand.iter().map(|(_, block)| *block).collect(),
        };
        cohort.iter().zip(&self.hands).map(card).collect()
    }

    fn settle(&mut self, trained: &[bool]) {
        let hands = std::mem::take(&mut self.hands);
        let failed = hands.into_iter().zip(trained).filter(|(_, trained)| !**trained);
        self.cards.extend(failed.flat_map(|(hand, _)| hand));
    }
}
