//! The largest value of each window.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::ModelError,
    kernels::{patches::Patches, pooling::largest},
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    limits::bounded,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// The largest value in each window of `[channels, height, width]`. Of equals, the first wins and takes the gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPool2d {
    /// Side of the window, in pixels.
    pub kernel: usize,
    /// Pixels from one window to the next; the window's side when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
}

impl LayerSettings for MaxPool2d {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let stride = self.stride.unwrap_or(self.kernel);
        let patches = Patches::over(&input.shape, self.kernel, stride, 0)?;
        let shape = vec![patches.channels, patches.out_height, patches.out_width];
        let size = bounded("its output", &shape)?;
        let operations = size * self.kernel * self.kernel;
        let live = Live {
            patches,
            winners: vec![],
        };
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
    patches: Patches,
    /// For each output, the place in its channel's image it came from.
    winners: Vec<u32>,
}

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        // Candle's own pool gives a gradient that is too small by the window's area.
        let Patches {
            channels,
            out_height,
            out_width,
            ..
        } = self.patches;
        self.patches
            .windows(input)?
            .max(3)?
            .reshape(((), channels, out_height, out_width))
    }

    fn forward(&mut self, Forward { input, output, .. }: Forward<'_>) -> Result<(), ModelError> {
        self.winners.resize(output.len(), 0);
        largest(&self.patches, input, output, &mut self.winners);
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
        let (image, places) = (self.patches.height * self.patches.width, self.patches.places());
        let above = output_gradient
            .chunks_exact(places)
            .zip(self.winners.chunks_exact(places));
        for (gradient, (above, winners)) in input_gradient.chunks_exact_mut(image).zip(above) {
            for (above, winner) in above.iter().zip(winners) {
                gradient[*winner as usize] += above;
            }
        }
        Ok(())
    }
}
