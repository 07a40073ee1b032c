//! The clients of a round whose models are cut: what becomes of their fronts and of the backs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_models::{ModelError, Pieces, SubModel, Weights};
use selvedge_protocols::{
    Card, ClientName, Description, Part, Rejection,
    description::Split,
    split::{FromClient, leader::Leaders},
};

use super::{
    Action, Fronts,
    collection::Collection,
    steps::{Backs, Stepper, Steps},
};
use crate::record::StepsRecord;

/// The clients of a round whose models are cut.
pub(super) struct Splitting {
    split: Split,
    steps: Steps,
    /// What the parts are of before they are cut, of clients with backs of their own.
    uncut: BTreeMap<usize, Arc<Part>>,
    /// The whole model, and how it is cut at each place, where there is one back for all.
    whole: Arc<Part>,
    pieces: BTreeMap<u32, Pieces>,
    /// The weights of the clients that were taken in, by where their models are cut.
    weights: BTreeMap<u32, f64>,
    /// Where clients take turns, what a front is of.
    front: Option<Arc<Part>>,
    fronts: Fronts,
    classes: BTreeMap<ClientName, Vec<u64>>,
    /// How long a step is predicted to take.
    predicted: Option<f64>,
}

/// What a client has trained of its part of the model.
pub(super) struct TrainedPart<'a> {
    /// Its place in the cohort.
    pub(super) at: usize,
    /// What it weighs in the mean; 0 when it has made no step.
    pub(super) weight: f64,
    pub(super) weights: Weights,
    pub(super) part: &'a Arc<Part>,
}

/// A part of the model that was trained for several clients at once.
pub(super) struct Shared {
    pub(super) weights: Weights,
    pub(super) coordinates: SubModel,
    /// What it weighs in the mean: as much as the clients together.
    pub(super) weight: f64,
}

/// What came of them.
pub(super) struct Ended {
    pub(super) shared: Vec<Shared>,
    pub(super) fronts: Fronts,
    pub(super) classes: BTreeMap<ClientName, Vec<u64>>,
    pub(super) leaders: Leaders,
    pub(super) record: StepsRecord,
    /// Of the steps' payloads, up and down.
    pub(super) bytes: (u64, u64),
}

impl Splitting {
    /// Those of a round's clients whose models are cut, with their backs; `None` when nobody's is.
    pub(super) fn open(
        description: &Arc<Description>,
        collection: &Collection,
        leaders: Leaders,
        now: Duration,
    ) -> Result<Option<Self>, ModelError> {
        let Some(split) = &description.split else {
            return Ok(None);
        };
        let (model, round) = (&collection.model, collection.record.round);
        let whole = model.all().clone();
        let mut known: BTreeMap<Card, Arc<Pieces>> = BTreeMap::new();
        let mut steppers = Vec::new();
        for (at, name) in collection.cohort.names().enumerate() {
            let card = collection.hands.card(at);
            if card.cut.is_none() {
                continue;
            }
            if !known.contains_key(card)
                && let Some(pieces) = &model.part(Some(card))?.pieces
            {
                known.insert(card.clone(), Arc::new(pieces.clone()));
            }
            if let Some(pieces) = known.get(card) {
                steppers.push(Stepper::new(name.clone(), at, pieces.clone()));
            }
        }
        let mut uncut = BTreeMap::new();
        let mut pieces = BTreeMap::new();
        for front in split.fronts() {
            pieces.insert(front, Pieces::of(&whole.model, split.cut_after(front))?);
        }
        let backs = match split.method.has_a_back_for_each() {
            true => {
                let mut backs = Backs::for_each(description, round);
                for (index, stepper) in steppers.iter().enumerate() {
                    let card = Card {
                        cut: None,
                        ..collection.hands.card(stepper.at).clone()
                    };
                    let part = model.part(Some(&card))?;
                    let coordinates = stepper.pieces.of_server(&part.coordinates);
                    backs.add(index, &stepper.pieces, &coordinates.extract(&model.whole().weights))?;
                    uncut.insert(stepper.at, part);
                }
                backs
            }
            false => {
                let first = pieces.values().next();
                let coordinates = first.map(|first| first.of_server(&whole.coordinates));
                let weights = coordinates.map(|coordinates| coordinates.extract(&model.whole().weights));
                Backs::shared(description, round, split, &weights.unwrap_or_default(), leaders.back)?
            }
        };
        let predicted = description.predicted_step(split.at_once(steppers.len()))?;
        Ok((!steppers.is_empty()).then(|| Self {
            predicted,
            split: split.clone(),
            steps: Steps::new(description, split, round, steppers, backs, leaders.fronts, now),
            uncut,
            whole,
            pieces,
            weights: BTreeMap::new(),
            front: None,
            fronts: Fronts::new(),
            classes: BTreeMap::new(),
        }))
    }

    /// Whether the model of the client at this place of the cohort is cut.
    pub(super) fn has(&self, at: usize) -> bool {
        self.steps.stepper(at).is_some()
    }

    /// How many steps the client at this place of the cohort was to make, as far as is known.
    pub(super) fn most_steps(&self, at: usize) -> Option<u64> {
        self.steps.stepper(at)?.steps
    }

    /// The mean training loss of the client at this place of the cohort, as the steps have met it.
    pub(super) fn loss(&self, at: usize) -> Option<f64> {
        self.steps.came_to(at).0
    }

    /// When somebody may have to be given up.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.steps.next_deadline()
    }

    /// A client says something in its steps.
    pub(super) fn said(
        &mut self,
        now: Duration,
        client: &ClientName,
        message: FromClient,
        payload: &[u8],
        actions: &mut Vec<Action>,
    ) {
        self.steps.said(now, client, message, payload, actions);
    }

    /// A client said something that cannot be of its steps.
    pub(super) fn misstepped(
        &mut self,
        now: Duration,
        client: &ClientName,
        reason: &Rejection,
        actions: &mut Vec<Action>,
    ) {
        self.steps.misstepped(now, client, reason, actions);
    }

    /// A client's connection is lost.
    pub(super) fn left(&mut self, now: Duration, client: &ClientName, actions: &mut Vec<Action>) {
        self.steps.left(now, client, actions);
    }

    /// Nothing more is expected of a client in this round.
    pub(super) fn give_up(&mut self, now: Duration, client: &ClientName, actions: &mut Vec<Action>) {
        self.steps.close(now, client, actions);
    }

    /// Goes on with what can be done without hearing anything new. Gives those whose turn is over before they have made it.
    /// The time of one that `is_handing_in`, by its place in the cohort, does not run out.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        is_handing_in: impl FnOnce(usize) -> bool,
        actions: &mut Vec<Action>,
    ) -> Vec<ClientName> {
        if self.steps.whose_turn().is_some_and(is_handing_in) {
            self.steps.renew_turn();
        }
        self.steps.advance(now, actions);
        self.steps.given_up()
    }

    /// Takes in what a client has trained of its part. Gives what is to be averaged with the others', if that is for it
    /// alone.
    pub(super) fn take(
        &mut self,
        now: Duration,
        trained: TrainedPart<'_>,
        actions: &mut Vec<Action>,
    ) -> Option<(Weights, Arc<Part>)> {
        let method = &*self.split.method;
        let TrainedPart {
            at,
            weight,
            weights,
            part,
        } = trained;
        if weight == 0.0 && !method.takes_turns() {
            return None;
        }
        let name = self.steps.stepper(at)?.name.clone();
        self.classes.insert(name.clone(), self.steps.came_to(at).1.to_vec());
        if let (Some(back), Some(uncut)) = (self.steps.own_back(at), self.uncut.get(&at)) {
            // A back alone, whose front has stayed with the client, is no part to be averaged.
            let pieces = part.pieces.as_ref()?;
            return Some((pieces.join(&weights, &back)?, uncut.clone()));
        }
        let front = part.pieces.as_ref()?.front.layers.len() as u32;
        *self.weights.entry(front).or_default() += weight;
        if method.keeps_fronts() {
            if self.steps.fronts_travel() {
                self.fronts.insert(name, (part.clone(), Arc::new(weights)));
            }
            return None;
        }
        if method.takes_turns() {
            self.front = Some(part.clone());
            self.steps.hand_on(now, at, weights, actions);
            return None;
        }
        Some((weights, part.clone()))
    }

    /// What came of them.
    pub(super) fn close(self) -> Ended {
        let mut shared = Vec::new();
        let up_to = |after: u32| self.weights.range(..=after).map(|(_, weight)| weight).sum::<f64>();
        for (after, weights) in self.steps.backs.segments() {
            let next = self.pieces.range(after + 1..).next().map(|(_, pieces)| pieces);
            let weight = up_to(after);
            if let Some(pieces) = self.pieces.get(&after).filter(|_| weight > 0.0) {
                let coordinates = pieces.of_segment(&self.whole.coordinates, next);
                shared.push(Shared {
                    weights,
                    coordinates,
                    weight,
                });
            }
        }
        let weight = up_to(u32::MAX);
        if let (Some(part), Some(front)) = (&self.front, self.steps.last_front().filter(|_| weight > 0.0)) {
            shared.push(Shared {
                weights: front.clone(),
                coordinates: part.coordinates.clone(),
                weight,
            });
        }
        let tally = &self.steps.tally;
        Ended {
            shared,
            fronts: self.fronts,
            classes: self.classes,
            leaders: Leaders {
                fronts: self.steps.leader().clone(),
                back: self.steps.backs.leader(),
            },
            bytes: (tally.bytes_up, tally.bytes_down),
            record: StepsRecord {
                made: tally.steps,
                seconds: tally.seconds_a_step(),
                predicted_seconds: self.predicted,
                lost: tally.lost.clone(),
                missed: tally.missed.clone(),
                agreement: tally.agreement(),
                led: tally.led.clone(),
            },
        }
    }
}
