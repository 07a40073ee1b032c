//! Nested sub-models. Diao et al., *HeteroFL: Computation and Communication Efficient Federated Learning for
//! Heterogeneous Clients*, ICLR 2021.

use serde::{Deserialize, Serialize};

use super::kept;
use crate::plan::{Card, Dealer, Position, Plan, Seat};

/// A client of width p trains the first ⌈pK⌉ of the K units of each width group, in every round. The first units are
/// trained by all, the last by the strongest clients only. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Static {}

impl Plan for Static {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        groups.iter().map(|&units| (0..kept(units, card)).collect()).collect()
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(self.clone())
    }
}

impl Dealer for Static {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        let card = |seat: &Seat| Card::new(seed, 0, seat.width, vec![]);
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        Position::new()
    }

    fn resume(&mut self, _: Position) {}
}
