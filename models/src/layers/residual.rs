//! Layers with a way around them.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, LayerDescription};
use crate::{
    chain::{Chain, Chained, Sink, Values},
    error::{LayerProblem, ModelError},
    network::Mode,
    width::{Signal, WidthGroups},
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

impl Description for Residual {
    fn kind(&self) -> &'static str {
        "residual"
    }

    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
        if self.layers.is_empty() {
            return Err(LayerProblem::setting("layers", "empty", "at least one layer").into());
        }
        let mut way = |layers: &[LayerDescription], name: &str| {
            let prefix = format!("{place}.{name}.");
            let layers = layers.iter().map(LayerDescription::description);
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
        let mut merged = |tensors: fn(&mut Chained) -> &mut Vec<Declared>| {
            let mut merged = std::mem::take(tensors(&mut layers));
            merged.append(tensors(&mut shortcut));
            merged
        };
        Ok(Built {
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
        mode: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let (main, around) = parameters.split_at(self.layers.tensors());
        let (main_buffers, around_buffers) = buffers.split_at_mut(self.layers.buffers());
        let main = self.layers.plain(main, main_buffers, input, mode)?;
        main + self.shortcut.plain(around, around_buffers, input, mode)?
    }

    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        mode: &mut Mode<'_>,
    ) -> Result<(), ModelError> {
        let examples = input.len() / self.example;
        let (parameters, around_parameters) = values.parameters.split_at(self.layers.parameters());
        let (buffers, around_buffers) = values.buffers.split_at_mut(self.layers.buffers());
        self.layers
            .forward(Values { parameters, buffers }, examples, input, mode)?;
        let (parameters, buffers) = (around_parameters, around_buffers);
        self.shortcut
            .forward(Values { parameters, buffers }, examples, input, mode)?;
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
        sink: Sink<'_>,
        input: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        mut input_gradient: Option<&mut [f32]>,
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
