//! What a plan is: which sub-model each client of a round trains.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use selvedge_models::Cut;
use selvedge_words::ClientName;
use serde::{Deserialize, Serialize};

/// A share of the units of every width group, above 0 and at most 1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Width(pub f64);

impl Width {
    /// All units.
    pub const WHOLE: Self = Self(1.0);

    /// Whether it is above 0 and at most 1.
    pub fn is_possible(self) -> bool {
        self.0 > 0.0 && self.0 <= 1.0
    }
}

impl PartialEq for Width {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Width {}

impl PartialOrd for Width {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Width {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl fmt::Display for Width {
    /// As a fraction with 1 above the line, where it is one: `1/4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = self.0.recip().round();
        match below.recip() == self.0 {
            true if below == 1.0 => f.write_str("1"),
            true => write!(f, "1/{below}"),
            false => write!(f, "{}", self.0),
        }
    }
}

/// Names a sub-model. From it, the plan and the model both sides derive the same units: no list of them travels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Card {
    /// The plan's seed.
    pub seed: u64,
    /// Of plans that change: the round, or the pass over the blocks.
    pub version: u32,
    /// The share of units that the client can train.
    pub width: Width,
    /// Of plans that number their sub-models: which.
    pub blocks: Vec<u32>,
    /// Where the sub-model is cut, if it is: the card is that of what the client has of it.
    pub cut: Option<Cut>,
}

impl Card {
    /// The card of a sub-model that is not cut.
    pub fn new(seed: u64, version: u32, width: Width, blocks: Vec<u32>) -> Self {
        Self {
            seed,
            version,
            width,
            blocks,
            cut: None,
        }
    }
}

/// A client of a round's cohort, and how much of the model it can train.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// The client.
    pub client: ClientName,
    /// The share of units that it can train.
    pub width: Width,
}

/// Which sub-models there are.
///
/// Implementations are the settings themselves, read from `plan` of `[sub_models]`.
pub trait Plan: Send + Sync {
    /// Which units of width groups of these sizes the sub-model of a card keeps, ascending.
    fn units(&self, card: &Card, groups: &[usize]) -> Vec<Vec<u32>>;

    /// Whoever deals the cards of a run.
    fn dealer(&self) -> Box<dyn Dealer>;

    /// A sub-model of this width that stands for all of them when the model is evaluated after a round.
    fn specimen(&self, seed: u64, round: u32, width: Width) -> Card {
        Card::new(seed, round, width, vec![0])
    }

    /// Of a plan that divides the model in advance, the number of blocks: widths are whole numbers of them.
    fn blocks(&self) -> Option<u32> {
        None
    }

    /// Whether everybody trains the whole model, whatever it can train.
    fn trains_whole(&self) -> bool {
        false
    }

    /// Whether its units are numbered by their norms in the global model, the largest first, which clients do not know.
    fn ranks_units(&self) -> bool {
        false
    }

    /// Whether a client trains another width, up to its own, in each step.
    fn draws_widths(&self) -> bool {
        false
    }

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// Deals cards, round by round.
pub trait Dealer: Send {
    /// A card for each client of a round's cohort, which comes in the order of the clients' names.
    fn deal(&mut self, seed: u64, round: u32, cohort: &[Seat]) -> Vec<Card>;

    /// The round is over: for each card dealt, whether its update was taken in and moved the model.
    fn settle(&mut self, trained: &[bool]) {
        let _ = trained;
    }

    /// Between two rounds, where it is: what [`resume`](Self::resume) goes on from. Nothing, for one whose cards
    /// follow from the round.
    fn position(&self) -> Position;

    /// Goes on from where another one of the same plan was.
    fn resume(&mut self, position: Position);
}

/// Where a dealer is, in numbers by name: `pass`, `client-3`, ….
pub type Position = BTreeMap<String, Vec<u64>>;
