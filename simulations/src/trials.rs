//! The coordinator's own evaluations, in chunks of examples that workers share.

use std::{collections::BTreeMap, sync::Arc};

use selvedge_coordinator::{GlobalModel, Trial};
use selvedge_protocols::{
    Card,
    evaluation::{TEST_CHUNK, Tested},
};

use crate::{Simulation, worker::Job};

/// What came of a chunk, if anything yet.
type Chunk = Option<Result<Tested, String>>;

/// For each trial that is under way, the chunks of its examples as far as they are evaluated.
#[derive(Default)]
pub(crate) struct Trials {
    chunks: BTreeMap<(u32, Trial), Vec<Chunk>>,
}

impl Trials {
    /// The jobs that a trial comes to; none when it has no examples.
    pub(crate) fn begin(
        &mut self,
        simulation: &Simulation<'_>,
        (round, trial): (u32, &Trial),
        card: Option<&Card>,
        model: &Arc<GlobalModel>,
    ) -> Vec<Job> {
        let examples = simulation.trial_examples(trial);
        let chunks = examples.chunks(TEST_CHUNK);
        self.chunks.insert((round, trial.clone()), vec![None; chunks.len()]);
        let job = |(chunk, indices): (usize, &[u32])| Job::Test {
            round,
            trial: trial.clone(),
            card: card.cloned(),
            chunk,
            indices: indices.to_vec(),
            model: model.clone(),
        };
        chunks.enumerate().map(job).collect()
    }

    /// A chunk was evaluated. A round can go on while chunks of it are under way, after one that failed: those come too late.
    pub(crate) fn note(&mut self, round: u32, trial: &Trial, chunk: usize, result: Result<Tested, String>) {
        let chunks = self.chunks.get_mut(&(round, trial.clone()));
        if let Some(done) = chunks.and_then(|chunks| chunks.get_mut(chunk)) {
            *done = Some(result);
        }
    }

    /// What the chunks of a trial come to, once all of them are evaluated or one cannot be.
    pub(crate) fn outcome(&self, round: u32, trial: &Trial) -> Option<Result<Option<Tested>, String>> {
        let mut sum = Tested::default();
        for chunk in self.chunks.get(&(round, trial.clone()))? {
            match chunk.as_ref()? {
                Ok(chunk) => sum.add(chunk),
                Err(reason) => return Some(Err(reason.clone())),
            }
        }
        Some(Ok(Some(sum)))
    }

    /// A round is over, and those before it.
    pub(crate) fn end(&mut self, round: u32) {
        self.chunks.retain(|(of, _), _| *of > round);
    }
}
