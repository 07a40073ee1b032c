//! What a device has, and how much of a model it can train with it.

use selvedge_models::ModelError;
use serde::{Deserialize, Serialize};

use crate::{Description, Parts, plan::Width};

/// What a client says about its device as it joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Bytes of memory for training; `None` when it sets no limit.
    pub memory: Option<u64>,
    /// Floating-point operations a second in training; `None` when it sets no limit.
    pub speed: Option<f64>,
    /// How many examples it holds.
    pub examples: u64,
}

/// Why a device can train no width at all.
#[derive(Debug, thiserror::Error)]
pub enum CannotTrain {
    /// It has too little memory.
    #[error(
        "training the smallest sub-model, of width {width}, takes {} of memory, but the device has {}",
        in_megabytes(*needed), in_megabytes(*given)
    )]
    Memory {
        /// The smallest width.
        width: Width,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        given: u64,
    },
    /// It is too slow.
    #[error(
        "training the smallest sub-model, of width {width}, would take {needed:.1} s a round on this device, but a round \
         has {allowed} s"
    )]
    Time {
        /// The smallest width.
        width: Width,
        /// Seconds that it needs.
        needed: f64,
        /// Seconds that there are.
        allowed: f64,
    },
    /// The sub-models cannot be made.
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn in_megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Floating-point operations of a training step for each of its forward: backward takes twice as many.
const STEP: f64 = 3.0;

impl Parts {
    /// The largest of the description's widths that a device can train: its sub-model fits into the memory, and its steps
    /// into a round's time.
    ///
    /// # Errors
    /// When not even the smallest does.
    pub fn largest_width(&self, description: &Description, resources: &Resources) -> Result<Width, CannotTrain> {
        let training = &description.training;
        let mut refused = None;
        for width in description.widths() {
            let card = description.plan().specimen(description.seed.0, 1, width);
            let model = &self.part(&card)?.model;
            let batch = training.batch_size as u64;
            let needed = model.training_memory(batch)?;
            if let Some(given) = resources.memory.filter(|given| *given < needed) {
                refused = Some(CannotTrain::Memory { width, needed, given });
                continue;
            }
            let examples = match training.steps {
                Some(steps) => u64::from(steps).saturating_mul(batch.min(resources.examples)),
                None => u64::from(training.epochs.unwrap_or(1)).saturating_mul(resources.examples),
            };
            let work = STEP * model.summary()?.operations as f64 * examples as f64;
            let allowed = description.cohort.deadline_seconds;
            match resources
                .speed
                .map(|speed| work / speed.max(f64::MIN_POSITIVE))
                .filter(|needed| *needed > allowed)
            {
                Some(needed) => refused = Some(CannotTrain::Time { width, needed, allowed }),
                None => return Ok(width),
            }
        }
        Err(refused.unwrap_or_else(|| ModelError::Thinning("there are no widths".into()).into()))
    }
}
