//! Shuffled sub-models: the model is divided in advance, and the parts are dealt without replacement. Our instantiation
//! of the abstract of Deng, Qiao and Mahdavi, *On the Convergence and Stability of Distributed Sub-model Training*, 2025:
//! the partition of units, the dealing and the pairing of blocks are ours.

use rand::seq::SliceRandom;
use selvedge_words::{Purpose, Seed};
use serde::{Deserialize, Serialize};

use super::{deck::Deck, latin_square::LatinSquare, same_for_all::SameForAll, with_replacement::WithReplacement};
use crate::plan::{Card, Dealer, Plan, Width};

/// The units of each width group are dealt, once and for all, into S blocks of equal size (to within one unit). A
/// sub-model is a block of each group. A client of width k/S trains k sub-models as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partitioned {
    /// S, from 1 to 256.
    pub blocks: u32,
    /// How blocks are dealt to clients. Default `deck`.
    #[serde(default)]
    pub dealing: Dealing,
    /// Which blocks of different width groups make a sub-model. Default `redrawn`.
    #[serde(default)]
    pub pairing: Pairing,
}

/// How blocks are dealt to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dealing {
    /// From a shuffled deck, without replacement; a card whose client failed goes back.
    #[default]
    Deck,
    /// So that every client gets every block once in S rounds, and, when all take part, every round covers all blocks.
    LatinSquare,
    /// One block for the whole cohort, each once in S rounds.
    SameForAll,
    /// Each client draws from all blocks, whatever others have drawn.
    WithReplacement,
}

/// Which blocks of different width groups make a sub-model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Others in each pass over the blocks: in time, all weights between two groups are trained.
    #[default]
    Redrawn,
    /// The same always: weights between units of different blocks are never trained, and stay as they were drawn.
    Fixed,
}

/// The most blocks.
const MOST_BLOCKS: u32 = 256;

impl Partitioned {
    /// σ_e, the blocks in the order in which a pass goes over them.
    pub(super) fn shuffled(blocks: u32, seed: u64, pass: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..blocks).collect();
        order.shuffle(&mut Seed(seed).round_stream(Purpose::Dealing, pass));
        order
    }

    /// How many blocks a client of this width trains at once.
    pub(super) fn at_once(blocks: u32, width: Width) -> usize {
        ((width.0 * f64::from(blocks)).round() as usize).clamp(1, blocks as usize)
    }
}

impl Plan for Partitioned {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        let seed = Seed(card.seed);
        let units_of_block = |(group, &units): (u32, &usize)| {
            let mut dealt: Vec<u32> = (0..units as u32).collect();
            dealt.shuffle(&mut seed.part_stream(Purpose::Units, 0, group));
            let mut paired: Vec<u32> = (0..self.blocks).collect();
            if self.pairing == Pairing::Redrawn {
                paired.shuffle(&mut seed.part_stream(Purpose::Dealing, card.version, group));
            }
            let start = |block: u32| block as usize * units / self.blocks as usize;
            // A block that a card names twice is there once.
            let named = |block: &u32| card.blocks.contains(block);
            let blocks = (0..self.blocks).filter(named).map(|block| paired[block as usize]);
            let mut kept: Vec<u32> = blocks
                .flat_map(|block| &dealt[start(block)..start(block + 1)])
                .copied()
                .collect();
            kept.sort_unstable();
            kept
        };
        (0..).zip(groups).map(units_of_block).collect()
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        match self.dealing {
            Dealing::Deck => Box::new(Deck::new(self.blocks)),
            Dealing::LatinSquare => Box::new(LatinSquare::new(self.blocks)),
            Dealing::SameForAll => Box::new(SameForAll::new(self.blocks)),
            Dealing::WithReplacement => Box::new(WithReplacement { blocks: self.blocks }),
        }
    }

    fn specimen(&self, seed: u64, _: u32, width: Width) -> Card {
        let blocks = (0..Self::at_once(self.blocks, width) as u32).collect();
        Card::new(seed, 0, width, blocks)
    }

    fn blocks(&self) -> Option<u32> {
        Some(self.blocks)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let allowed = (1..=MOST_BLOCKS).contains(&self.blocks);
        (!allowed).then(|| ("blocks", format!("{} is not from 1 to {MOST_BLOCKS}", self.blocks)))
    }
}
