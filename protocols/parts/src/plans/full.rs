//! No sub-models: federated learning as it usually is.

use serde::{Deserialize, Serialize};

use crate::plan::{Card, Dealer, Position, Plan, Seat, Width};

/// Everybody trains the whole model, whatever it can train. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Full {}

impl Plan for Full {
    fn units(&self, _: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        groups.iter().map(|&units| (0..units as u32).collect()).collect()
    }

    fn trains_whole(&self) -> bool {
        true
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(self.clone())
    }
}

impl Dealer for Full {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        let card = |_: &Seat| Card::new(seed, 0, Width::WHOLE, vec![]);
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        Position::new()
    }

    fn resume(&mut self, _: Position) {}
}
