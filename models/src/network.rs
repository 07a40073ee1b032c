//! A live model: its values, its layers, and what the last forward left for backward.

use std::sync::Arc;

use candle_core::{DType, Device, Storage, Tensor};

use crate::{
    assembly::AssembledModel,
    chain::Chain,
    description::ModelDescription,
    error::ModelError,
    kernels::descent::descend,
    layout::{Initial, Layout},
    mode::Mode,
    pass::{Descent, LayerValues, Sink},
    tape::{Tape, tensors},
    weights::Weights,
};

/// A live model, for one thread. It can be loaded with other weights over and over; its buffers are kept, so that
/// a steady stream of equal batches allocates next to nothing.
///
/// On the CPU the layers run their own kernels; on other devices their definitions in candle's operations,
/// differentiated by candle.
pub struct Network {
    chain: Chain,
    layout: Arc<Layout>,
    input: Vec<usize>,
    output: Vec<usize>,
    device: Device,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    /// Whether a gradient has been summed since it was last forgotten; until then `gradient` holds anything.
    begun: bool,
    buffers: Vec<f32>,
    way: Way,
}

/// How the layers are run, with what the last forward left.
enum Way {
    /// By their kernels; the input is kept.
    Kernels(Option<Tensor>),
    /// By their definitions.
    Definitions(Option<Tape>),
}

impl Network {
    /// A network with all values 0, to be [loaded](Self::load).
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn new(description: &ModelDescription, device: &Device) -> Result<Self, ModelError> {
        let way = if device.is_cpu() {
            Way::Kernels(None)
        } else {
            Way::Definitions(None)
        };
        Self::assemble(description.assemble()?, &description.input, device, way)
    }

    /// A network that runs its layers' definitions in candle's operations on any device: slower on the CPU, and the
    /// yardstick of [`new`](Self::new)'s kernels there.
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn by_definition(description: &ModelDescription, device: &Device) -> Result<Self, ModelError> {
        Self::assemble(
            description.assemble()?,
            &description.input,
            device,
            Way::Definitions(None),
        )
    }

    fn assemble(assembled: AssembledModel, input: &[usize], device: &Device, way: Way) -> Result<Self, ModelError> {
        let AssembledModel {
            chain, layout, output, ..
        } = assembled;
        let (parameters, buffers) = (layout.parameter_count(), layout.buffer_count());
        Ok(Self {
            chain,
            layout: Arc::new(layout),
            input: input.to_vec(),
            output: output.shape,
            device: device.clone(),
            parameters: vec![0.0; parameters],
            gradient: vec![0.0; parameters],
            begun: false,
            buffers: vec![0.0; buffers],
            way,
        })
    }

    /// Where the values lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The shape of one example.
    pub fn input_shape(&self) -> &[usize] {
        &self.input
    }

    /// The shape of what comes out for one example.
    pub fn output_shape(&self) -> &[usize] {
        &self.output
    }

    /// Takes over the values of `weights`.
    ///
    /// # Errors
    /// When they are of another layout.
    pub fn load(&mut self, weights: &Weights) -> Result<(), ModelError> {
        weights.check(&self.layout)?;
        self.parameters.copy_from_slice(&weights.parameters);
        self.buffers.copy_from_slice(&weights.buffers);
        Ok(())
    }

    /// [`load`](Self::load) of weights that may lack buffers: running statistics begin afresh then.
    ///
    /// # Errors
    /// When they are of another layout.
    pub fn start_from(&mut self, weights: &Weights) -> Result<(), ModelError> {
        if !weights.buffers.is_empty() {
            return self.load(weights);
        }
        let (what, expected, given) = ("parameters", self.parameters.len(), weights.parameters.len());
        if given != expected {
            return Err(ModelError::Weights { what, expected, given });
        }
        self.parameters.copy_from_slice(&weights.parameters);
        for entry in &self.layout.buffers {
            if let Initial::Constant(value) = entry.initial {
                self.buffers[entry.range()].fill(value);
            }
        }
        Ok(())
    }

    /// The flat buffers.
    pub fn buffers(&self) -> &[f32] {
        &self.buffers
    }

    /// Takes over the values of the buffers alone.
    ///
    /// # Errors
    /// When there are not as many.
    pub fn set_buffers(&mut self, buffers: &[f32]) -> Result<(), ModelError> {
        let (what, expected, given) = ("buffers", self.buffers.len(), buffers.len());
        if given != expected {
            return Err(ModelError::Weights { what, expected, given });
        }
        self.buffers.copy_from_slice(buffers);
        Ok(())
    }

    /// A copy of all values.
    pub fn weights(&self) -> Weights {
        Weights {
            parameters: self.parameters.clone(),
            buffers: self.buffers.clone(),
        }
    }

    /// The flat parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Runs a batch `[examples, ...input shape]` forward; gives `[examples, ...output shape]`.
    ///
    /// # Errors
    /// When the batch is empty, too large or of other shapes, or a layer cannot take its values.
    pub fn forward(&mut self, input: &Tensor, mode: &mut Mode<'_>) -> Result<Tensor, ModelError> {
        let examples = match input.dims() {
            [examples, shape @ ..] if *shape == self.input => *examples,
            given => {
                let (expected, given) = (self.input.clone(), given.to_vec());
                return Err(ModelError::Input { expected, given });
            }
        };
        if examples == 0 {
            return Err(ModelError::EmptyBatch);
        }
        let input = input.to_device(&self.device)?.to_dtype(DType::F32)?.contiguous()?;
        match &mut self.way {
            Way::Kernels(kept) => {
                *kept = None;
                let values = LayerValues {
                    parameters: &self.parameters,
                    buffers: &mut self.buffers,
                };
                on_slice(&input, |input| self.chain.forward(values, examples, input, mode))??;
                *kept = Some(input);
                let shape = [&[examples], self.output.as_slice()].concat();
                Ok(Tensor::from_slice(self.chain.output(), shape, &self.device)?)
            }
            Way::Definitions(kept) => {
                *kept = None;
                let shapes = self.layout.parameters.iter().map(|entry| entry.shape.as_slice());
                let parameters = tensors(&self.parameters, shapes, &self.device)?;
                let (chain, buffers) = (&self.chain, &mut self.buffers);
                let tape = Tape::record(parameters, &input, |parameters, input| {
                    chain.plain(parameters, buffers, input, mode)
                })?;
                Ok(kept.insert(tape).output().detach())
            }
        }
    }

    /// The vector-Jacobian product of the last forward: adds to the gradient of the parameters. No gradient is
    /// computed below the first layer with parameters.
    ///
    /// # Errors
    /// When there was no forward, or the gradient is not as large as its output.
    pub fn backward(&mut self, output_gradient: &Tensor) -> Result<(), ModelError> {
        self.differentiate(output_gradient, false).map(drop)
    }

    /// [`backward`](Self::backward), and the gradient at the input: at a cut, what the front goes on with.
    ///
    /// # Errors
    /// As for [`backward`](Self::backward).
    pub fn backward_to_input(&mut self, output_gradient: &Tensor) -> Result<Tensor, ModelError> {
        self.differentiate(output_gradient, true)?
            .ok_or(ModelError::NothingToDifferentiate)
    }

    fn differentiate(&mut self, output_gradient: &Tensor, to_input: bool) -> Result<Option<Tensor>, ModelError> {
        match &self.way {
            Way::Kernels(Some(input)) => {
                let above = self.above(output_gradient, self.chain.output().len())?;
                let mut below = to_input.then(|| vec![0.0; input.elem_count()]);
                let sink = Sink {
                    parameters: &self.parameters,
                    gradient: &mut self.gradient,
                    is_begun: self.begun,
                };
                on_slice(input, |input| {
                    on_slice(&above, |above| {
                        self.chain.backward(sink, input, above, below.as_deref_mut())
                    })
                })???;
                self.begun = true;
                Ok(below
                    .map(|below| Tensor::from_vec(below, input.shape(), &self.device))
                    .transpose()?)
            }
            Way::Definitions(Some(tape)) => {
                let above = self
                    .above(output_gradient, tape.output().elem_count())?
                    .reshape(tape.output().shape())?;
                begin(&mut self.begun, &mut self.gradient);
                Ok(Some(tape.backward(&above, &mut self.gradient)?.input))
            }
            Way::Kernels(None) | Way::Definitions(None) => Err(ModelError::NothingToDifferentiate),
        }
    }

    /// A gradient from above, as the layers take it.
    fn above(&self, output_gradient: &Tensor, expected: usize) -> Result<Tensor, ModelError> {
        match output_gradient.elem_count() {
            given if given == expected => {}
            given => return Err(ModelError::OutputGradient { expected, given }),
        }
        let above = output_gradient.to_device(&self.device)?.to_dtype(DType::F32)?;
        Ok(above.contiguous()?)
    }

    /// The vector-Jacobian product of the last forward and a step of plain gradient descent by it: to the bit what
    /// [`zero_gradient`](Self::zero_gradient), [`backward`](Self::backward) and a step of plain
    /// [SGD](crate::OptimiserDescription::Sgd) make, without writing all of the gradient. No gradient is kept.
    ///
    /// # Errors
    /// As for [`backward`](Self::backward). When a layer fails, those above it have made their step already.
    pub fn descend(&mut self, output_gradient: &Tensor, learning_rate: f32) -> Result<(), ModelError> {
        let Way::Kernels(Some(input)) = &self.way else {
            self.zero_gradient();
            self.backward(output_gradient)?;
            self.update(|parameters, gradient| descend(parameters, gradient, learning_rate));
            self.zero_gradient();
            return Ok(());
        };
        let above = self.above(output_gradient, self.chain.output().len())?;
        self.begun = false;
        let descent = Descent {
            parameters: &mut self.parameters,
            gradient: &mut self.gradient,
            rate: learning_rate,
        };
        on_slice(input, |input| {
            on_slice(&above, |above| self.chain.descend(descent, input, above))
        })??
    }

    /// Forgets the gradient summed so far.
    pub fn zero_gradient(&mut self) {
        self.begun = false;
    }

    /// Gives the flat parameters and their flat gradient, to change the one by the other.
    pub fn update(&mut self, f: impl FnOnce(&mut [f32], &mut [f32])) {
        begin(&mut self.begun, &mut self.gradient);
        f(&mut self.parameters, &mut self.gradient);
    }
}

/// Makes a gradient that has not begun 0.
fn begin(begun: &mut bool, gradient: &mut [f32]) {
    if !*begun {
        gradient.fill(0.0);
        *begun = true;
    }
}

/// Lends the values of a contiguous `f32` tensor on the CPU.
fn on_slice<R>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> R) -> Result<R, ModelError> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(storage), Some((start, end))) => Ok(f(&storage.as_slice()?[start..end])),
        _ => Err(candle_core::Error::Msg("a contiguous tensor on the CPU was expected".into()).into()),
    }
}
