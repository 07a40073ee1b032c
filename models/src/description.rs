//! A model as data: a list of layers, or the name of a preset.

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    chain::{Chain, Chained},
    error::ModelError,
    layers::{Declared, LayerDescription},
    layout::{Entry, Layout},
    presets::Preset,
    width::{Axis, Signal, WidthGroups},
};

/// A model as data, the `[model]` table of a run's description.
///
/// In TOML either a preset, whose `input` and `classes` can be set,
///
/// ```toml
/// preset = "mcmahan-cnn"
/// classes = 62
/// ```
///
/// or the shape of one example and the layers it goes through:
///
/// ```toml
/// input = [1, 28, 28]
///
/// [[layers]]
/// kind = "flatten"
///
/// [[layers]]
/// kind = "dense"
/// units = 10
/// ```
///
/// It is written out as layers, whichever way it was read.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct ModelDescription {
    /// The shape of one example.
    pub input: Vec<usize>,
    /// The layers, first to last. Each is a stage: the model can be cut between any two.
    pub layers: Vec<LayerDescription>,
    /// The place of the first layer in the whole model: 0, except in the back of a model that was cut.
    pub first_layer: usize,
}

/// The keys of the table as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<Preset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_layer: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<LayerDescription>>,
}

impl TryFrom<Written> for ModelDescription {
    type Error = ModelError;

    fn try_from(written: Written) -> Result<Self, ModelError> {
        let wrong = |text: &str| Err(ModelError::Description(text.to_string()));
        let description = match written {
            Written {
                preset: Some(_),
                layers: Some(_),
                ..
            } => {
                return wrong("it has both `preset` and `layers`; keep one of them");
            }
            Written {
                preset: Some(_),
                first_layer: Some(_),
                ..
            } => {
                return wrong("`first_layer` goes with `layers`, not with `preset`");
            }
            Written {
                preset: Some(preset),
                input,
                classes,
                ..
            } => {
                let input = input.unwrap_or_else(|| vec![1, 28, 28]);
                preset.describe(&input, classes.unwrap_or(10))
            }
            Written { classes: Some(_), .. } => {
                return wrong("`classes` goes with `preset`; in `layers` the last layer has them");
            }
            Written {
                input: Some(input),
                layers: Some(layers),
                first_layer,
                ..
            } => Self {
                input,
                layers,
                first_layer: first_layer.unwrap_or(0),
            },
            _ => return wrong("it needs a `preset`, or `input` and `layers`"),
        };
        description.check()?;
        Ok(description)
    }
}

impl Serialize for ModelDescription {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            preset: None,
            input: Some(self.input.clone()),
            classes: None,
            first_layer: Some(self.first_layer).filter(|first| *first > 0),
            layers: Some(self.layers.clone()),
        };
        written.serialize(into)
    }
}

impl ModelDescription {
    /// Checks that the layers' shapes chain and that no size is absurd.
    ///
    /// # Errors
    /// When they do not, or one is; the error names the layer.
    pub fn check(&self) -> Result<(), ModelError> {
        self.build().map(drop)
    }

    /// Where the model's values lie. Allocates no values.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn layout(&self) -> Result<Layout, ModelError> {
        Ok(self.build()?.layout)
    }

    /// The shape of what comes out for one example.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn output(&self) -> Result<Vec<usize>, ModelError> {
        Ok(self.build()?.output.shape)
    }

    /// Cuts the model after its first `layers` layers into front and back. Their parameters keep their names, and the
    /// front's values followed by the back's are the whole's. The cut must leave a layer on each side.
    ///
    /// Thinning comes before cutting: the axes in a part's own layout are fixed at the cut, where the whole's are not.
    ///
    /// # Errors
    /// When a side would be left without a layer, or the model is not in order.
    pub fn cut(&self, layers: usize) -> Result<(Self, Self), ModelError> {
        if layers == 0 || layers >= self.layers.len() {
            return Err(ModelError::Description(format!(
                "it cannot be cut after {layers} layers; it has {}, and each side needs one",
                self.layers.len()
            )));
        }
        let (front, back) = self.layers.split_at(layers);
        let front = Self {
            layers: front.to_vec(),
            ..self.clone()
        };
        let back = Self {
            input: front.output()?,
            layers: back.to_vec(),
            first_layer: self.first_layer + layers,
        };
        Ok((front, back))
    }

    pub(crate) fn build(&self) -> Result<Built, ModelError> {
        let layers = self.layers.iter().map(LayerDescription::description);
        Built::new(&self.input, layers, self.first_layer)
    }
}

/// A model put together from its description: checked, but without values.
pub(crate) struct Built {
    pub(crate) chain: Chain,
    pub(crate) layout: Layout,
    pub(crate) output: Signal,
    /// How each layer's output can be thinned.
    pub(crate) widths: Vec<Axis>,
    /// The axes that layers opened, in the order of the layers.
    pub(crate) opened: Vec<Axis>,
}

impl Built {
    pub(crate) fn new<'a>(
        input: &[usize],
        layers: impl IntoIterator<Item = &'a dyn crate::layers::Description>,
        first_layer: usize,
    ) -> Result<Self, ModelError> {
        let wrong = |text: String| Err(ModelError::Description(text));
        if input.is_empty() || input.contains(&0) {
            return wrong(format!(
                "`input` is {input:?}; it needs at least one side, none of them 0"
            ));
        }
        if crate::layers::bounded("", input).is_err() {
            return wrong(format!("`input` is {input:?}; that is too large"));
        }
        let mut groups = WidthGroups::default();
        let signal = Signal {
            shape: input.to_vec(),
            width: Axis::Fixed,
        };
        let Chained {
            chain,
            parameters,
            buffers,
        } = Chain::build(layers, "", first_layer, &signal, &mut groups)?;
        let Some(last) = chain.stages().last() else {
            return wrong("it has no layers".to_string());
        };
        let output = last.output.clone();
        groups.fix(output.width);
        let (numbered, number) = groups.number();
        let opened = groups.opened().map(&number).collect();
        let stages = chain.stages().iter();
        let widths = stages.map(|stage| number(stage.output.width)).collect();
        let entries = |declared: Vec<Declared>| {
            let mut offset = 0;
            let entry = |tensor: Declared| {
                let axes = tensor.axes.iter().map(|axis| number(*axis)).collect();
                let Declared {
                    name, shape, initial, ..
                } = tensor;
                let entry = Entry {
                    name,
                    shape,
                    offset,
                    axes,
                    initial,
                };
                offset += entry.size();
                entry
            };
            declared.into_iter().map(entry).collect()
        };
        let layout = Layout {
            parameters: entries(parameters),
            buffers: entries(buffers),
            groups: numbered,
        };
        Ok(Self {
            chain,
            layout,
            output,
            widths,
            opened,
        })
    }
}
