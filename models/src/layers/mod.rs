//! The layers, a file each: its settings, the shapes it takes and gives, its parameters, its definition in candle's
//! operations, and its forward and backward on slices. A new one is a new file and a line in the list below.

mod custom;
mod norm;
mod settings;
mod thinned;
mod windows;

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, MapAccess, Visitor},
};
use toml::{Table, Value};

pub use custom::{Custom, CustomLayer};
pub(crate) use thinned::thinned;

use crate::{chain::NamedLayer, error::ModelError, layer::LayerSettings};

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

/// Makes a layer of a crate outside known to this process by its [`KIND`](CustomLayer::KIND): descriptions that are
/// read from then on can have it.
///
/// # Errors
/// When a layer of this kind is known already.
pub fn register_layer<L: CustomLayer>() -> Result<(), ModelError> {
    match KINDS.contains(&L::KIND) {
        true => Err(ModelError::NameTaken { name: L::KIND.into() }),
        false => custom::register::<L>(),
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
        from.deserialize_map(Read)
    }
}

/// Reads a layer's table; what is wrong with its `kind` is said at that key.
struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = LayerDescription;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("internally tagged enum LayerDescription")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LayerDescription, A::Error> {
        let (mut kind, mut keys) = (None, Table::new());
        while let Some(key) = map.next_key::<String>()? {
            match key == "kind" {
                true => kind = Some(map.next_value::<Kind>()?.0),
                false => drop(keys.insert(key, map.next_value()?)),
            }
        }
        let kind = kind.ok_or_else(|| A::Error::missing_field("kind"))?;
        let read = match custom::reader(&kind) {
            Some(read) => read(keys).map(LayerDescription::Custom),
            None => {
                keys.insert("kind".into(), Value::String(kind));
                LayerDescription::deserialize(keys)
            }
        };
        read.map_err(|error| A::Error::custom(error.message()))
    }
}

/// A kind that is known.
struct Kind(String);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(ReadKind)
    }
}

struct ReadKind;

impl Visitor<'_> for ReadKind {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variant identifier")
    }

    fn visit_str<E: serde::de::Error>(self, kind: &str) -> Result<Kind, E> {
        match KINDS.contains(&kind) || custom::reader(kind).is_some() {
            true => Ok(Kind(kind.to_string())),
            false => Err(E::custom(unknown(kind))),
        }
    }
}

/// That there is no such kind, in serde's words.
fn unknown(kind: &str) -> String {
    let known = KINDS.iter().map(|kind| kind.to_string()).chain(custom::kinds());
    let known: Vec<String> = known.map(|kind| format!("`{kind}`")).collect();
    format!("unknown variant `{kind}`, expected one of {}", known.join(", "))
}
