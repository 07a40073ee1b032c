//! What the clients of a round were dealt.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_models::ModelError;
use selvedge_protocols::{
    Card, ClientName, Description, Width,
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{expected_moments, expected_sections},
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
    /// What these cards come to, and which of them stand for no sub-model.
    pub(super) fn new(
        cards: Vec<Card>,
        description: &Arc<Description>,
        model: &GlobalModel,
    ) -> (Self, Vec<(usize, ModelError)>) {
        let mut unplayable = Vec::new();
        let mut known: BTreeMap<Card, Sections> = BTreeMap::new();
        let hands = cards.into_iter().enumerate().map(|(at, card)| {
            if let Some(sections) = known.get(&card) {
                let sections = sections.clone();
                return Hand { card, sections };
            }
            let part = model.part(Some(&card)).unwrap_or_else(|error| {
                unplayable.push((at, error));
                model.all().clone()
            });
            let part = &part.coordinates;
            let sections = Sections {
                expected: expected_sections(part, &*description.algorithm, &description.filters).into(),
                values: (part.parameters.count(), part.buffers.count()),
            };
            known.insert(card.clone(), sections.clone());
            Hand { card, sections }
        });
        let hands = Self {
            hands: hands.collect(),
            description: description.clone(),
        };
        (hands, unplayable)
    }

    /// What is asked of clients that calibrate.
    pub(super) fn of_moments(
        cards: Vec<Card>,
        description: &Arc<Description>,
        model: &GlobalModel,
    ) -> (Self, Vec<(usize, ModelError)>) {
        let (mut hands, mut unplayable) = Self::new(cards, description, model);
        let mut known: BTreeMap<Card, Arc<[SectionHeader]>> = BTreeMap::new();
        for (at, hand) in hands.hands.iter_mut().enumerate() {
            if let Some(expected) = known.get(&hand.card) {
                hand.sections.expected = expected.clone();
                continue;
            }
            match model.part(Some(&hand.card)).and_then(|part| part.model.layout()) {
                Ok(layout) => {
                    hand.sections.expected = expected_moments(&layout).into();
                    known.insert(hand.card.clone(), hand.sections.expected.clone());
                }
                Err(error) => unplayable.push((at, error)),
            }
        }
        (hands, unplayable)
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
