//! How long a virtual client takes for what it is asked.

use std::time::Duration;

use selvedge_coordinator::GlobalModel;
use selvedge_models::STEP;
use selvedge_protocols::{
    ClientName, Description, LocalError, Part,
    description::DealtDevices,
    message::Task,
    sections::{SectionHeader, packed_bytes},
    update::{TrainingReport, expected_sections, expected_statistics},
};

use crate::{Simulation, worker::examples};

/// What virtual devices are like.
pub(super) struct Times {
    pub(super) devices: DealtDevices,
    /// Of a run with sub-models, operations of the whole model's forward: a smaller model is trained more quickly.
    operations: Option<u64>,
}

/// What a task comes to: its times, and what is known of the answer before it is computed.
pub(super) struct Took {
    pub(super) download: Duration,
    pub(super) work: Duration,
    pub(super) upload: Duration,
    pub(super) report: TrainingReport,
    pub(super) sections: Vec<SectionHeader>,
}

impl Times {
    pub(super) fn of(description: &Description) -> Self {
        let whole = description.sub_models.as_ref().and(description.model.summary().ok());
        Self {
            devices: description.dealt_devices(),
            operations: whole.map(|whole| whole.operations),
        }
    }

    /// What a task comes to, of a client that is asked for it with its part of the model.
    pub(super) fn of_task(
        &self,
        simulation: &Simulation<'_>,
        client: &ClientName,
        task: Task,
        part: &Part,
        model: &GlobalModel,
    ) -> Result<Took, LocalError> {
        let description = &simulation.description;
        let partition = match task {
            Task::Train | Task::Calibrate => simulation.shares,
            Task::Evaluate => simulation.held_out,
        };
        let count = examples(simulation, partition, client).indices.len();
        let (parameters, buffers) = (part.coordinates.parameters.count(), part.coordinates.buffers.count());
        let down = packed_bytes(&model.whole().headers_of(parameters, buffers)).unwrap_or(0);
        let sections = match task {
            Task::Train => expected_sections(&part.coordinates, &*description.algorithm, &description.filters),
            Task::Calibrate => expected_statistics(&part.model.layout()?),
            Task::Evaluate => Vec::new(),
        };
        let training = &description.training;
        let passes = match (task, training.steps) {
            (Task::Train, Some(steps)) => f64::from(steps) * count.min(training.batch_size) as f64,
            (Task::Train, None) => f64::from(training.epochs.unwrap_or(1)) * count as f64,
            // There is no step back.
            (Task::Calibrate | Task::Evaluate, _) => count as f64 / STEP,
        };
        let share = match self.operations {
            Some(whole) => part.model.summary()?.operations as f64 / whole.max(1) as f64,
            None => 1.0,
        };
        Ok(Took {
            download: self.devices.download(client, down),
            work: self.devices.training(client, passes * share),
            upload: self.devices.upload(client, packed_bytes(&sections).unwrap_or(0)),
            report: TrainingReport {
                examples: count as u64,
                steps: match task {
                    Task::Train => training.steps_on(count),
                    Task::Calibrate | Task::Evaluate => 0,
                },
                ..TrainingReport::default()
            },
            sections,
        })
    }
}
