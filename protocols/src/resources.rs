//! What a device has, and how much of a model it can train with it.

use selvedge_learning::update::CALIBRATION_BATCH;
use selvedge_models::{ModelError, OptimiserDescription, STEP};
use selvedge_parts::{Parts, plan::Width};
use serde::{Deserialize, Serialize};

use crate::Description;

/// What a client says about its device as it joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Bytes of memory for training; `None` when it sets no limit.
    pub memory: Option<u64>,
    /// Floating-point operations a second in training; `None` when it sets no limit.
    pub speed: Option<f64>,
    /// How many examples it holds; `None` when it does not know yet.
    pub examples: Option<u64>,
}

/// Why a device can train no width at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CannotTrain {
    /// It has too little memory.
    #[error(
        "training the smallest sub-model, of width {width}, takes {} of memory, but the device has {}: give it more with \
         `--memory`, or let the description offer a smaller width",
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
        "training the smallest sub-model, of width {width}, would take {needed:.3e} s a round on this device, but a \
         round has {allowed} s: see `--speed` and `cohort.deadline_seconds`"
    )]
    Time {
        /// The smallest width.
        width: Width,
        /// Seconds that it needs.
        needed: f64,
        /// Seconds that there are.
        allowed: f64,
    },
    /// There is nothing to train.
    #[error("the run has no sub-models")]
    Nothing,
}

fn in_megabytes(bytes: u64) -> String {
    format!("{} MB", bytes as f64 / 1e6)
}

/// What training takes at each of a description's widths.
#[derive(Clone, Debug)]
pub struct Requirements {
    widths: Vec<Requirement>,
    deadline: f64,
    /// Examples gone through in a round: so many, or so many times those that a client trains on.
    steps: Option<u64>,
    epochs: u64,
    /// The share of a client's examples that it trains on.
    share: f64,
}

#[derive(Clone, Copy, Debug)]
struct Requirement {
    width: Width,
    memory: u64,
    /// Operations of one example's forward.
    operations: u64,
}

impl Requirements {
    /// What training takes in a run, largest width first.
    ///
    /// # Errors
    /// When a sub-model cannot be made.
    pub fn of(parts: &Parts, description: &Description) -> Result<Self, ModelError> {
        let training = &description.training;
        let algorithm = &*description.algorithm;
        let optimiser = match training.optimiser {
            OptimiserDescription::Sgd { momentum, .. } => u64::from(momentum != 0.0),
            OptimiserDescription::Adam { .. } | OptimiserDescription::AdamW { .. } => 2,
        };
        let sent = algorithm.broadcast_vectors().len() + 2 * algorithm.update_vectors().len();
        // What a client keeps, and what it is to keep, is as long as the whole model.
        let kept = if algorithm.keeps() {
            3 * 4 * parts.layout().parameter_count() as u64
        } else {
            0
        };
        let nested = if description.plan().draws_widths() { 4 } else { 0 };
        let vectors = optimiser + sent as u64 + nested;
        let calibrated = if description.is_calibrated() {
            CALIBRATION_BATCH as u64
        } else {
            0
        };
        let examples = (2 * training.batch_size as u64).max(calibrated);
        let requirement = |width| {
            let card = description.plan().specimen(description.seed.0, 1, width);
            let model = &parts.part(&card)?.model;
            Ok(Requirement {
                width,
                memory: model.training_memory(vectors, examples)?.saturating_add(kept),
                operations: model.summary()?.operations,
            })
        };
        let widths: Result<_, ModelError> = description.widths().into_iter().map(requirement).collect();
        Ok(Self {
            widths: widths?,
            deadline: description.cohort.deadline_seconds,
            steps: training
                .steps
                .map(|steps| u64::from(steps).saturating_mul(training.batch_size as u64)),
            epochs: u64::from(training.epochs.unwrap_or(1)),
            share: 1.0 - description.evaluation.holdout,
        })
    }

    /// The largest width that a device can train: its sub-model fits into the memory, and its steps into a round's time.
    ///
    /// # Errors
    /// When not even the smallest does.
    pub fn largest_width(&self, resources: &Resources) -> Result<Width, CannotTrain> {
        let examples = match (self.steps, resources.examples) {
            (Some(steps), _) => Some(steps as f64),
            (None, examples) => examples.map(|examples| examples as f64 * self.share * self.epochs as f64),
        };
        let mut refused = None;
        for &Requirement {
            width,
            memory,
            operations,
        } in &self.widths
        {
            if let Some(given) = resources.memory.filter(|given| *given < memory) {
                let needed = memory;
                refused = Some(CannotTrain::Memory { width, needed, given });
                continue;
            }
            let work = examples.map(|examples| STEP * operations as f64 * examples);
            // A speed that is no number above 0 is none.
            let speed = resources.speed.map(|speed| speed.max(f64::MIN_POSITIVE));
            match work.zip(speed).map(|(work, speed)| work / speed) {
                Some(needed) if needed > self.deadline => {
                    let allowed = self.deadline;
                    refused = Some(CannotTrain::Time { width, needed, allowed });
                }
                _ => return Ok(width),
            }
        }
        // A description has at least one width.
        Err(refused.unwrap_or(CannotTrain::Nothing))
    }
}
