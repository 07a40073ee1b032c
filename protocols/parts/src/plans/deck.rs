//! Blocks from a shuffled deck, without replacement.

use std::collections::{BTreeMap, VecDeque};

use super::partitioned::Partitioned;
use crate::plan::{Card, Dealer, Position, Seat};

/// Each client gets the next card; an empty deck is followed by another, shuffled anew. A card whose client failed goes
/// back under its deck, so that each pass is completed: every block is trained as often as every other.
///
/// A client that trains several blocks at once gets them from one deck. Where too few are left of those that are open,
/// another is opened for it, and what is left goes to others; only when many are open does it get fewer.
#[derive(Debug)]
pub(super) struct Deck {
    blocks: u32,
    /// The last pass whose deck was opened, from 1.
    pass: u32,
    /// What is left of each deck, by pass; the next to be dealt first.
    open: BTreeMap<u32, VecDeque<u32>>,
    /// What each client of the round has: the pass, and its blocks.
    hands: Vec<(u32, Vec<u32>)>,
}

/// The last pass, in the deck's position; the others are the cards of each pass that is open.
const PASS: &str = "pass";

/// Decks that may be open at a time for the sake of clients that train several blocks at once.
const MOST_OPEN: usize = 8;

impl Deck {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            blocks,
            pass: 0,
            open: BTreeMap::new(),
            hands: Vec::new(),
        }
    }

    /// The next `count` cards of the first deck that has as many.
    fn hand(&mut self, seed: u64, count: usize) -> (u32, Vec<u32>) {
        let has_enough = self.open.iter().find(|(_, deck)| deck.len() >= count);
        let pass = match (has_enough, self.open.first_key_value()) {
            (Some((pass, _)), _) => *pass,
            (None, Some((oldest, _))) if self.open.len() >= MOST_OPEN => *oldest,
            _ => {
                self.pass += 1;
                let shuffled = Partitioned::shuffled(self.blocks, seed, self.pass);
                self.open.insert(self.pass, shuffled.into());
                self.pass
            }
        };
        let deck = self.open.entry(pass).or_default();
        let blocks = deck.drain(..count.min(deck.len())).collect();
        self.open.retain(|_, deck| !deck.is_empty());
        (pass, blocks)
    }
}

impl Dealer for Deck {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        self.hands.clear();
        for seat in cohort {
            let hand = self.hand(seed, Partitioned::at_once(self.blocks, seat.width));
            self.hands.push(hand);
        }
        let card =
            |(seat, (pass, blocks)): (&Seat, &(u32, Vec<u32>))| Card::new(seed, *pass, seat.width, blocks.clone());
        cohort.iter().zip(&self.hands).map(card).collect()
    }

    fn position(&self) -> Position {
        let deck = |(pass, deck): (&u32, &VecDeque<u32>)| {
            let cards = deck.iter().map(|card| u64::from(*card)).collect();
            (pass.to_string(), cards)
        };
        let pass = (PASS.into(), vec![u64::from(self.pass)]);
        self.open.iter().map(deck).chain([pass]).collect()
    }

    fn resume(&mut self, mut position: Position) {
        let pass = position.remove(PASS).and_then(|pass| pass.first().copied());
        self.pass = pass.map_or(0, |pass| pass as u32);
        let deck = |(pass, cards): (String, Vec<u64>)| {
            let cards = cards.into_iter().map(|card| card as u32).collect();
            Some((pass.parse().ok()?, cards))
        };
        self.open = position.into_iter().filter_map(deck).collect();
    }

    fn settle(&mut self, trained: &[bool]) {
        let hands = std::mem::take(&mut self.hands);
        for ((pass, blocks), trained) in hands.into_iter().zip(trained) {
            if !trained {
                self.open.entry(pass).or_default().extend(blocks);
            }
        }
    }
}
