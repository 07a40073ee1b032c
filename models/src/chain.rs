//! Layers one after the other, with the values between them.

use std::ops::Range;

use candle_core::Tensor;

use crate::{
    definition::Recording,
    error::ModelError,
    layer::{DeclaredTensor, Fault, Layer, LayerSettings},
    limits::LARGEST_MODEL,
    mode::Mode,
    pass::{Backward, Descend, Descent, Forward, LayerValues, Sink},
    width::{Signal, WidthGroups},
};

/// Live layers, each taking what the one before gives.
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// What each stage gave in the last forward; kept between steps so that a steady state allocates nothing.
    outputs: Vec<Vec<f32>>,
    /// The gradient above and below the stage at work in backward.
    gradients: [Vec<f32>; 2],
}

/// A layer to be chained, by its kind and its settings.
#[derive(Clone, Copy)]
pub(crate) struct NamedLayer<'a> {
    pub(crate) kind: &'static str,
    pub(crate) settings: &'a dyn LayerSettings,
}

/// One layer of a chain.
pub(crate) struct Stage {
    live: Box<dyn Layer>,
    recording: Recording,
    /// The layer's place, the start of its parameters' names.
    pub(crate) place: String,
    pub(crate) kind: &'static str,
    pub(crate) input: Signal,
    pub(crate) output: Signal,
    /// Its tensors, values and buffers among the chain's.
    tensors: Range<usize>,
    pub(crate) parameters: Range<usize>,
    buffers: Range<usize>,
    /// Values of one example that the layer keeps inside itself.
    inside: u64,
    /// Floating-point operations of one example's forward.
    pub(crate) operations: u64,
}

/// A chain that has been put together, with all that its layers ask for.
pub(crate) struct Chained {
    pub(crate) chain: Chain,
    pub(crate) parameters: Vec<DeclaredTensor>,
    pub(crate) buffers: Vec<DeclaredTensor>,
}

impl Chain {
    /// Chains layers, the first at place `{prefix}{first}`. Without any it gives its input.
    pub(crate) fn build<'a>(
        layers: impl IntoIterator<Item = NamedLayer<'a>>,
        prefix: &str,
        first: usize,
        input: &Signal,
        groups: &mut WidthGroups,
    ) -> Result<Chained, ModelError> {
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        let (mut parameter_count, mut buffer_count) = (0, 0);
        let mut stages: Vec<Stage> = Vec::new();
        for (index, layer) in layers.into_iter().enumerate() {
            let place = format!("{prefix}{}", first + index);
            let input = stages.last().map_or(input, |stage| &stage.output).clone();
            let NamedLayer { kind, settings } = layer;
            let built = settings.build(&place, &input, groups).map_err(|fault| match fault {
                Fault::Here(problem) => ModelError::Layer {
                    layer: place.clone(),
                    kind,
                    problem: Box::new(problem),
                },
                Fault::Inside(error) => error,
            })?;
            let tensors = parameters.len()..parameters.len() + built.parameters.len();
            let shapes = built.parameters.iter();
            let shapes = shapes.map(|tensor| (tensor.name.clone(), tensor.shape.clone()));
            let mut stage = Stage {
                live: built.live,
                recording: Recording::new(&input.shape, shapes.collect()),
                place,
                kind,
                input,
                output: built.output,
                tensors,
                parameters: parameter_count..parameter_count,
                buffers: buffer_count..buffer_count,
                inside: built.inside,
                operations: built.operations,
            };
            parameter_count = count(parameter_count, &built.parameters)?;
            buffer_count = count(buffer_count, &built.buffers)?;
            stage.parameters.end = parameter_count;
            stage.buffers.end = buffer_count;
            let named = |declared: DeclaredTensor| DeclaredTensor {
                name: format!("{}.{}", first + index, declared.name),
                ..declared
            };
            parameters.extend(built.parameters.into_iter().map(named));
            buffers.extend(built.buffers.into_iter().map(named));
            stages.push(stage);
        }
        let outputs = vec![Vec::new(); stages.len()];
        let chain = Chain {
            stages,
            outputs,
            gradients: Default::default(),
        };
        Ok(Chained {
            chain,
            parameters,
            buffers,
        })
    }

    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Floating-point operations of one example's forward.
    pub(crate) fn operations(&self) -> u64 {
        self.stages.iter().map(|stage| stage.operations).sum()
    }

    /// Values of one example that lie between the layers, after the last, and inside them.
    pub(crate) fn activations(&self) -> u64 {
        let of = |stage: &Stage| stage.output.size() as u64 + stage.inside;
        self.stages.iter().map(of).sum()
    }

    /// Its parameters, counted in tensors.
    pub(crate) fn tensors(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.tensors.end)
    }

    /// Its parameters, counted in values.
    pub(crate) fn parameters(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.parameters.end)
    }

    /// Its buffers, counted in values.
    pub(crate) fn buffers(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.buffers.end)
    }

    /// What the chain gave in the last forward.
    pub(crate) fn output(&self) -> &[f32] {
        self.outputs.last().map_or(&[], Vec::as_slice)
    }

    /// The chain's definition in candle's operations.
    pub(crate) fn plain(
        &self,
        parameters: &[Tensor],
        buffers: &mut [f32],
        input: &Tensor,
        mode: &Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        self.stages.iter().try_fold(input.clone(), |value, stage| {
            let parameters = &parameters[stage.tensors.clone()];
            stage
                .live
                .plain(parameters, &mut buffers[stage.buffers.clone()], &value, mode)
        })
    }

    /// Runs a batch of `examples` through the layers; [`output`](Self::output) has what comes out.
    pub(crate) fn forward(
        &mut self,
        mut values: LayerValues<'_>,
        examples: usize,
        input: &[f32],
        mode: &Mode<'_>,
    ) -> Result<(), ModelError> {
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let size = examples
                .checked_mul(stage.output.size())
                .filter(|size| *size <= isize::MAX as usize / size_of::<f32>())
                .ok_or(ModelError::BatchTooLarge { examples })?;
            let (before, output) = self.outputs.split_at_mut(index);
            let input = before.last().map_or(input, Vec::as_slice);
            output[0].resize(size, 0.0);
            stage.live.forward(Forward {
                values: values.part(stage.parameters.clone(), stage.buffers.clone()),
                input,
                output: &mut output[0],
                mode,
                recording: &mut stage.recording,
            })?;
        }
        Ok(())
    }

    /// The vector-Jacobian product of the last forward. Where no input gradient is wanted, none is computed below the
    /// first layer with parameters.
    pub(crate) fn backward(
        &mut self,
        mut sink: Sink<'_>,
        input: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        self.walk_back(
            input,
            output_gradient,
            input_gradient,
            |stage, input, output, output_gradient, input_gradient| {
                stage.live.backward(Backward {
                    sink: sink.part(stage.parameters.clone()),
                    input,
                    output,
                    output_gradient,
                    input_gradient,
                    recording: &mut stage.recording,
                })
            },
        )
    }

    /// [`backward`](Self::backward), with a step of plain gradient descent by each layer as soon as it has its gradient.
    pub(crate) fn descend(
        &mut self,
        mut descent: Descent<'_>,
        input: &[f32],
        output_gradient: &[f32],
    ) -> Result<(), ModelError> {
        self.walk_back(
            input,
            output_gradient,
            None,
            |stage, input, output, output_gradient, input_gradient| {
                stage.live.descend(Descend {
                    descent: descent.part(stage.parameters.clone()),
                    input,
                    output,
                    output_gradient,
                    input_gradient,
                    recording: &mut stage.recording,
                })
            },
        )
    }

    /// Takes the gradient from above through the stages, last to first: `visit` gets a stage's input and output, the
    /// gradient at its output, and where to write that at its input.
    fn walk_back(
        &mut self,
        input: &[f32],
        output_gradient: &[f32],
        mut input_gradient: Option<&mut [f32]>,
        mut visit: impl FnMut(&mut Stage, &[f32], &[f32], &[f32], Option<&mut [f32]>) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let trained = |stage: &Stage| !stage.parameters.is_empty();
        let first = match input_gradient {
            Some(_) => Some(0),
            None => self.stages.iter().position(trained),
        };
        let Some(first) = first else { return Ok(()) };
        let [above, below] = &mut self.gradients;
        for (index, stage) in self.stages.iter_mut().enumerate().skip(first).rev() {
            let (before, output) = self.outputs.split_at(index);
            let stage_input = before.last().map_or(input, Vec::as_slice);
            let last = output.len() == 1;
            let wanted = if index > first {
                below.resize(stage_input.len(), 0.0);
                Some(below.as_mut_slice())
            } else {
                input_gradient.take()
            };
            let stage_above = if last { output_gradient } else { &*above };
            visit(stage, stage_input, &output[0], stage_above, wanted)?;
            std::mem::swap(above, below);
        }
        Ok(())
    }
}

/// The count of values after `declared`, kept below the limit.
fn count(before: usize, declared: &[DeclaredTensor]) -> Result<usize, ModelError> {
    let size = |tensor: &DeclaredTensor| {
        tensor
            .shape
            .iter()
            .try_fold(1usize, |size, side| size.checked_mul(*side))
    };
    let mut declared = declared.iter();
    let count = declared
        .try_fold(before, |sum, tensor| sum.checked_add(size(tensor)?))
        .unwrap_or(usize::MAX);
    if count > LARGEST_MODEL {
        return Err(ModelError::TooManyParameters {
            parameters: count,
            largest: LARGEST_MODEL,
        });
    }
    Ok(count)
}
