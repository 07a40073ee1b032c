//! All of an example's values in one row.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Description, Fault, Layer};
use crate::{
    chain::{Sink, Values},
    error::ModelError,
    network::Mode,
    width::{Axis, Signal, WidthGroups},
};

/// Turns any shape into `[features]`, the last axis running fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flatten {}

impl Description for Flatten {
    fn kind(&self) -> &'static str {
        "flatten"
    }

    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<Built, Fault> {
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
        Ok(Built::bare(Live, output, 0))
    }
}

struct Live;

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &mut Mode<'_>) -> candle_core::Result<Tensor> {
        input.flatten_from(1)
    }

    fn forward(
        &mut self,
        _: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        _: &mut Mode<'_>,
    ) -> Result<(), ModelError> {
        output.copy_from_slice(input);
        Ok(())
    }

    fn backward(
        &mut self,
        _: Sink<'_>,
        _: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        if let Some(input_gradient) = input_gradient {
            input_gradient.copy_from_slice(output_gradient);
        }
        Ok(())
    }
}
