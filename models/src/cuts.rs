//! Where a model can be cut in two, and what each cut costs.

use serde::Serialize;

use crate::{description::ModelDescription, error::ModelError};

/// What one cut leaves to the client, which has the front, and to the server, which has the back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CutSummary {
    /// Layers of the front, as [`ModelDescription::cut`] takes them.
    pub layers: usize,
    /// The place of the front's last layer.
    pub place: String,
    /// The kind of the front's last layer.
    pub kind: &'static str,
    /// Values that the front trains.
    pub front_parameters: usize,
    /// Values that the back trains.
    pub back_parameters: usize,
    /// Floating-point operations of one example's forward through the front; a training step takes about [`STEP`](crate::STEP) times
    /// as many.
    pub front_operations: u64,
    /// The same through the back.
    pub back_operations: u64,
    /// About how many bytes a client needs to train the front with plain gradient descent, beside its data and the
    /// program itself: see [`training_memory`](ModelDescription::training_memory).
    pub front_memory: u64,
    /// Values that cross the cut for one example: activations on the way up, and as many of their gradient on the way
    /// down.
    pub values: u64,
}

impl ModelDescription {
    /// All cuts of the model, from one layer in the front to one layer in the back; none when the model has one layer.
    /// The memory is for a `batch` of so many examples; nothing else depends on it.
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn cuts(&self, batch: u64) -> Result<Vec<CutSummary>, ModelError> {
        let whole = self.summary()?;
        let (mut front_parameters, mut front_operations) = (0, 0);
        let mut cuts = Vec::new();
        for (index, layer) in whole.layers[..whole.layers.len() - 1].iter().enumerate() {
            let layers = index + 1;
            front_parameters += layer.parameters;
            front_operations += layer.operations;
            let (front, _) = self.cut(layers)?;
            cuts.push(CutSummary {
                layers,
                place: layer.place.clone(),
                kind: layer.kind,
                front_parameters,
                back_parameters: whole.parameters - front_parameters,
                front_operations,
                back_operations: whole.operations - front_operations,
                // Gradients count as examples.
                front_memory: front.training_memory(0, batch.saturating_mul(2))?,
                values: layer.output.iter().product::<usize>() as u64,
            });
        }
        Ok(cuts)
    }
}
