//! What is written down about a run.

use std::collections::BTreeMap;

use selvedge_protocols::{ClientName, Description, Metrics, Rejection, Width, evaluation::Tested};
use serde::{Deserialize, Serialize};

use crate::Trial;

/// A line of `rounds.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// The round, counted from 1.
    pub round: u32,
    /// How many clients were selected.
    pub selected: usize,
    /// How many updates were taken in.
    pub completed: usize,
    /// How many failed to train, by reason: with `completed` they make up `selected`.
    pub failed: BTreeMap<String, usize>,
    /// The first failures in the order of the clients' names, for a person.
    pub failures: Vec<Failure>,
    /// Messages that were turned down beside the selected clients' own answers, by reason: second answers, answers to
    /// rounds that are over, answers from those who were not asked.
    pub stray: BTreeMap<String, usize>,
    /// Whether the model moved.
    pub applied: bool,
    /// What else is to be said: why the model did not move, why it could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The mean training loss, weighted by examples.
    pub train_loss: Option<f64>,
    /// The mean loss on the coordinator's test set.
    pub test_loss: Option<f64>,
    /// The accuracy on the coordinator's test set.
    pub test_accuracy: Option<f64>,
    /// The mean loss of the new model on training examples, where a simulation evaluates that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_loss: Option<f64>,
    /// The accuracy of the new model on training examples, where a simulation evaluates that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_accuracy: Option<f64>,
    /// The accuracy on the clients' held-out examples, pooled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_accuracy: Option<f64>,
    /// The mean loss on the clients' held-out examples, pooled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_loss: Option<f64>,
    /// How many of the clients that were asked to evaluate failed to, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evaluation_failed: BTreeMap<String, usize>,
    /// Tensor bytes of the updates that were taken in.
    pub bytes_up: u64,
    /// Tensor bytes of the models that clients were asked to work on, once for each.
    pub bytes_down: u64,
    /// Of a run with sub-models, the same by width, largest first: of the widths of the round's clients, and of those
    /// that were evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub widths: Vec<WidthRecord>,
    /// Of a run with `[split]`, what its steps came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsRecord>,
    /// Where clients keep their fronts, and the round was evaluated: the model with the front of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stitched: Vec<StitchedRecord>,
    /// What the round's components have measured on the server, by component and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// What they have measured of each client, on it or on the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client_metrics: BTreeMap<ClientName, BTreeMap<String, f64>>,
    /// How long the round took, evaluation included.
    pub seconds: f64,
}

/// What is written down about the steps of a round of split learning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepsRecord {
    /// In how many steps the back moved.
    pub made: u64,
    /// How long a step took, on the mean, in seconds, from the first to the last; unknown in a simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How long it was predicted to take, where the description says what devices can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_seconds: Option<f64>,
    /// How often somebody was waited for in vain, or said what could not be of a step, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, usize>,
    /// How many of the steps that were made went on without a client that was to contribute to them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missed: BTreeMap<ClientName, u64>,
    /// Where fronts' gradients are aligned, the mean cosine between two clients' gradients when leaders were identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// How often each client led.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub led: BTreeMap<ClientName, u64>,
}

/// How the back does with the front that a client keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StitchedRecord {
    /// The client.
    pub client: ClientName,
    /// The accuracy on the coordinator's test set; none where the loss has no such thing.
    pub accuracy: Option<f64>,
    /// The mean of the classes' accuracies there.
    pub balanced_accuracy: Option<f64>,
    /// The accuracy there if classes were as frequent as among the examples that the client has trained on; unknown where
    /// labels stay at home.
    pub own_accuracy: Option<f64>,
    /// What would be reached there by always guessing the client's most frequent class.
    pub majority: Option<f64>,
}

/// What is written down about the clients and sub-models of one width in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WidthRecord {
    /// The width.
    pub width: Width,
    /// How many clients of it were selected.
    pub selected: usize,
    /// How many of their updates were taken in.
    pub completed: usize,
    /// Their mean training loss, weighted by examples.
    pub train_loss: Option<f64>,
    /// The mean loss of a sub-model of this width on the coordinator's test set.
    pub test_loss: Option<f64>,
    /// Its accuracy there.
    pub test_accuracy: Option<f64>,
    /// Tensor bytes of their updates that were taken in.
    pub bytes_up: u64,
    /// Tensor bytes of what they were sent to work on.
    pub bytes_down: u64,
}

/// One client's failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The client.
    pub client: ClientName,
    /// Why.
    pub reason: String,
}

/// Failures beyond these are counted, not listed.
const LISTED_FAILURES: usize = 20;

/// Of clients, so many numbers are written down of a round; what comes after is left out.
const LISTED_METRICS: usize = 10_000;

impl RoundRecord {
    pub(crate) fn fail(&mut self, client: &ClientName, reason: &Rejection) {
        *self.failed.entry(reason.code().into()).or_default() += 1;
        self.list(client, reason);
    }

    pub(crate) fn fail_to_evaluate(&mut self, client: &ClientName, reason: &Rejection) {
        *self.evaluation_failed.entry(reason.code().into()).or_default() += 1;
        self.list(client, reason);
    }

    fn list(&mut self, client: &ClientName, reason: &Rejection) {
        self.insert(Failure {
            client: client.clone(),
            reason: reason.to_string(),
        });
    }

    fn insert(&mut self, failure: Failure) {
        let client = &failure.client;
        let at = self.failures.partition_point(|other| other.client <= *client);
        self.failures.insert(at, failure);
        self.failures.truncate(LISTED_FAILURES);
    }

    pub(crate) fn turn_down(&mut self, reason: &Rejection) {
        *self.stray.entry(reason.code().into()).or_default() += 1;
    }

    /// Writes down what was measured.
    pub(crate) fn note(&mut self, metrics: Metrics) {
        self.metrics.extend(metrics.own);
        for (client, metrics) in metrics.clients {
            self.note_of(&client, metrics);
        }
    }

    /// Writes down what was measured of a client.
    pub(crate) fn note_of(&mut self, client: &ClientName, metrics: BTreeMap<String, f64>) {
        let known: usize = self.client_metrics.values().map(BTreeMap::len).sum();
        let metrics = metrics.into_iter().take(LISTED_METRICS.saturating_sub(known));
        let metrics: BTreeMap<String, f64> = metrics.collect();
        if !metrics.is_empty() {
            self.client_metrics.entry(client.clone()).or_default().extend(metrics);
        }
    }

    /// Takes over what another record has counted since this was last done.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.bytes_up += std::mem::take(&mut other.bytes_up);
        self.bytes_down += std::mem::take(&mut other.bytes_down);
        for (code, count) in std::mem::take(&mut other.failed) {
            *self.failed.entry(code).or_default() += count;
        }
        for (code, count) in std::mem::take(&mut other.stray) {
            *self.stray.entry(code).or_default() += count;
        }
        for failure in std::mem::take(&mut other.failures) {
            self.insert(failure);
        }
    }

    /// Adds to the note.
    pub(crate) fn remark(&mut self, text: String) {
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {text}"),
            None => text,
        });
    }

    /// What is noted of a width; nothing is in a run without sub-models.
    pub(crate) fn width(&mut self, width: Width, description: &Description) -> Option<&mut WidthRecord> {
        description.sub_models.as_ref().map(|_| self.noted(width))
    }

    fn noted(&mut self, width: Width) -> &mut WidthRecord {
        let at = self.widths.binary_search_by(|noted| width.cmp(&noted.width));
        let at = at.unwrap_or_else(|at| {
            let noted = WidthRecord {
                width,
                selected: 0,
                completed: 0,
                train_loss: None,
                test_loss: None,
                test_accuracy: None,
                bytes_up: 0,
                bytes_down: 0,
            };
            self.widths.insert(at, noted);
            at
        });
        &mut self.widths[at]
    }

    /// Notes the means over the fronts that clients keep, if there are any.
    pub(crate) fn summarise_stitched(&mut self) {
        let count = self.stitched.len() as f64;
        if count > 0.0 {
            self.test_loss = self.test_loss.map(|sum| sum / count);
            let accuracies: Option<Vec<f64>> = self.stitched.iter().map(|stitched| stitched.accuracy).collect();
            self.test_accuracy = accuracies.map(|accuracies| accuracies.iter().sum::<f64>() / count);
        }
    }

    /// Notes an evaluation of the coordinator's own.
    pub(crate) fn test(&mut self, trial: &Trial, tested: &Tested, classes: &BTreeMap<ClientName, Vec<u64>>) {
        let (loss, accuracy) = (tested.all.mean_loss(), tested.all.accuracy());
        match trial {
            Trial::Stitched(client) => {
                // Of the model with each front, what is noted is the mean.
                self.test_loss = Some(self.test_loss.unwrap_or(0.0) + loss.unwrap_or(0.0));
                let counts = classes.get(client).filter(|counts| !counts.is_empty());
                self.stitched.push(StitchedRecord {
                    client: client.clone(),
                    accuracy,
                    balanced_accuracy: tested.by_class.balanced_accuracy(),
                    own_accuracy: counts.and_then(|counts| tested.by_class.accuracy_for(counts)),
                    majority: counts.and_then(|counts| {
                        let most = *counts.iter().max()?;
                        Some(most as f64 / counts.iter().sum::<u64>() as f64)
                    }),
                });
            }
            Trial::Whole => (self.test_loss, self.test_accuracy) = (loss, accuracy),
            Trial::OnTraining => (self.training_loss, self.training_accuracy) = (loss, accuracy),
            Trial::SubModel(width) => {
                let noted = self.noted(*width);
                (noted.test_loss, noted.test_accuracy) = (loss, accuracy);
            }
        }
    }
}
