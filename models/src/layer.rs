//! What a layer is: the contract between the layers and all that puts them together and runs them.
//!
//! A layer's *settings* are what a description says of it; from them, and the shape that comes in, is built the *live*
//! layer, which runs. Settings and live layer are a file in `layers/`, or a crate outside: see
//! [`CustomLayer`](crate::CustomLayer).

use candle_core::Tensor;

pub use crate::{
    pass::{Backward, Descend, Descent, Forward, LayerValues, Sink},
    width::{Signal, Thinner, WidthGroups},
};

use crate::{
    error::{LayerProblem, ModelError},
    kernels::descent::descend,
    layout::Initial,
    mode::Mode,
    width::Axis,
};

/// The settings of a layer, and what only the layer itself can say of them.
pub trait LayerSettings {
    /// Checks the settings against the input's shape and makes the live layer, to stand at `place`. Allocates nothing
    /// large.
    ///
    /// # Errors
    /// When a setting is out of range or does not go with the input's shape.
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault>;

    /// Whether what the layer makes of an example in training depends on more than the example and the parameters: on
    /// what is drawn, or on the other examples of the batch. What does cannot be run twice with the same outcome.
    fn depends_on_the_run(&self) -> bool;

    /// Keeps what a thinner model keeps of the layer at `place`: a layer that opens width groups asks the thinner for
    /// each of them, in the order of opening, how many units are left. Gives the share of the units of its output that
    /// is left; 1 when it opens no group, or is not thinned by it.
    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        let _ = (place, thinner);
        1.0
    }
}

/// A live layer. It keeps inside itself what its backward needs beyond its input and output, and its scratch space.
///
/// Only the definition must be there. Without kernels of its own the layer is run by its definition, and candle
/// differentiates it, which is slower.
pub trait Layer: Send {
    /// The definition, in candle's operations: runs on any device and is differentiated by candle. `parameters` come
    /// in the order of their declaration.
    ///
    /// # Errors
    /// When candle refuses an operation.
    fn plain(
        &self,
        parameters: &[Tensor],
        buffers: &mut [f32],
        input: &Tensor,
        mode: &Mode<'_>,
    ) -> candle_core::Result<Tensor>;

    /// Writes the whole of the output.
    ///
    /// # Errors
    /// When the layer cannot take its values.
    fn forward(&mut self, pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward {
            values,
            input,
            output,
            mode,
            recording,
        } = pass;
        recording.forward(values.parameters, input, output, |parameters, input| {
            self.plain(parameters, values.buffers, input, mode)
        })
    }

    /// The vector-Jacobian product of the last forward, whose input and output come again. Adds the parameters'
    /// gradient to the sink; writes the whole of the input's gradient where one is wanted.
    ///
    /// # Errors
    /// When the last forward cannot be differentiated.
    fn backward(&mut self, pass: Backward<'_>) -> Result<(), ModelError> {
        let Backward {
            sink,
            output_gradient,
            input_gradient,
            recording,
            ..
        } = pass;
        recording.backward(sink.begun(), output_gradient, input_gradient)
    }

    /// [`backward`](Self::backward), and a step of plain gradient descent: to the bit what backward and such a step
    /// make.
    ///
    /// # Errors
    /// As for [`backward`](Self::backward).
    fn descend(&mut self, pass: Descend<'_>) -> Result<(), ModelError> {
        let Descend {
            descent,
            input,
            output,
            output_gradient,
            input_gradient,
            recording,
        } = pass;
        let Descent {
            parameters,
            gradient,
            rate,
        } = descent;
        let sink = Sink {
            parameters,
            gradient,
            is_begun: false,
        };
        self.backward(Backward {
            sink,
            input,
            output,
            output_gradient,
            input_gradient,
            recording,
        })?;
        descend(parameters, gradient, rate);
        Ok(())
    }
}

/// A layer that has found its place in a model.
pub struct PlacedLayer {
    /// The layer, to be run.
    pub live: Box<dyn Layer>,
    /// What it gives for one example.
    pub output: Signal,
    /// What it trains.
    pub parameters: Vec<DeclaredTensor>,
    /// What it keeps but does not train.
    pub buffers: Vec<DeclaredTensor>,
    /// Values of one example that the layer keeps inside itself.
    pub inside: u64,
    /// Floating-point operations of one example's forward.
    pub operations: u64,
}

impl PlacedLayer {
    /// A layer without parameters.
    pub fn bare(live: impl Layer + 'static, output: Signal, operations: usize) -> Self {
        Self {
            live: Box::new(live),
            output,
            parameters: Vec::new(),
            buffers: Vec::new(),
            inside: 0,
            operations: operations as u64,
        }
    }
}

/// A tensor that a layer asks for.
pub struct DeclaredTensor {
    /// Its name within the layer.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How each of its axes can be thinned.
    pub axes: Vec<Axis>,
    /// How its values are drawn at the start.
    pub initial: Initial,
}

impl DeclaredTensor {
    /// A tensor with these axes: of each, its size and how it can be thinned.
    pub fn new<const N: usize>(name: &str, axes: [(usize, Axis); N], initial: Initial) -> Self {
        Self {
            name: name.to_string(),
            shape: axes.map(|(size, _)| size).to_vec(),
            axes: axes.map(|(_, axis)| axis).to_vec(),
            initial,
        }
    }
}

/// Why a layer could not be built: its own fault, or that of a layer inside it.
pub enum Fault {
    /// Its own.
    Here(LayerProblem),
    /// That of a layer inside it.
    Inside(ModelError),
}

impl From<LayerProblem> for Fault {
    fn from(problem: LayerProblem) -> Self {
        Self::Here(problem)
    }
}
