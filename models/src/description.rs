//! A model as data: a list of layers, or the name of a preset.

use serde::{Deserialize, Serialize, Serializer};

use crate::{assembly::AssembledModel, error::ModelError, layers::LayerDescription, layout::Layout, presets::Preset};

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
        self.assemble().map(drop)
    }

    /// Where the model's values lie. Allocates no values.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn layout(&self) -> Result<Layout, ModelError> {
        Ok(self.assemble()?.layout)
    }

    /// The shape of what comes out for one example.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn output(&self) -> Result<Vec<usize>, ModelError> {
        Ok(self.assemble()?.output.shape)
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

    /// Whether what the model makes of an example in training depends on more than the example and the parameters: on
    /// what is drawn, or on the other examples of the batch. What does cannot be run twice with the same outcome.
    pub fn depends_on_the_run(&self) -> bool {
        self.layers.iter().any(LayerDescription::depends_on_the_run)
    }

    pub(crate) fn assemble(&self) -> Result<AssembledModel, ModelError> {
        let layers = self.layers.iter().map(LayerDescription::named);
        AssembledModel::new(&self.input, layers, self.first_layer)
    }
}

impl Preset {
    /// The preset for examples of shape `input` and `classes` classes.
    pub fn describe(self, input: &[usize], classes: usize) -> ModelDescription {
        ModelDescription {
            input: input.to_vec(),
            layers: self.layers(classes),
            first_layer: 0,
        }
    }
}
