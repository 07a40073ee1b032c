//! Layers with a way around them.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{LayerDescription, thinned};
use crate::{
    chain::{Chain, Chained},
    error::{LayerProblem, ModelError},
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward, LayerValues},
    width::{Signal, Thinner, WidthGroups},
};

/// `layers(x) + shortcut(x)` (He et al. 2016). Without a shortcut, `layers(x) + x`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residual {
    /// The main way.
    pub layers: Vec<LayerDescription>,
    /// The way around, where it is not the input itself: usually a 1x1 convolution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortcut: Vec<LayerDescription>,
}

impl LayerSettings for Residual {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        if self.layers.is_empty() {
            return Err(LayerProblem::setting("layers", "empty", "at least one layer").into());
        }
        let mut way = |layers: &[LayerDescription], name: &str| {
            let prefix = format!("{place}.{name}.");
            let layers = layers.iter().map(LayerDescription::named);
            let mut way = Chain::build(layers, &prefix, 0, input, groups).map_err(Fault::Inside)?;
            for tensor in way.parameters.iter_mut().chain(&mut way.buffers) {
                tensor.name = format!("{name}.{}", tensor.name);
            }
            Ok::<_, Fault>(way)
        };
        let mut layers = way(&self.layers, "layers")?;
        let mut shortcut = way(&self.shortcut, "shortcut")?;
        let one = layers.chain.stages().last().map_or(input, |stage| &stage.output);
        let other = shortcut.chain.stages().last().map_or(input, |stage| &stage.output);
        if one.shape != other.shape {
            let (layers, shortcut) = (one.shape.clone(), other.shape.clone());
            return Err(LayerProblem::Shortcut { layers, shortcut }.into());
        }
        let output = Signal {
            width: groups.join(one.width, other.width),
            ..one.clone()
        };
        let operations = layers.chain.operations() + shortcut.chain.operations();
        let mut merged = |tensors: fn(&mut Chained) -> &mut Vec<DeclaredTensor>| {
            let mut merged = std::mem::take(tensors(&mut layers));
            merged.append(tensors(&mut shortcut));
            merged
        };
        Ok(PlacedLayer {
            parameters: merged(|way| &mut way.parameters),
            buffers: merged(|way| &mut way.buffers),
            inside: layers.chain.activations() + shortcut.chain.activations(),
            operations: operations + output.size() as u64,
            output,
            live: Box::new(Live {
                example: input.size(),
                layers: layers.chain,
                shortcut: shortcut.chain,
                around: vec![],
            }),
        })
    }

    fn depends_on_the_run(&self) -> bool {
        let mut layers = self.layers.iter().chain(&self.shortcut);
        layers.any(LayerDescription::depends_on_the_run)
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        self.layers = thinned(&self.layers, &format!("{place}.layers."), 0, thinner);
        self.shortcut = thinned(&self.shortcut, &format!("{place}.shortcut."), 0, thinner);
        1.0
    }
}

struct Live {
    /// Values of one example at the input.
    example: usize,
    layers: Chain,
    /// Without stages when the way around is the input itself.
    shortcut: Chain,
    /// Scratch: the gradient that comes back by the shortcut.
    around: Vec<f32>,
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        buffers: &mut [f32],
        input: &Tensor,
        mode: &Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let (main, around) = parameters.split_at(self.layers.tensors());
        let (main_buffers, around_buffers) = buffers.split_at_mut(self.layers.buffers());
        let main = self.layers.plain(main, main_buffers, input, mode)?;
        main + self.shortcut.plain(around, around_buffers, input, mode)?
    }

    fn forward(
        &mut self,
        Forward {
            values,
            input,
            output,
            mode,
            ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let examples = input.len() / self.example;
        let (parameters, around_parameters) = values.parameters.split_at(self.layers.parameters());
        let (buffers, around_buffers) = values.buffers.split_at_mut(self.layers.buffers());
        self.layers
            .forward(LayerValues { parameters, buffers }, examples, input, mode)?;
        let (parameters, buffers) = (around_parameters, around_buffers);
        self.shortcut
            .forward(LayerValues { parameters, buffers }, examples, input, mode)?;
        let around = if self.shortcut.is_empty() {
            input
        } else {
            self.shortcut.output()
        };
        for ((output, main), around) in output.iter_mut().zip(self.layers.output()).zip(around) {
            *output = main + around;
        }
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            sink,
            input,
            output_gradient,
            mut input_gradient,
            ..
        }: Backward<'_>,
    ) -> Result<(), ModelError> {
        let (main, around) = sink.split_at(self.layers.parameters());
        self.layers
            .backward(main, input, output_gradient, input_gradient.as_deref_mut())?;
        let Some(input_gradient) = input_gradient else {
            return self.shortcut.backward(around, input, output_gradient, None);
        };
        let around = if self.shortcut.is_empty() {
            output_gradient
        } else {
            self.around.resize(input.len(), 0.0);
            self.shortcut
                .backward(around, input, output_gradient, Some(&mut self.around))?;
            &self.around
        };
        for (gradient, around) in input_gradient.iter_mut().zip(around) {
            *gradient += around;
        }
        Ok(())
    }
}
