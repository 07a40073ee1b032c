//! The layers, a file each: its description, the shapes it takes and gives, its parameters, its definition in candle's
//! operations, and its forward and backward on slices.

mod activation;
mod attention;
mod average_pool2d;
mod batch_norm;
mod conv2d;
mod dense;
mod dropout;
mod embedding;
mod flatten;
mod group_norm;
mod max_pool2d;
mod residual;
mod scaler;
mod windows;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

pub use activation::{Gelu, Relu, Sigmoid, Tanh};
pub use attention::Attention;
pub use average_pool2d::AveragePool2d;
pub use batch_norm::BatchNorm;
pub use conv2d::Conv2d;
pub use dense::Dense;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use group_norm::{GroupNorm, LayerNorm};
pub use max_pool2d::MaxPool2d;
pub use residual::Residual;
pub use scaler::Scaler;

use crate::{
    Initial, LARGEST_VALUE,
    candle_module::CandleModule,
    chain::{Descent, Sink, Values},
    error::{LayerProblem, ModelError},
    kernels::descent::descend,
    network::Mode,
    width::{Axis, Signal, WidthGroups},
};

/// One layer of a description: `kind = "conv2d"` and the layer's own keys.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is documented at its own type.
pub enum LayerDescription {
    Dense(Dense),
    Conv2d(Conv2d),
    MaxPool2d(MaxPool2d),
    AveragePool2d(AveragePool2d),
    Relu(Relu),
    Gelu(Gelu),
    Tanh(Tanh),
    Sigmoid(Sigmoid),
    Flatten(Flatten),
    Dropout(Dropout),
    GroupNorm(GroupNorm),
    LayerNorm(LayerNorm),
    BatchNorm(BatchNorm),
    Embedding(Embedding),
    Attention(Attention),
    Residual(Residual),
    Scaler(Scaler),
    /// Written in Rust. A description in TOML only says that there is one, and cannot be read back.
    #[serde(skip_deserializing)]
    Module(CandleModule),
}

impl LayerDescription {
    pub(crate) fn description(&self) -> &dyn Description {
        match self {
            Self::Dense(layer) => layer,
            Self::Conv2d(layer) => layer,
            Self::MaxPool2d(layer) => layer,
            Self::AveragePool2d(layer) => layer,
            Self::Relu(layer) => layer,
            Self::Gelu(layer) => layer,
            Self::Tanh(layer) => layer,
            Self::Sigmoid(layer) => layer,
            Self::Flatten(layer) => layer,
            Self::Dropout(layer) => layer,
            Self::GroupNorm(layer) => layer,
            Self::LayerNorm(layer) => layer,
            Self::BatchNorm(layer) => layer,
            Self::Embedding(layer) => layer,
            Self::Attention(layer) => layer,
            Self::Residual(layer) => layer,
            Self::Scaler(layer) => layer,
            Self::Module(layer) => layer,
        }
    }

    /// The layer's `kind`, as a description writes it.
    pub fn kind(&self) -> &'static str {
        self.description().kind()
    }
}

/// What every layer's description can do.
pub(crate) trait Description {
    fn kind(&self) -> &'static str;

    /// Checks the description against the input's shape and makes the live layer. Allocates nothing large.
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault>;
}

/// Why a layer could not be built: its own fault, or that of a layer inside it.
pub(crate) enum Fault {
    Here(LayerProblem),
    Inside(ModelError),
}

impl From<LayerProblem> for Fault {
    fn from(problem: LayerProblem) -> Self {
        Self::Here(problem)
    }
}

/// A layer that has found its place in a model.
pub(crate) struct Built {
    pub(crate) live: Box<dyn Layer>,
    pub(crate) output: Signal,
    pub(crate) parameters: Vec<Declared>,
    pub(crate) buffers: Vec<Declared>,
    /// Values of one example that the layer keeps inside itself.
    pub(crate) inside: u64,
    /// Floating-point operations of one example's forward.
    pub(crate) operations: u64,
}

impl Built {
    /// A layer without parameters.
    pub(crate) fn bare(live: impl Layer + 'static, output: Signal, operations: usize) -> Self {
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
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) axes: Vec<Axis>,
    pub(crate) initial: Initial,
}

impl Declared {
    pub(crate) fn new<const N: usize>(name: &str, axes: [(usize, Axis); N], initial: Initial) -> Self {
        Self {
            name: name.to_string(),
            shape: axes.map(|(size, _)| size).to_vec(),
            axes: axes.map(|(_, axis)| axis).to_vec(),
            initial,
        }
    }
}

/// A live layer. It keeps inside itself what its backward needs beyond its input and output, and its scratch space.
///
/// A pass covers a batch: slices hold its examples one after the other.
pub(crate) trait Layer: Send {
    /// The definition, in candle's operations: runs on any device and is differentiated by candle. `parameters` come
    /// in the order of their declaration.
    fn plain(
        &self,
        parameters: &[Tensor],
        buffers: &mut [f32],
        input: &Tensor,
        mode: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor>;

    /// Writes the whole of `output`.
    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        mode: &mut Mode<'_>,
    ) -> Result<(), ModelError>;

    /// The vector-Jacobian product of the last forward, whose `input` and `output` come again. Adds the parameters'
    /// gradient to the sink; writes the whole of the input's gradient where one is wanted.
    fn backward(
        &mut self,
        sink: Sink<'_>,
        input: &[f32],
        output: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError>;

    /// [`backward`](Self::backward), and a step of plain gradient descent: to the bit what backward and
    /// [`descend`] make.
    fn descend(
        &mut self,
        descent: Descent<'_>,
        input: &[f32],
        output: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
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
        self.backward(sink, input, output, output_gradient, input_gradient)?;
        descend(parameters, gradient, rate);
        Ok(())
    }
}

/// The product of sizes, if it stays within what one example may hold.
pub(crate) fn bounded(what: &'static str, sizes: &[usize]) -> Result<usize, LayerProblem> {
    sizes
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size))
        .filter(|product| *product <= LARGEST_VALUE)
        .ok_or(LayerProblem::TooLarge {
            what,
            largest: LARGEST_VALUE,
        })
}

/// Refuses a setting of 0.
pub(crate) fn at_least_one(setting: &'static str, value: usize) -> Result<(), LayerProblem> {
    if value == 0 {
        return Err(LayerProblem::setting(setting, value, "at least 1"));
    }
    Ok(())
}

/// Refuses a setting that is not above 0.
fn positive(setting: &'static str, value: f32) -> Result<(), LayerProblem> {
    if !(value > 0.0 && value.is_finite()) {
        return Err(LayerProblem::setting(setting, value, "above 0"));
    }
    Ok(())
}

/// What norms add to a variance unless told otherwise.
fn epsilon() -> f32 {
    1e-5
}

/// PyTorch's usual start for weights and biases: uniform within one over the root of the inputs of a unit
/// (Kaiming-uniform with a = sqrt 5).
pub(crate) fn uniform_by_inputs(inputs: usize) -> Initial {
    let bound = 1.0 / (inputs as f32).sqrt();
    Initial::Uniform {
        low: -bound,
        high: bound,
    }
}

/// The default of a setting that is on unless turned off.
fn yes() -> bool {
    true
}
