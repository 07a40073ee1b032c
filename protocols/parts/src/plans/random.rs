//! Federated dropout. Caldas et al., *Expanding the Reach of Federated Learning by Reducing Client Resource
//! Requirements*, 2018.

use rand::seq::index;
use selvedge_words::{Purpose, Seed};
use serde::{Deserialize, Serialize};

use super::kept;
use crate::plan::{Card, Dealer, Position, Plan, Seat, Width};

/// A client of width p trains ⌈pK⌉ of the K units of each width group, drawn for it in every round. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {}

impl Plan for Random {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        let draw = card.blocks.first().copied().unwrap_or(0);
        let mut random = Seed(card.seed).part_stream(Purpose::Units, card.version, draw);
        let draw = |&units: &usize| {
            let drawn = index::sample(&mut random, units, kept(units, card) as usize);
            let mut drawn: Vec<u32> = drawn.into_iter().map(|unit| unit as u32).collect();
            drawn.sort_unstable();
            drawn
        };
        groups.iter().map(draw).collect()
    }

    /// A draw that no client has.
    fn specimen(&self, seed: u64, round: u32, width: Width) -> Card {
        Card::new(seed, round, width, vec![u32::MAX])
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(self.clone())
    }
}

impl Dealer for Random {
    fn deal(&mut self, seed: u64, round: u32, cohort: &[Seat]) -> Vec<Card> {
        let card = |(seat, draw): (&Seat, u32)| Card::new(seed, round, seat.width, vec![draw]);
        cohort.iter().zip(0..).map(card).collect()
    }

    fn position(&self) -> Position {
        Position::new()
    }

    fn resume(&mut self, _: Position) {}
}
