//! The mean of each window.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::{LayerProblem, ModelError},
    kernels::patches::Patches,
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    limits::bounded,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// The mean of each window of `[channels, height, width]`; without a `kernel`, of the whole image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AveragePool2d {
    /// Side of the window, in pixels; the whole image (giving `[channels, 1, 1]`) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<usize>,
    /// Pixels from one window to the next; the window's side when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
}

impl LayerSettings for AveragePool2d {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let live = match *self {
            Self {
                kernel: Some(kernel),
                stride,
            } => {
                let windows = Patches::over(&input.shape, kernel, stride.unwrap_or(kernel), 0)?;
                Live {
                    windows,
                    window: [kernel, kernel],
                }
            }
            Self {
                kernel: None,
                stride: Some(stride),
            } => {
                return Err(LayerProblem::setting("stride", stride, "absent without `kernel`").into());
            }
            Self {
                kernel: None,
                stride: None,
            } => {
                let mut windows = Patches::over(&input.shape, 1, 1, 0)?;
                let window = [windows.height, windows.width];
                (windows.out_height, windows.out_width) = (1, 1);
                Live { windows, window }
            }
        };
        let windows = live.windows;
        let shape = vec![windows.channels, windows.out_height, windows.out_width];
        let operations = bounded("its output", &shape)? * live.window[0] * live.window[1];
        Ok(PlacedLayer::bare(
            live,
            Signal {
                shape,
                width: input.width,
            },
            operations,
        ))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

struct Live {
    windows: Patches,
    /// The window's height and width.
    window: [usize; 2],
}

impl Live {
    /// The places of one channel with the first pixel of each one's window.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Patches {
            width,
            stride,
            out_width,
            ..
        } = self.windows;
        let first = move |place| place / out_width * stride * width + place % out_width * stride;
        (0..self.windows.places()).map(move |place| (place, first(place)))
    }

    /// One over the pixels of a window.
    fn share(&self) -> f32 {
        1.0 / (self.window[0] * self.window[1]) as f32
    }
}

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let Patches { height, width, .. } = self.windows;
        if self.window == [height, width] {
            return input.mean_keepdim((2, 3));
        }
        let Patches {
            channels,
            out_height,
            out_width,
            ..
        } = self.windows;
        self.windows
            .windows(input)?
            .mean(3)?
            .reshape(((), channels, out_height, out_width))
    }

    fn forward(&mut self, Forward { input, output, .. }: Forward<'_>) -> Result<(), ModelError> {
        let Patches { height, width, .. } = self.windows;
        let outputs = output.chunks_exact_mut(self.windows.places());
        for (image, output) in input.chunks_exact(height * width).zip(outputs) {
            for (place, first) in self.places() {
                let rows = (0..self.window[0]).map(|row| first + row * width);
                let sums = rows.map(|start| image[start..start + self.window[1]].iter().sum::<f32>());
                output[place] = sums.sum::<f32>() * self.share();
            }
        }
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            output_gradient,
            input_gradient,
            ..
        }: Backward<'_>,
    ) -> Result<(), ModelError> {
        let Some(input_gradient) = input_gradient else {
            return Ok(());
        };
        input_gradient.fill(0.0);
        let Patches { height, width, .. } = self.windows;
        let above = output_gradient.chunks_exact(self.windows.places());
        for (gradient, above) in input_gradient.chunks_exact_mut(height * width).zip(above) {
            for (place, first) in self.places() {
                let value = above[place] * self.share();
                for start in (0..self.window[0]).map(|row| first + row * width) {
                    for pixel in &mut gradient[start..start + self.window[1]] {
                        *pixel += value;
                    }
                }
            }
        }
        Ok(())
    }
}
