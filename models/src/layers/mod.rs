//! The layers, a file each: its settings, the shapes it takes and gives, its parameters, its definition in candle's
//! operations, and its forward and backward on slices. A new one is a new file and a line in the list below.

mod custom;
mod norm;
mod settings;
mod thinned;
mod windows;

use selvedge_words::{Choice, choice::tagged};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use toml::Value;

pub use custom::{Custom, CustomLayer};
pub(crate) use thinned::thinned;

use crate::{chain::NamedLayer, layer::LayerSettings};

/// Declares the modules and the layers of a description: of each the type, which is its own settings, and its `kind`.
macro_rules! layers {
    ($($module:ident::{$($Layer:ident = $kind:literal),*},)*) => {
        $(mod $module; pub use $module::{$($Layer),*};)*

        /// One layer of a description: `kind = "conv2d"` and the layer's own keys.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(remote = "Self", tag = "kind")]
        #[allow(missing_docs)] // Each is documented at its own type.
        pub enum LayerDescription {
            $($(#[serde(rename = $kind)] $Layer($Layer),)*)*
            /// A layer of a crate outside.
            #[serde(skip)]
            Custom(Custom),
        }

        /// The kinds of the layers in the list.
        const KINDS: &[&str] = &[$($($kind),*),*];

        impl LayerDescription {
            /// The layer's `kind`, as a description writes it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $($(Self::$Layer(_) => $kind,)*)*
                    Self::Custom(layer) => layer.kind(),
                }
            }

            /// What the layer says of itself.
            fn settings(&self) -> &dyn LayerSettings {
                match self {
                    $($(Self::$Layer(layer) => layer,)*)*
                    Self::Custom(layer) => layer,
                }
            }

            fn settings_mut(&mut self) -> &mut dyn LayerSettings {
                match self {
                    $($(Self::$Layer(layer) => layer,)*)*
                    Self::Custom(layer) => layer,
                }
            }
        }
    };
}

layers! {
    dense::{Dense = "dense"},
    conv2d::{Conv2d = "conv2d"},
    max_pool2d::{MaxPool2d = "max-pool2d"},
    average_pool2d::{AveragePool2d = "average-pool2d"},
    activation::{Relu = "relu", Gelu = "gelu", Tanh = "tanh", Sigmoid = "sigmoid"},
    flatten::{Flatten = "flatten"},
    dropout::{Dropout = "dropout"},
    group_norm::{GroupNorm = "group-norm", LayerNorm = "layer-norm"},
    batch_norm::{BatchNorm = "batch-norm"},
    embedding::{Embedding = "embedding"},
    attention::{Attention = "attention"},
    residual::{Residual = "residual"},
    scaler::{Scaler = "scaler"},
    candle_module::{CandleModule = "module"},
}

impl LayerDescription {
    /// Whether what the layer makes of an example in training depends on more than the example and the parameters: on
    /// what is drawn, or on the other examples of the batch.
    pub fn depends_on_the_run(&self) -> bool {
        self.settings().depends_on_the_run()
    }

    pub(crate) fn named(&self) -> NamedLayer<'_> {
        NamedLayer {
            kind: self.kind(),
            settings: self.settings(),
        }
    }
}

impl Serialize for LayerDescription {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Custom(layer) => layer.serialize(into),
            listed => Self::serialize(listed, into),
        }
    }
}

impl<'de> Deserialize<'de> for LayerDescription {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (kind, mut keys) = tagged::<dyn CustomLayer, _>(from, "kind")?;
        let is_listed = KINDS.contains(&kind.as_str());
        keys.insert("kind".into(), Value::String(kind));
        let read = match is_listed {
            true => Self::deserialize(keys),
            false => Choice::deserialize(keys).map(|layer| Self::Custom(Custom(layer))),
        };
        read.map_err(|error| D::Error::custom(error.message()))
    }
}
