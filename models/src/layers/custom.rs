//! Layers that crates outside define.

use selvedge_words::{
    Choice,
    choice::{Choosable, Entry, ImplementedBy, Settings},
};
use serde::{Serialize, Serializer};

use super::KINDS;
use crate::{
    error::LayerProblem,
    layer::{Fault, LayerSettings, PlacedLayer},
    limits::bounded,
    width::{Signal, Thinner, WidthGroups},
};

/// A layer of a crate outside: its settings, which are the keys of its table in a description.
///
/// Like the layers here it need only be defined in candle's operations, and can get kernels later; its parameters say
/// by their axes how they are thinned. It has no buffers. Once it is in the [`Registry`](selvedge_words::Registry) that a
/// description is read with, it is read from it and written to it like any other; every program that reads the description
/// must have it. Holds for all [`Settings`] that are the settings of a layer.
///
/// ```
/// use candle_core::Tensor;
/// use selvedge_models::{
///     CustomLayer, Mode, ModelDescription,
///     layer::{Fault, Layer, LayerSettings, PlacedLayer, Signal, WidthGroups},
/// };
/// use selvedge_words::{Registry, choice::Settings};
/// use serde::{Deserialize, Serialize};
///
/// /// `x · sigmoid(βx)`.
/// #[derive(Clone, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Swish {
///     beta: f64,
/// }
///
/// impl Settings for Swish {
///     const KIND: &'static str = "swish";
/// }
///
/// impl LayerSettings for Swish {
///     fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
///         Ok(PlacedLayer::bare(self.clone(), input.clone(), 10 * input.size()))
///     }
///
///     fn depends_on_the_run(&self) -> bool {
///         false
///     }
/// }
///
/// impl Layer for Swish {
///     fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
///         input / ((input * -self.beta)?.exp()? + 1.0)?
///     }
/// }
///
/// let registry = Registry::new().with::<dyn CustomLayer, Swish>()?;
/// let text = "input = [4]\nlayers = [{ kind = 'dense', units = 3 }, { kind = 'swish', beta = 1.0 }]";
/// let model: ModelDescription = registry.lend(|| toml::from_str(text))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CustomLayer: LayerSettings + Send + Sync {
    /// A copy of the layer of which is kept what a thinner model keeps, and what [`thin`](LayerSettings::thin) gives.
    fn thinned(&self, place: &str, thinner: &mut Thinner) -> (Choice<dyn CustomLayer>, f32);
}

impl<L: LayerSettings + Settings + Clone> CustomLayer for L {
    fn thinned(&self, place: &str, thinner: &mut Thinner) -> (Choice<dyn CustomLayer>, f32) {
        let mut layer = self.clone();
        let share = layer.thin(place, thinner);
        (Choice::of(layer), share)
    }
}

impl Choosable for dyn CustomLayer {
    const WHAT: &'static str = "layer";

    fn built_in() -> Vec<Entry<Self>> {
        Vec::new()
    }

    fn kinds() -> Vec<&'static str> {
        KINDS.to_vec()
    }
}

impl<S: Settings + CustomLayer> ImplementedBy<S> for dyn CustomLayer {
    fn part(settings: &S) -> &Self {
        settings
    }
}

/// A layer of a crate outside, whichever.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom(pub(super) Choice<dyn CustomLayer>);

impl Custom {
    /// A layer with these settings. It need not be registered unless it is to be read.
    pub fn new(settings: impl Settings + CustomLayer) -> Self {
        Self(Choice::of(settings))
    }

    /// The layer's `kind`.
    pub fn kind(&self) -> &'static str {
        self.0.kind()
    }
}

impl LayerSettings for Custom {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let placed = self.0.build(place, input, groups)?;
        if let Some(buffer) = placed.buffers.first() {
            let name = buffer.name.clone();
            return Err(LayerProblem::Buffer { name }.into());
        }
        let shape = &placed.output.shape;
        if shape.is_empty() || bounded("its output", shape)? == 0 {
            return Err(LayerProblem::Output { given: shape.clone() }.into());
        }
        Ok(placed)
    }

    fn depends_on_the_run(&self) -> bool {
        self.0.depends_on_the_run()
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        let (thinned, share) = self.0.thinned(place, thinner);
        self.0 = thinned;
        share
    }
}

/// As its kind and its own keys.
impl Serialize for Custom {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(into)
    }
}
