//! A run, as the thread that trains sees it.

use std::sync::{Arc, atomic::AtomicBool};

use selvedge_models::Weights;
use selvedge_protocols::{
    Broadcast, ClientName, Description, LocalError, Memory, Part, Parts,
    message::Task,
    sections::{Encoding, Section, SectionHeader, packed_bytes, unpack},
};

use super::{assignment::Assignment, outcome::Outcome, training_thread::TrainingThread};
use crate::{Front, Trainer, holding::Holding};

/// What stays the same from round to round.
pub(super) struct Run {
    pub(super) description: Arc<Description>,
    pub(super) client: ClientName,
    pub(super) parts: Parts,
    pub(super) holding: Holding,
    /// True once nobody waits for what is being trained.
    pub(super) abandon: Arc<AtomicBool>,
    pub(super) thread: TrainingThread,
}

impl Run {
    /// The most bytes that a broadcast of this run may have.
    pub(super) fn largest_broadcast(&self) -> u64 {
        let layout = self.parts.layout();
        let vectors = self.description.algorithm.broadcast_vectors().iter();
        let whole = &self.parts.whole().coordinates;
        let header = |name: &str, values: usize| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
            values: values as u64,
        };
        let mut headers = vec![
            header("parameters", layout.parameter_count()),
            header("buffers", layout.buffer_count()),
        ];
        headers.extend(vectors.map(|(name, shape)| header(name, shape.length(whole))));
        packed_bytes(&headers).unwrap_or(0)
    }

    /// The front for a round, from what was broadcast; where the client goes on with its own, from nothing.
    pub(super) fn front(&self, assignment: &Assignment, bytes: &[u8], kept: &Memory) -> Result<Front, String> {
        let description = &self.description;
        let part = self.parts.part(&assignment.card).map_err(|error| error.to_string())?;
        let broadcast = match Front::is_kept(kept) {
            true => Broadcast::bare(Weights::default()),
            false => unpack(&assignment.sections, bytes)
                .and_then(|sections| self.broadcast(sections, &part))
                .ok_or("what was sent is not this run's model")?,
        };
        let (client, round, share) = (&self.client, assignment.round, self.holding.share());
        let front = Front::new(description, &part, client, round, &broadcast, share, kept);
        front.map_err(|error| error.to_string())
    }

    /// What was broadcast for this part of the model; `None` when the sections cannot be it.
    fn broadcast(&self, sections: Vec<Section>, part: &Part) -> Option<Broadcast> {
        let beside = self.description.algorithm.broadcast_vectors();
        Broadcast::from_sections(sections, &part.coordinates, beside)
    }

    /// Does what was asked; what went wrong is for a person.
    pub(super) fn work(&self, assignment: &Assignment, bytes: &[u8], mut kept: Memory) -> Result<Outcome, String> {
        let description = &self.description;
        let part = self.parts.part(&assignment.card).map_err(|error| error.to_string())?;
        let broadcast = unpack(&assignment.sections, bytes).and_then(|sections| self.broadcast(sections, &part));
        let broadcast = broadcast.ok_or("what was sent is not this run's model")?;
        let said = |error: LocalError| error.to_string();
        let mut trainer = Trainer::new(self.abandon.clone());
        if assignment.task == Task::Evaluate {
            let held_out = self.holding.held_out();
            let (client, round) = (&self.client, assignment.round);
            let broadcast = Trainer::personalised(description, &part, client, round, &broadcast, &kept);
            let evaluated = trainer.evaluate(description, &part, &broadcast, self.holding.share(), held_out, false);
            return evaluated.map(|tested| Outcome::Evaluated(tested.all)).map_err(said);
        }
        let share = self.holding.share();
        if assignment.task == Task::Calibrate {
            let sealed = trainer.calibration(&part, &broadcast, share).map_err(said)?;
            return Ok(Outcome::trained(&sealed, None));
        }
        let round = assignment.round;
        let sealed = trainer
            .train(description, &part, &self.client, round, &broadcast, share, &mut kept)
            .map_err(said)?;
        Ok(Outcome::trained(&sealed, Some(kept)))
    }
}
