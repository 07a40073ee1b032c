//! A buffer of updates by which the model is to move.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{
    Card, ClientName, Description,
    aggregation::{Aggregator, Contribution, Coverage},
    staleness::carry,
};

use super::{
    Fronts, GlobalModel, Opened,
    cohort::{Cohort, Status},
    collection::Collection,
    hands::Hands,
    phase::Moment,
    run::Run,
    training::{Closed, WeightedLoss, combine},
    units::UnitCounts,
};
use crate::record::RoundRecord;

/// The name under which the staleness of updates is in the records.
const STALENESS: &str = "buffer.staleness";
/// The name under which their weights are.
const WEIGHT: &str = "buffer.weight";

/// The updates that have come since the model last moved.
pub(super) struct Filling {
    started: Duration,
    description: Arc<Description>,
    aggregator: Box<dyn Aggregator>,
    coverage: Coverage,
    units: UnitCounts,
    loss: WeightedLoss,
    /// Whose updates they are, what each was dealt, and the round in which it was asked.
    contributors: BTreeMap<ClientName, (Card, u32)>,
    pub(super) record: RoundRecord,
}

impl Filling {
    /// None yet.
    pub(super) fn begin(run: &Run, now: Duration) -> Self {
        Self {
            started: now,
            description: run.description.clone(),
            aggregator: run.description.rule().begin(),
            coverage: Coverage::default(),
            units: UnitCounts::none(run.parts.whole()),
            loss: WeightedLoss::default(),
            contributors: BTreeMap::new(),
            record: RoundRecord {
                round: run.round,
                ..RoundRecord::default()
            },
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.contributors.len()
    }

    /// Whether a client's update of a round is among them.
    pub(super) fn has(&self, client: &ClientName, round: u32) -> bool {
        self.contributors.get(client).is_some_and(|(_, asked)| *asked == round)
    }

    /// Whose they are, and in which rounds they were asked.
    pub(super) fn versions(&self) -> Vec<(ClientName, u32)> {
        let version = |(client, (_, round)): (&ClientName, &(Card, u32))| (client.clone(), *round);
        self.contributors.iter().map(version).collect()
    }

    /// Takes an update in. The change of a stale one, weighted, is made to the model as it is `now`; one that is not stale is
    /// left as it is, to the bit.
    pub(super) fn fold(
        &mut self,
        client: &ClientName,
        collection: &Collection,
        opened: Opened,
        now: &GlobalModel,
        staleness: u32,
    ) {
        let Opened {
            mut update,
            part,
            mut metrics,
        } = opened;
        let settings = self
            .description
            .buffer
            .map(|buffer| buffer.staleness)
            .unwrap_or_default();
        let staleness_weight = settings.weight(staleness);
        if staleness > 0 {
            let (then, now) = (collection.model.broadcast(&part), now.broadcast(&part));
            carry(
                &mut update.trained.weights,
                &then.weights,
                &now.weights,
                staleness_weight,
            );
        }
        metrics.insert(STALENESS.into(), staleness.into());
        metrics.insert(WEIGHT.into(), staleness_weight);
        self.record.note_of(client, metrics);
        let examples = update.trained.examples;
        if let Some(loss) = update.trained.loss {
            self.loss.add(loss, examples as f64);
        }
        self.units.add(&part.coordinates.units);
        self.coverage.add(&part.coordinates);
        let version = collection.record.round;
        self.aggregator.fold(Contribution {
            client: Some(client),
            version,
            part: &part.coordinates,
            weight: self.description.weighting().of(examples),
            update,
        });
        self.record.completed += 1;
        let card = collection.hands.card(0).clone();
        self.contributors.insert(client.clone(), (card, version));
    }

    /// What they came to, where there were to be `size` of them.
    pub(super) fn close(self, moment: &Moment<'_>, model: &GlobalModel, size: usize) -> Closed {
        let Self {
            started,
            description,
            aggregator,
            mut record,
            ..
        } = self;
        record.selected = record.completed + record.failed.values().sum::<usize>();
        record.train_loss = self.loss.mean();
        let aggregate = combine(aggregator, &description, model, &mut record, size);
        let (names, cards): (Vec<_>, Vec<_>) = self
            .contributors
            .into_iter()
            .map(|(client, (card, _))| (client, card))
            .unzip();
        let mut cohort = Cohort::new(names, moment.now, moment.run.allowed());
        cohort
            .members
            .iter_mut()
            .for_each(|member| member.status = Status::Taken);
        // They are sent no answer to be checked any more.
        let (hands, _) = Hands::new(cards, &description, model, |_| Ok(Vec::new()));
        Closed {
            started,
            cohort,
            hands,
            aggregate,
            coverage: self.coverage,
            units: self.units,
            fronts: Fronts::new(),
            classes: BTreeMap::new(),
            leaders: None,
            record,
        }
    }
}
