//! A model, or a part of one, that a Rust user has written with candle-nn.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::{
    Init, ModuleT, VarBuilder,
    init::{FanInOut, NormalOrUniform},
    var_builder::SimpleBackend,
};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    chain::{Sink, Values},
    error::{LayerProblem, ModelError},
    layers::{Built, Declared, Description, Fault, Layer},
    layout::Initial,
    network::Mode,
    tape::{Reached, Tape, tensors},
    width::{Axis, Signal, WidthGroups},
};

type Build = dyn Fn(VarBuilder<'_>) -> candle_core::Result<Box<dyn ModuleT>> + Send + Sync;

/// A candle-nn module as a layer of a [`ModelDescription`](crate::ModelDescription), built in Rust: it has no TOML.
///
/// Its variables become parameters, sorted by name; candle differentiates it. The module is built anew from its
/// variables for every forward, so building it should be cheap. Randomness inside it (candle's dropout) is not seeded.
/// Some of candle-nn's fused operations (its `LayerNorm` among them) cannot be differentiated by candle, silently; a
/// backward in which a variable gets no gradient is an error. Running statistics cannot be told from parameters: a module that asks for them is refused.
///
/// ```
/// use candle_nn::{linear, seq};
/// use selvedge_models::{CandleModule, LayerDescription, ModelDescription};
///
/// let perceptron = CandleModule::new(|variables| {
///     let first = linear(784, 100, variables.pp("first"))?;
///     let second = linear(100, 10, variables.pp("second"))?;
///     Ok(seq().add(first).add(candle_nn::Activation::Relu).add(second))
/// });
/// let model = ModelDescription {
///     input: vec![784],
///     layers: vec![LayerDescription::Module(perceptron)],
///     first_layer: 0,
/// };
/// assert_eq!(model.layout()?.parameters[0].name, "0.first.bias");
/// # Ok::<(), selvedge_models::ModelError>(())
/// ```
#[derive(Clone)]
pub struct CandleModule(Arc<Build>);

/// As nothing but its kind.
impl Serialize for CandleModule {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_struct("CandleModule", 0)?.end()
    }
}

impl CandleModule {
    /// A layer from a function that builds a module out of named variables.
    pub fn new<M: ModuleT + 'static>(
        build: impl Fn(VarBuilder<'_>) -> candle_core::Result<M> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |variables| Ok(Box::new(build(variables)?))))
    }

    fn run(&self, variables: Variables, input: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let builder = VarBuilder::from_backend(Box::new(variables), DType::F32, input.device().clone());
        (self.0)(builder)?.forward_t(input, train)
    }

    /// What the module asks for, and what it gives for one example.
    fn try_out(&self, input: &[usize]) -> candle_core::Result<(Asked, Vec<usize>)> {
        let asked = Arc::new(Mutex::new(Asked::new()));
        let example = Tensor::zeros([&[1], input].concat(), DType::F32, &Device::Cpu)?;
        let output = self.run(Variables::Asking(asked.clone()), &example, false)?;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match output.dims() {
            [1, shape @ ..] if !shape.is_empty() => Ok((asked, shape.to_vec())),
            shape => candle_core::bail!("the module turns a batch of one example into {shape:?}"),
        }
    }
}

impl fmt::Debug for CandleModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CandleModule")
    }
}

impl PartialEq for CandleModule {
    /// Whether both are clones of one module.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Variables by name: their shapes and how they start.
type Asked = BTreeMap<String, (Shape, Init)>;

/// Where a module gets its variables from.
enum Variables {
    /// It is being asked which it needs.
    Asking(Arc<Mutex<Asked>>),
    Given(BTreeMap<String, Tensor>),
}

impl SimpleBackend for Variables {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        match self {
            Self::Asking(asked) => {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.insert(name.to_string(), (shape.clone(), init));
                Tensor::zeros(shape, dtype, device)
            }
            Self::Given(_) => self.get_unchecked(name, dtype, device),
        }
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        match self {
            Self::Given(tensors) if tensors.contains_key(name) => Ok(tensors[name].clone()),
            _ => candle_core::bail!("variable `{name}` must be asked for with its shape"),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        match self {
            Self::Asking(_) => true,
            Self::Given(tensors) => tensors.contains_key(name),
        }
    }
}

impl Description for CandleModule {
    fn kind(&self) -> &'static str {
        "module"
    }

    fn build(&self, _: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
        let (asked, shape) = self.try_out(&input.shape).map_err(|error| LayerProblem::Module {
            given: input.shape.clone(),
            error,
        })?;
        let running = |name: &&String| name.ends_with("running_mean") || name.ends_with("running_var");
        if let Some(name) = asked.keys().find(running) {
            return Err(LayerProblem::RunningStatistics { name: name.clone() }.into());
        }
        groups.fix(input.width);
        let declare = |(name, (shape, init)): (&String, &(Shape, Init))| Declared {
            name: name.clone(),
            shape: shape.dims().to_vec(),
            axes: vec![Axis::Fixed; shape.rank()],
            initial: initial(init, shape),
        };
        Ok(Built {
            live: Box::new(Live {
                module: self.clone(),
                input: input.shape.clone(),
                variables: asked
                    .iter()
                    .map(|(name, (shape, _))| (name.clone(), shape.dims().to_vec()))
                    .collect(),
                tape: None,
            }),
            output: Signal {
                shape,
                width: Axis::Fixed,
            },
            parameters: asked.iter().map(declare).collect(),
            buffers: vec![],
            inside: 0,
            operations: 0,
        })
    }
}

/// Candle-nn's starting values, drawn by our own seeded generator.
fn initial(init: &Init, shape: &Shape) -> Initial {
    let fan = |fan: &FanInOut| fan.for_shape(shape) as f64;
    match init {
        Init::Const(value) => Initial::Constant(*value as f32),
        Init::Randn { mean, stdev } => Initial::Normal {
            mean: *mean as f32,
            deviation: *stdev as f32,
        },
        Init::Uniform { lo, up } => Initial::Uniform {
            low: *lo as f32,
            high: *up as f32,
        },
        Init::Kaiming {
            dist,
            fan: by,
            non_linearity,
        } => {
            let deviation = non_linearity.gain() / fan(by).sqrt();
            match dist {
                NormalOrUniform::Normal => Initial::Normal {
                    mean: 0.0,
                    deviation: deviation as f32,
                },
                NormalOrUniform::Uniform => {
                    let bound = (3f64.sqrt() * deviation) as f32;
                    Initial::Uniform {
                        low: -bound,
                        high: bound,
                    }
                }
            }
        }
    }
}

struct Live {
    module: CandleModule,
    input: Vec<usize>,
    /// Names and shapes, in the order of the parameters.
    variables: Vec<(String, Vec<usize>)>,
    tape: Option<Tape>,
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        _: &mut [f32],
        input: &Tensor,
        mode: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let names = self.variables.iter().map(|(name, _)| name.clone());
        let variables = Variables::Given(names.zip(parameters.iter().cloned()).collect());
        self.module.run(variables, input, matches!(mode, Mode::Train(_)))
    }

    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        mode: &mut Mode<'_>,
    ) -> Result<(), ModelError> {
        let device = Device::Cpu;
        let examples = input.len() / self.input.iter().product::<usize>();
        let input = Tensor::from_slice(input, [&[examples], self.input.as_slice()].concat(), &device)?;
        let shapes = self.variables.iter().map(|(_, shape)| shape.as_slice());
        let parameters = tensors(values.parameters, shapes, &device)?;
        let tape = Tape::record(parameters, &input, |parameters, input| {
            self.plain(parameters, &mut [], input, mode)
        })?;
        let given = tape.output().flatten_all()?.to_vec1::<f32>()?;
        if given.len() != output.len() {
            return Err(candle_core::Error::Msg("the module's output is not a row for each example".into()).into());
        }
        output.copy_from_slice(&given);
        self.tape = Some(tape);
        Ok(())
    }

    fn backward(
        &mut self,
        sink: Sink<'_>,
        _: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        let tape = self.tape.take().ok_or(ModelError::NothingToDifferentiate)?;
        let above = Tensor::from_slice(output_gradient, tape.output().shape(), &Device::Cpu)?;
        let Reached { input, missed } = tape.backward(&above, sink.begun())?;
        if let Some(missed) = missed {
            let name = self.variables[missed].0.clone();
            return Err(ModelError::NotDifferentiated { name });
        }
        if let Some(input_gradient) = input_gradient {
            input_gradient.copy_from_slice(&input.flatten_all()?.to_vec1::<f32>()?);
        }
        self.tape = Some(tape);
        Ok(())
    }
}
