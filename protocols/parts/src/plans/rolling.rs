//! Rolling sub-models. Alam et al., *FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
//! Extraction*, NeurIPS 2022, equation 2.

use serde::{Deserialize, Serialize};

use super::kept;
use crate::plan::{Card, Dealer, Position, Plan, Seat};

/// In round t (from 0) a client of width p trains the ⌈pK⌉ of the K units of each width group that begin at t mod K,
/// going on at the first after the last. No settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rolling {}

impl Plan for Rolling {
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>> {
        let window = |&units: &usize| {
            let first = card.version.saturating_sub(1) % units as u32;
            let mut window: Vec<u32> = (first..first + kept(units, card)).map(|unit| unit % units as u32).collect();
            window.sort_unstable();
            window
        };
        groups.iter().map(window).collect()
    }

    fn dealer(&self) -> Box<dyn Dealer> {
        Box::new(self.clone())
    }
}

impl Dealer for Rolling {
    fn deal(&mut self, seed: u64, round: u32, cohort: &[Seat]) -> Vec<Card> {
        let card = |seat: &Seat| Card::new(seed, round, seat.width, vec![]);
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        Position::new()
    }

    fn resume(&mut self, _: Position) {}
}
