//! All of an example's values in one row.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::ModelError,
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward},
    width::{Axis, Signal, WidthGroups},
};

/// Turns any shape into `[features]`, the last axis running fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flatten {}

impl LayerSettings for Flatten {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let width = match (input.width, input.shape.as_slice()) {
            // Features run fastest in a sequence, slowest in an image.
            (Axis::Group { group, block }, [_, image @ ..]) if image.len() != 1 => Axis::Group {
                group,
                block: block * image.iter().product::<usize>(),
            },
            (width, _) => width,
        };
        let output = Signal {
            shape: vec![input.size()],
            width,
        };
        Ok(PlacedLayer::bare(Live, output, 0))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

struct Live;

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        input.flatten_from(1)
    }

    fn forward(&mut self, Forward { input, output, .. }: Forward<'_>) -> Result<(), ModelError> {
        output.copy_from_slice(input);
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
        if let Some(input_gradient) = input_gradient {
            input_gradient.copy_from_slice(output_gradient);
        }
        Ok(())
    }
}
