//! How much memory training takes.

use crate::{description::ModelDescription, error::ModelError};

/// Values for each parameter while a round is trained: what was received, as bytes and as numbers; the live model and its
/// gradient; what was trained, as numbers and as bytes.
const FOR_EACH_PARAMETER: u64 = 6;

/// Values for each value between two layers, and inside them: itself, and the gradient there.
const FOR_EACH_ACTIVATION: u64 = 2;

impl ModelDescription {
    /// About how many bytes a client needs to train the model in batches of `batch` examples, beside its data and the
    /// program itself.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn training_memory(&self, batch: u64) -> Result<u64, ModelError> {
        let built = self.build()?;
        let parameters = (built.layout.parameter_count() + built.layout.buffer_count()) as u64;
        let input = self.input.iter().product::<usize>() as u64;
        let activations = (input + built.chain.activations()).saturating_mul(batch);
        let values = FOR_EACH_PARAMETER * parameters + FOR_EACH_ACTIVATION.saturating_mul(activations);
        Ok(values.saturating_mul(size_of::<f32>() as u64))
    }
}
