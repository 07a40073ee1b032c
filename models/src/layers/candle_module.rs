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

use selvedge_words::choice::{Named, named, names};
use serde::{Deserialize, Serialize};

use crate::{
    error::LayerProblem,
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    mode::Mode,
    width::{Axis, Signal, WidthGroups},
};

type Build = dyn Fn(VarBuilder<'_>) -> candle_core::Result<Box<dyn ModuleT>> + Send + Sync;

/// A candle-nn module as a layer of a [`ModelDescription`](crate::ModelDescription), built in Rust. In TOML it has only
/// a [name](Self::named), under which it must be in the registry where it is read.
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
///     layers: vec![LayerDescription::CandleModule(perceptron)],
///     first_layer: 0,
/// };
/// assert_eq!(model.layout()?.parameters[0].name, "0.first.bias");
/// # Ok::<(), selvedge_models::ModelError>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct CandleModule {
    build: Arc<Build>,
    name: Option<String>,
    depends_on_the_run: bool,
}

impl Named for CandleModule {
    const WHAT: &'static str = "module";
}

/// The keys of the table as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl From<CandleModule> for Written {
    fn from(module: CandleModule) -> Self {
        Self { name: module.name }
    }
}

impl TryFrom<Written> for CandleModule {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Some(name) = written.name else {
            return Err("a module without a `name` cannot be read: it is written in Rust".to_string());
        };
        named(&name).map(|module: Self| module.named(&name)).ok_or_else(|| {
            let known = names::<Self>().join("`, `");
            match known.is_empty() {
                true => format!("there is no module `{name}` here, nor any other"),
                false => format!("there is no module `{name}` here; there are `{known}`"),
            }
        })
    }
}

impl CandleModule {
    /// A layer from a function that builds a module out of named variables.
    pub fn new<M: ModuleT + 'static>(
        build: impl Fn(VarBuilder<'_>) -> candle_core::Result<M> + Send + Sync + 'static,
    ) -> Self {
        Self {
            build: Arc::new(move |variables| Ok(Box::new(build(variables)?))),
            name: None,
            depends_on_the_run: true,
        }
    }

    /// Says that the module draws nothing, and makes of an example the same whatever else is in the batch: what it gives
    /// does not [depend on the run](LayerSettings::depends_on_the_run). Otherwise it is taken to.
    #[must_use]
    pub fn independent_of_the_run(self) -> Self {
        Self {
            depends_on_the_run: false,
            ..self
        }
    }

    /// The module under a name: it is written as `kind = "module"` with this `name`, and read by whoever has a module
    /// [of that name](selvedge_words::Registry::with_named) in the registry.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            name: Some(name.to_string()),
            ..self
        }
    }

    fn run(&self, variables: Variables, input: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let builder = VarBuilder::from_backend(Box::new(variables), DType::F32, input.device().clone());
        (self.build)(builder)?.forward_t(input, train)
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
        let mut module = f.debug_struct("CandleModule");
        module.field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for CandleModule {
    /// Whether both are clones of one module.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.build, &other.build)
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

impl LayerSettings for CandleModule {
    fn build(&self, _: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let (asked, shape) = self.try_out(&input.shape).map_err(|error| LayerProblem::Module {
            given: input.shape.clone(),
            error,
        })?;
        let running = |name: &&String| name.ends_with("running_mean") || name.ends_with("running_var");
        if let Some(name) = asked.keys().find(running) {
            return Err(LayerProblem::RunningStatistics { name: name.clone() }.into());
        }
        groups.fix(input.width);
        let declare = |(name, (shape, init)): (&String, &(Shape, Init))| DeclaredTensor {
            name: name.clone(),
            shape: shape.dims().to_vec(),
            axes: vec![Axis::Fixed; shape.rank()],
            initial: initial(init, shape),
        };
        Ok(PlacedLayer {
            live: Box::new(Live {
                module: self.clone(),
                variables: asked.keys().cloned().collect(),
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

    fn depends_on_the_run(&self) -> bool {
        self.depends_on_the_run
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
    /// Names, in the order of the parameters.
    variables: Vec<String>,
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        _: &mut [f32],
        input: &Tensor,
        mode: &Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let variables = self.variables.iter().cloned().zip(parameters.iter().cloned());
        let variables = Variables::Given(variables.collect());
        self.module.run(variables, input, matches!(mode, Mode::Train(_)))
    }
}
