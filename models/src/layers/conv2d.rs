//! A two-dimensional convolution.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, at_least_one, bounded, uniform_by_inputs};
use crate::{
    chain::{Sink, Values},
    error::ModelError,
    kernels::{
        matrix::{Matrix, MatrixMut},
        patches::{Columns, Patches},
        sums,
    },
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

    fn build(&self, _: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
        at_least_one("channels", self.channels)?;
        let patches = Patches::over(&input.shape, self.kernel, self.stride, self.padding)?;
        let shape = vec![self.channels, patches.out_height, patches.out_width];
        let size = bounded("its output", &shape)?;
        bounded("its matrix of patches", &[patches.patch(), patches.places()])?;
        let width = groups.open(self.channels);
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
                bias: self.bias,
                patches,
                columns: Columns::default(),
            }),
            output: Signal { shape, width },
            parameters,
            buffers: vec![],
            operations: size as u64 * (2 * patches.patch() as u64 + u64::from(self.bias)),
        })
    }
}

struct Live {
    channels: usize,
    bias: bool,
    patches: Patches,
    /// Scratch: the patches of one image, and in backward their gradient after them.
    columns: Columns,
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
        let (patch, places) = (self.patches.patch(), self.patches.places());
        let (weight, bias) = values.parameters.split_at(self.weights());
        let weight = Matrix::new(weight, self.channels, patch);
        let images = input.chunks_exact(self.patches.image());
        for (image, output) in images.zip(output.chunks_exact_mut(self.channels * places)) {
            for (row, bias) in output.chunks_exact_mut(places).zip(bias) {
                row.fill(*bias);
            }
            let columns = Matrix::new(self.columns.gather(&self.patches, image), patch, places);
            let keep = if self.bias { 1.0 } else { 0.0 };
            MatrixMut::new(output, self.channels, places).product(keep, 1.0, weight, columns);
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
        let (patch, places) = (self.patches.patch(), self.patches.places());
        let (weight_sink, bias_sink) = sink.split_at(self.weights());
        let weight = Matrix::new(weight_sink.parameters, self.channels, patch);
        let mut keep = weight_sink.keep;
        let weight_gradient = weight_sink.gradient;
        let bias_gradient = bias_sink.begun();
        let (image, output) = (self.patches.image(), self.channels * places);
        for (index, above) in output_gradient.chunks_exact(output).enumerate() {
            let pixels = index * image..(index + 1) * image;
            for (sum, row) in bias_gradient.iter_mut().zip(above.chunks_exact(places)) {
                *sum += sums::sum(row);
            }
            let above = Matrix::new(above, self.channels, places);
            let columns = self.columns.gather(&self.patches, &input[pixels.clone()]);
            let columns = Matrix::new(columns, patch, places).transposed();
            let gradient = MatrixMut::new(weight_gradient, self.channels, patch);
            gradient.product(keep, 1.0, above, columns);
            keep = 1.0;
            if let Some(gradient) = &mut input_gradient {
                self.columns.scatter(&self.patches, &mut gradient[pixels], |columns| {
                    let columns = MatrixMut::new(columns, patch, places);
                    columns.product(0.0, 1.0, weight.transposed(), above);
                });
            }
        }
        Ok(())
    }
}
