//! What the clients of a round were dealt.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_models::ModelError;
use selvedge_protocols::{
    Card, ClientName, Description, Part, Width,
    message::Task,
    sections::{SectionHeader, packed_bytes},
};

use super::{Action, GlobalModel};
use crate::record::RoundRecord;

/// What the clients of a round were dealt, in the order of the cohort.
#[derive(Debug)]
pub(super) struct Hands {
    description: Arc<Description>,
    hands: Vec<Hand>,
}

#[derive(Clone, Debug)]
struct Hand {
    card: Card,
    sections: Sections,
}

/// What travels of a sub-model.
#[derive(Clone, Debug)]
struct Sections {
    /// What the update must have.
    expected: Arc<[SectionHeader]>,
    /// Parameters and buffers.
    values: (usize, usize),
}

impl Hands {
    /// What these cards come to, and which of them stand for no sub-model; `expected` says what the answer of a part must
    /// have.
    pub(super) fn new(
        cards: Vec<Card>,
        description: &Arc<Description>,
        model: &GlobalModel,
        expected: impl Fn(&Part) -> Result<Vec<SectionHeader>, ModelError>,
    ) -> (Self, Vec<(usize, ModelError)>) {
        let sections = |part: &Part| {
            let (parameters, buffers) = (&part.coordinates.parameters, &part.coordinates.buffers);
            Ok(Sections {
                expected: expected(part)?.into(),
                values: (parameters.count(), buffers.count()),
            })
        };
        let mut unplayable = Vec::new();
        let mut known: BTreeMap<Card, Sections> = BTreeMap::new();
        let mut hand = |at, card: Card| {
            if let Some(sections) = known.get(&card) {
                let sections = sections.clone();
                return Hand { card, sections };
            }
            let sections = match model.part(Some(&card)).and_then(|part| sections(&part)) {
                Ok(sections) => {
                    known.insert(card.clone(), sections.clone());
                    sections
                }
                Err(error) => {
                    unplayable.push((at, error));
                    // Nothing is sent, and no answer is in order.
                    let (expected, values) = (Arc::default(), (0, 0));
                    Sections { expected, values }
                }
            };
            Hand { card, sections }
        };
        let hands = cards.into_iter().enumerate().map(|(at, card)| hand(at, card)).collect();
        let description = description.clone();
        (Self { hands, description }, unplayable)
    }

    pub(super) fn card(&self, at: usize) -> &Card {
        &self.hands[at].card
    }

    pub(super) fn width(&self, at: usize) -> Width {
        self.hands[at].card.width
    }

    /// What the update of a client must have.
    pub(super) fn expected(&self, at: usize) -> &Arc<[SectionHeader]> {
        &self.hands[at].sections.expected
    }

    /// Asks a client to do something with its part.
    pub(super) fn ask(
        &self,
        at: usize,
        client: &ClientName,
        round: u32,
        task: Task,
        model: &Arc<GlobalModel>,
    ) -> Action {
        Action::Ask {
            client: client.clone(),
            round,
            task,
            card: self.hands[at].card.clone(),
            model: model.clone(),
        }
    }

    /// Counts the bytes of what a client was sent of `model`.
    pub(super) fn count_down(&self, at: usize, record: &mut RoundRecord, model: &GlobalModel) {
        let Hand { card, sections } = &self.hands[at];
        let (parameters, buffers) = sections.values;
        let bytes = packed_bytes(&model.whole().headers_of(parameters, buffers)).unwrap_or(0);
        record.bytes_down = record.bytes_down.saturating_add(bytes);
        if let Some(width) = record.width(card.width, &self.description) {
            width.bytes_down = width.bytes_down.saturating_add(bytes);
        }
    }

    /// Counts the bytes of what was received of a client.
    pub(super) fn count_up(&self, at: usize, record: &mut RoundRecord) {
        let Hand { card, sections } = &self.hands[at];
        let bytes = packed_bytes(&sections.expected).unwrap_or(0);
        record.bytes_up += bytes;
        if let Some(width) = record.width(card.width, &self.description) {
            width.bytes_up += bytes;
        }
    }

    /// The hands of some of the cohort.
    pub(super) fn of(&self, members: &[usize]) -> Self {
        Self {
            description: self.description.clone(),
            hands: members.iter().map(|at| self.hands[*at].clone()).collect(),
        }
    }
}
