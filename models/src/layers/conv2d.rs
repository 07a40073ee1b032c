//! A two-dimensional convolution.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, at_least_one, bounded, uniform_by_inputs};
use crate::{
    chain::{Sink, Values},
    error::ModelError,
    kernels::{convolution::Convolution, patches::Patches, sums},
    network::Mode,
    width::{Axis, Signal, WidthGroups},
};

/// Slides `channels` square filters over `[channels, height, width]` (a cross-correlation, as in every framework).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Filters, the channels of the output.
    pub channels: usize,
    /// Side of a filter, in pixels.
    pub kernel: usize,
    /// Pixels from one place to the next.
    #[serde(default = "one")]
    pub stride: usize,
    /// Zeros around the image on each side.
    #[serde(default)]
    pub padding: usize,
    /// Whether each filter has a bias.
    #[serde(default = "super::yes")]
    pub bias: bool,
}

fn one() -> usize {
    1
}

impl Description for Conv2d {
    fn kind(&self) -> &'static str {
        "conv2d"
    }

    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
        at_least_one("channels", self.channels)?;
        let patches = Patches::over(&input.shape, self.kernel, self.stride, self.padding)?;
        let shape = vec![self.channels, patches.out_height, patches.out_width];
        let size = bounded("its output", &shape)?;
        let (padded_width, padded_height) = patches.padded();
        bounded("its padded image", &[patches.channels, padded_height, padded_width])?;
        let width = groups.open(place, self.channels);
        let initial = uniform_by_inputs(patches.patch());
        let window = (self.kernel, Axis::Fixed);
        let axes = [(self.channels, width), (patches.channels, input.width), window, window];
        let mut parameters = vec![Declared::new("weight", axes, initial)];
        if self.bias {
            parameters.push(Declared::new("bias", [(self.channels, width)], initial));
        }
        Ok(Built {
            live: Box::new(Live {
                channels: self.channels,
                patches,
                convolution: Convolution::default(),
            }),
            output: Signal { shape, width },
            parameters,
            buffers: vec![],
            inside: 0,
            operations: size as u64 * (2 * patches.patch() as u64 + u64::from(self.bias)),
        })
    }
}

struct Live {
    channels: usize,
    patches: Patches,
    convolution: Convolution,
}

impl Live {
    fn weights(&self) -> usize {
        self.channels * self.patches.patch()
    }
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        _: &mut [f32],
        input: &Tensor,
        _: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let output = self
            .patches
            .extent(input)?
            .conv2d(&parameters[0], 0, self.patches.stride, 1, 1)?;
        match parameters.get(1) {
            Some(bias) => output.broadcast_add(&bias.reshape((1, self.channels, 1, 1))?),
            None => Ok(output),
        }
    }

    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        _: &mut Mode<'_>,
    ) -> Result<(), ModelError> {
        let (weight, bias) = values.parameters.split_at(self.weights());
        self.convolution.forward(&self.patches, input, weight, bias, output);
        Ok(())
    }

    fn backward(
        &mut self,
        sink: Sink<'_>,
        input: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        let (weight_sink, bias_sink) = sink.split_at(self.weights());
        let bias_gradient = bias_sink.begun();
        let places = self.patches.places();
        for above in output_gradient.chunks_exact(self.channels * places) {
            for (sum, row) in bias_gradient.iter_mut().zip(above.chunks_exact(places)) {
                *sum += sums::sum(row);
            }
        }
        let weight = weight_sink.parameters;
        let gradient = weight_sink.begun();
        self.convolution
            .backward(&self.patches, input, weight, output_gradient, gradient, input_gradient);
        Ok(())
    }
}
