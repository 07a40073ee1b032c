//! A two-dimensional convolution.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, at_least_one, bounded, uniform_by_inputs};
use crate::{
    chain::{Sink, Values},
    error::{LayerProblem, ModelError},
    kernels::{
        matrix::{Matrix, MatrixMut},
        patches::Patches,
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
        bounded(
            "its matrix of patches",
            &[patches.patch(), patches.places()],
        )?;
        let width = groups.open(self.channels);
        let initial = uniform_by_inputs(patches.patch());
        let window = (self.kernel, Axis::Fixed);
        let axes = [
            (self.channels, width),
            (patches.channels, input.width),
            window,
            window,
        ];
        let mut parameters = vec![Declared::new("weight", axes, initial)];
        if self.bias {
            parameters.push(Declared::new("bias", [(self.channels, width)], initial));
        }
        Ok(Built {
            live: Box::new(Live {
                channels: self.channels,
                bias: self.bias,
                patches,
                columns: vec![],
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
    columns: Vec<f32>,
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
        let output =
            self.patches
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
        self.columns.resize(patch * places, 0.0);
        let images = input.chunks_exact(self.patches.image());
        for (image, output) in images.zip(output.chunks_exact_mut(self.channels * places)) {
            for (row, bias) in output.chunks_exact_mut(places).zip(bias) {
                row.fill(*bias);
            }
            let columns = if self.patches.is_image() {
                image
            } else {
                self.patches.gather(image, &mut self.columns);
                &self.columns
            };
            MatrixMut::new(output, self.channels, places).product(
                if self.bias { 1.0 } else { 0.0 },
                1.0,
                weight,
                Matrix::new(columns, patch, places),
            );
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
        let weight = Matrix::new(&sink.parameters[..self.weights()], self.channels, patch);
        let (weight_gradient, bias_gradient) = sink.gradient.split_at_mut(self.weights());
        let (image, output) = (self.patches.image(), self.channels * places);
        if let Some(gradient) = &mut input_gradient {
            gradient.fill(0.0);
        }
        self.columns.resize(patch * places, 0.0);
        for (index, above) in output_gradient.chunks_exact(output).enumerate() {
            let pixels = index * image..(index + 1) * image;
            for (sum, row) in bias_gradient.iter_mut().zip(above.chunks_exact(places)) {
                *sum += sums::sum(row);
            }
            let above = Matrix::new(above, self.channels, places);
            self.patches
                .gather(&input[pixels.clone()], &mut self.columns);
            MatrixMut::new(weight_gradient, self.channels, patch).product(
                1.0,
                1.0,
                above,
                Matrix::new(&self.columns, patch, places).transposed(),
            );
            if let Some(gradient) = &mut input_gradient {
                MatrixMut::new(&mut self.columns, patch, places).product(
                    0.0,
                    1.0,
                    weight.transposed(),
                    above,
                );
                self.patches.scatter(&self.columns, &mut gradient[pixels]);
            }
        }
        Ok(())
    }
}

impl Patches {
    /// The patches that a square window visits on an image of shape `[channels, height, width]`.
    pub(super) fn over(
        shape: &[usize],
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> Result<Self, LayerProblem> {
        let &[channels, height, width] = shape else {
            return Err(LayerProblem::input("[channels, height, width]", shape));
        };
        at_least_one("kernel", kernel)?;
        at_least_one("stride", stride)?;
        if padding >= kernel {
            let needs = format!("smaller than `kernel` ({kernel})");
            return Err(LayerProblem::setting("padding", padding, needs));
        }
        let places = |side: usize| {
            let room = padding
                .checked_mul(2)?
                .checked_add(side)?
                .checked_sub(kernel)?;
            Some(room / stride + 1)
        };
        match (places(height), places(width)) {
            (Some(out_height), Some(out_width)) => Ok(Self {
                channels,
                height,
                width,
                kernel,
                stride,
                padding,
                out_height,
                out_width,
            }),
            _ => Err(LayerProblem::Window {
                kernel,
                padding,
                given: shape.to_vec(),
            }),
        }
    }
}
