//! How much memory training takes.

use crate::{description::ModelDescription, error::ModelError};

/// Values for each parameter while a round is trained: what was received, as bytes and as numbers; the live model and its
/// gradient; what was trained, as numbers and as bytes.
const FOR_EACH_PARAMETER: u64 = 6;

impl ModelDescription {
    /// About how many bytes a client needs to train the model, beside its data and the program itself: for `vectors` more
    /// values for each parameter (an optimiser's moments, an algorithm's vectors), and for what lies between the layers
    /// and inside them of `examples` at a time, gradients counted as examples.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn training_memory(&self, vectors: u64, examples: u64) -> Result<u64, ModelError> {
        let assembled = self.assemble()?;
        let parameters = (assembled.layout.parameter_count() + assembled.layout.buffer_count()) as u64;
        let input = self.input.iter().product::<usize>() as u64;
        let activations = (input + assembled.chain.activations()).saturating_mul(examples);
        let values = ((FOR_EACH_PARAMETER + vectors) * parameters).saturating_add(activations);
        Ok(values.saturating_mul(size_of::<f32>() as u64))
    }
}
