//! Running a layer by its definition in candle's operations, where it has no kernels.

use candle_core::{Device, Tensor};

use crate::{
    error::ModelError,
    tape::{Reached, Tape, tensors},
};

/// What is known of a layer that may be run by its definition, with what its last forward left.
pub(crate) struct Recording {
    /// Shape of one example at the input.
    input: Vec<usize>,
    /// Names and shapes of the parameters, in their order.
    parameters: Vec<(String, Vec<usize>)>,
    tape: Option<Tape>,
}

impl Recording {
    /// Of a layer that has not been run.
    pub(crate) fn new(input: &[usize], parameters: Vec<(String, Vec<usize>)>) -> Self {
        Self {
            input: input.to_vec(),
            parameters,
            tape: None,
        }
    }

    /// Runs `definition` on the parameters and a batch, and keeps what differentiating it takes.
    pub(crate) fn forward(
        &mut self,
        parameters: &[f32],
        input: &[f32],
        output: &mut [f32],
        definition: impl FnOnce(&[Tensor], &Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<(), ModelError> {
        self.tape = None;
        let examples = input.len() / self.input.iter().product::<usize>();
        let input = Tensor::from_slice(input, [&[examples], self.input.as_slice()].concat(), &Device::Cpu)?;
        let shapes = self.parameters.iter().map(|(_, shape)| shape.as_slice());
        let parameters = tensors(parameters, shapes, &Device::Cpu)?;
        let tape = Tape::record(parameters, &input, definition)?;
        let given = tape.output().flatten_all()?.to_vec1::<f32>()?;
        if given.len() != output.len() {
            return Err(candle_core::Error::Msg("the module's output is not a row for each example".into()).into());
        }
        output.copy_from_slice(&given);
        self.tape = Some(tape);
        Ok(())
    }

    /// Lets candle differentiate the last forward.
    pub(crate) fn backward(
        &self,
        gradient: &mut [f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        let tape = self.tape.as_ref().ok_or(ModelError::NothingToDifferentiate)?;
        let above = Tensor::from_slice(output_gradient, tape.output().shape(), &Device::Cpu)?;
        let Reached { input, missed } = tape.backward(&above, gradient)?;
        if let Some((name, _)) = missed.and_then(|missed| self.parameters.get(missed)) {
            return Err(ModelError::NotDifferentiated { name: name.clone() });
        }
        if let Some(input_gradient) = input_gradient {
            input_gradient.copy_from_slice(&input.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(())
    }
}
