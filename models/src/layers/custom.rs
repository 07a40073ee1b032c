//! Layers that crates outside define.

use std::fmt;

use serde::{
    Serialize, Serializer,
    de::DeserializeOwned,
    ser::{Error as _, SerializeMap},
};
use toml::Table;

use crate::{
    error::{LayerProblem, ModelError},
    layer::{Fault, LayerSettings, PlacedLayer},
    limits::bounded,
    names::Names,
    width::{Signal, Thinner, WidthGroups},
};

/// A layer of a crate outside: its settings, which are the keys of its table in a description.
///
/// Like the layers here it need only be defined in candle's operations, and can get kernels later; its parameters say
/// by their axes how they are thinned. It has no buffers. Once [registered](crate::register_layer), it is read from a
/// description and written to it like any other; every program that reads the description must have it.
///
/// ```
/// use candle_core::Tensor;
/// use selvedge_models::{
///     CustomLayer, Mode, ModelDescription,
///     layer::{Fault, Layer, LayerSettings, PlacedLayer, Signal, WidthGroups},
/// };
/// use serde::{Deserialize, Serialize};
///
/// /// `x · sigmoid(βx)`.
/// #[derive(Clone, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Swish {
///     beta: f64,
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
/// impl CustomLayer for Swish {
///     const KIND: &'static str = "swish";
/// }
///
/// selvedge_models::register_layer::<Swish>()?;
/// let text = "input = [4]\nlayers = [{ kind = 'dense', units = 3 }, { kind = 'swish', beta = 1.0 }]";
/// let model: ModelDescription = toml::from_str(text)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CustomLayer: LayerSettings + Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// The layer's `kind`, as a description writes it.
    const KIND: &'static str;
}

/// A layer of a crate outside, whichever.
pub struct Custom(Box<dyn Settings>);

/// What can be done with the settings of any such layer.
trait Settings: LayerSettings + Send + Sync {
    fn kind(&self) -> &'static str;
    fn copy(&self) -> Box<dyn Settings>;
    fn written(&self) -> Result<Table, toml::ser::Error>;
}

impl<L: CustomLayer> Settings for L {
    fn kind(&self) -> &'static str {
        L::KIND
    }

    fn copy(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }

    fn written(&self) -> Result<Table, toml::ser::Error> {
        Table::try_from(self)
    }
}

impl Custom {
    /// A layer with these settings. It need not be registered unless it is to be read.
    pub fn new(settings: impl CustomLayer) -> Self {
        Self(Box::new(settings))
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
        self.0.thin(place, thinner)
    }
}

impl Clone for Custom {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl PartialEq for Custom {
    /// Whether both are written alike.
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind()
            && matches!((self.0.written(), other.0.written()), (Ok(one), Ok(other)) if one == other)
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.kind()).field(&self.0.written()).finish()
    }
}

/// As its kind and its own keys.
impl Serialize for Custom {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let keys = self.0.written().map_err(S::Error::custom)?;
        let mut map = into.serialize_map(Some(keys.len() + 1))?;
        map.serialize_entry("kind", self.kind())?;
        for (key, value) in &keys {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Makes a layer of the keys that are written.
pub(super) type Read = fn(Table) -> Result<Custom, toml::de::Error>;

static LAYERS: Names<Read> = Names::new();

/// Makes a layer known by its kind.
pub(super) fn register<L: CustomLayer>() -> Result<(), ModelError> {
    LAYERS.give(L::KIND, |keys| Ok(Custom::new(keys.try_into::<L>()?)))
}

/// What reads the layers of this kind; `None` when there is no such kind.
pub(super) fn reader(kind: &str) -> Option<Read> {
    LAYERS.get(kind)
}

/// The kinds that are known.
pub(super) fn kinds() -> Vec<String> {
    LAYERS.all()
}
