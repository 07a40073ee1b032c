//! Whether a description's values are in range and go together.

use selvedge_data::{Dataset, Targets, TrainAndTest};
use selvedge_models::Loss;
use selvedge_wire::codec::BYTES_MAX;
use selvedge_words::Seed;

use super::{Description, DescriptionError};

/// The shortest time limit, in seconds.
pub(super) const SHORTEST: f64 = 0.001;
/// The longest time limit, in seconds: ten years.
pub(super) const LONGEST: f64 = 315_360_000.0;

/// The most clients of a federation: each costs a few bytes.
const MOST_CLIENTS: usize = 100_000_000;

/// The most bytes of a description as TOML: what a message can carry, less its own few.
const MOST_BYTES: usize = BYTES_MAX - 1024;

/// One thing that is wrong with a description.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The key, as a dotted path.
    pub key: String,
    /// What is wrong, and what it must be.
    pub message: String,
}

impl Description {
    /// All that is wrong with the values; empty when nothing is.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, key: &str, message: String| {
            if !holds {
                problems.push(Problem {
                    key: key.into(),
                    message,
                });
            }
        };
        let seed = self.seed.0;
        let range = format!("{seed} is not from 0 to {}", Seed::LARGEST);
        require(seed <= Seed::LARGEST, "seed", range);
        require(self.rounds >= 1, "rounds", format!("{} is not at least 1", self.rounds));
        let range = format!("{} is not from 1 to {MOST_CLIENTS}", self.clients);
        require((1..=MOST_CLIENTS).contains(&self.clients), "clients", range);

        let training = &self.training;
        require(
            training.batch_size >= 1,
            "training.batch_size",
            "0 is not at least 1".into(),
        );
        require(
            training.epochs != Some(0),
            "training.epochs",
            "0 is not at least 1".into(),
        );
        require(
            training.steps != Some(0),
            "training.steps",
            "0 is not at least 1".into(),
        );
        let both = training.epochs.is_some() && training.steps.is_some();
        require(!both, "training.steps", "give `epochs` or `steps`, not both".into());

        let cohort = &self.cohort;
        let size = self.cohort_size();
        let range = format!("{size} is not from 1 to the {} clients", self.clients);
        require(
            (1..=self.clients).contains(&size) || self.clients == 0,
            "cohort.size",
            range,
        );
        let quorum = cohort.quorum;
        require(
            quorum > 0.0 && quorum <= 1.0,
            "cohort.quorum",
            format!("{quorum} is not in (0, 1]"),
        );
        let evaluation = &self.evaluation;
        require(evaluation.every >= 1, "evaluation.every", "0 is not at least 1".into());
        let holdout = evaluation.holdout;
        require(
            (0.0..1.0).contains(&holdout),
            "evaluation.holdout",
            format!("{holdout} is not in [0, 1)"),
        );
        let held_out = !evaluation.by_clients || holdout > 0.0;
        let message = "clients need held-out examples: set `holdout` above 0, such as 0.1";
        require(held_out, "evaluation.by_clients", message.into());

        let network = &self.network;
        let times = [
            ("cohort.deadline_seconds", cohort.deadline_seconds, SHORTEST),
            ("network.wait_seconds", network.wait_seconds, SHORTEST),
            ("network.connect_seconds", network.connect_seconds, SHORTEST),
            ("network.idle_seconds", network.idle_seconds, 1.0),
        ];
        for (key, seconds, shortest) in times {
            let range = format!("{seconds} is not from {shortest} to {LONGEST}");
            require((shortest..=LONGEST).contains(&seconds), key, range);
        }
        if let Some(start) = network.start_with {
            let range = format!("{start} is not from 1 to the {} clients", self.clients);
            require((1..=self.clients).contains(&start), "network.start_with", range);
        }

        if let Err(error) = training.optimiser.check() {
            require(false, "training.optimiser", error.to_string());
        }
        if let Err(error) = self.partition.check() {
            require(false, "partition", error.to_string());
        }
        problems.extend(self.problems_of_components());
        if let Some(sub_models) = &self.sub_models {
            problems.extend(sub_models.problems(self));
        }
        if let Some(split) = &self.split {
            problems.extend(split.problems(self));
        }
        if let Some(buffer) = &self.buffer {
            problems.extend(buffer.problems(self));
        }
        if let Some(devices) = &self.devices {
            problems.extend(devices.problems(self));
        }
        let mut require = |holds: bool, key: &str, message: String| {
            if !holds {
                let key = key.into();
                problems.push(Problem { key, message });
            }
        };
        let bytes = self.to_toml().len();
        let message = "a setting holds what TOML cannot: a whole number above 2^63, or a table whose keys are no text";
        require(bytes > 0, "description", message.into());
        let message =
            format!("the description is {bytes} bytes long; it travels to clients, and may have {MOST_BYTES}");
        require(bytes <= MOST_BYTES, "model", message);
        problems
    }

    /// Whether the model and the loss go with the examples to train and to evaluate on.
    ///
    /// # Errors
    /// When they do not; the error says what each side has.
    pub fn check_sets(&self, split: &TrainAndTest) -> Result<(), DescriptionError> {
        self.check_data(&split.train, "the training examples")?;
        match &split.test {
            Some(test) => self.check_data(test, "the test examples"),
            None => Ok(()),
        }
    }

    /// Whether the model and the loss go with the examples; `origin` says in errors which examples they are.
    ///
    /// # Errors
    /// When they do not; the error says what each side has.
    pub fn check_data(&self, dataset: &Dataset, origin: &str) -> Result<(), DescriptionError> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message| {
            problems.push(Problem {
                key: key.into(),
                message,
            })
        };
        let (input, example) = (&self.model.input, dataset.example_shape());
        if input != example {
            refuse(
                "model.input",
                format!(
                    "the model takes examples of shape {input:?}, but these have {example:?}: set `input = {example:?}`"
                ),
            );
        }
        match self.model.output() {
            Err(error) => refuse("model", error.to_string()),
            Ok(output) => match (dataset.targets(), self.training.loss) {
                (Targets::Classes { classes, .. }, Loss::CrossEntropy) => match output[..] {
                    [outputs] if outputs >= *classes => {}
                    _ => refuse(
                        "model",
                        format!(
                            "it ends in shape {output:?}, but there are {classes} classes: give a preset \
                             `classes = {classes}`, or the last layer as many units"
                        ),
                    ),
                },
                (Targets::MultiLabel { width, .. }, Loss::BinaryCrossEntropy)
                | (Targets::Values { width, .. }, Loss::MeanSquaredError) => {
                    if output.iter().product::<usize>() != *width {
                        let message = format!("it ends in shape {output:?}, but examples have {width} targets");
                        refuse("model", message);
                    }
                }
                (targets, _) => {
                    let kind = targets.kind();
                    let loss = match targets {
                        Targets::Classes { .. } => "cross-entropy",
                        Targets::MultiLabel { .. } => "binary-cross-entropy",
                        Targets::Values { .. } => "mean-squared-error",
                    };
                    refuse(
                        "training.loss",
                        format!("examples whose targets are {kind} need {loss:?}"),
                    );
                }
            },
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(DescriptionError::Problems {
                origin: origin.into(),
                problems,
            }),
        }
    }
}
