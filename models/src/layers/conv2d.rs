//! A two-dimensional convolution.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::settings::{at_least_one, yes};
use crate::{
    error::ModelError,
    kernels::{convolution::Convolution, patches::Patches, sums},
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    limits::bounded,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Axis, Signal, Thinner, WidthGroups},
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
    #[serde(default = "yes")]
    pub bias: bool,
}

fn one() -> usize {
    1
}

impl LayerSettings for Conv2d {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        at_least_one("channels", self.channels)?;
        let patches = Patches::over(&input.shape, self.kernel, self.stride, self.padding)?;
        let shape = vec![self.channels, patches.out_height, patches.out_width];
        let size = bounded("its output", &shape)?;
        let (padded_width, padded_height) = patches.padded();
        bounded("its padded image", &[patches.channels, padded_height, padded_width])?;
        let width = groups.open(place, self.channels);
        let initial = Initial::uniform_by_inputs(patches.patch());
        let window = (self.kernel, Axis::Fixed);
        let axes = [(self.channels, width), (patches.channels, input.width), window, window];
        let mut parameters = vec![DeclaredTensor::new("weight", axes, initial)];
        if self.bias {
            parameters.push(DeclaredTensor::new("bias", [(self.channels, width)], initial));
        }
        Ok(PlacedLayer {
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

    fn depends_on_the_run(&self) -> bool {
        false
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        thinner.keep(place, &mut self.channels)
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
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
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
        Forward {
            values, input, output, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let (weight, bias) = values.parameters.split_at(self.weights());
        self.convolution.forward(&self.patches, input, weight, bias, output);
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            sink,
            input,
            output_gradient,
            input_gradient,
            ..
        }: Backward<'_>,
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
