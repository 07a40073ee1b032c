//! A learnt vector for each token.

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};

use super::settings::at_least_one;
use crate::{
    error::{LayerProblem, ModelError},
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    limits::bounded,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Axis, Signal, Thinner, WidthGroups},
};

/// Turns the tokens of `[sequence]`, whole numbers from 0 to `vocabulary - 1`, into `[sequence, dimension]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Tokens, at most 2^24 (an `f32` counts no further).
    pub vocabulary: usize,
    /// Features of a token.
    pub dimension: usize,
}

impl LayerSettings for Embedding {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let Self { vocabulary, dimension } = *self;
        let [sequence] = input.shape[..] else {
            return Err(LayerProblem::input("[sequence]", &input.shape).into());
        };
        at_least_one("dimension", dimension)?;
        if !(1..=1 << 24).contains(&vocabulary) {
            return Err(LayerProblem::setting("vocabulary", vocabulary, "from 1 to 2^24").into());
        }
        let shape = vec![sequence, dimension];
        bounded("its output", &shape)?;
        groups.fix(input.width);
        let width = groups.open(place, dimension);
        let initial = Initial::Normal {
            mean: 0.0,
            deviation: 1.0,
        };
        let axes = [(vocabulary, Axis::Fixed), (dimension, width)];
        Ok(PlacedLayer {
            live: Box::new(Live {
                vocabulary,
                dimension,
                sequence,
            }),
            output: Signal { shape, width },
            parameters: vec![DeclaredTensor::new("weight", axes, initial)],
            buffers: vec![],
            inside: 0,
            operations: 0,
        })
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        thinner.keep(place, &mut self.dimension)
    }
}

struct Live {
    vocabulary: usize,
    dimension: usize,
    sequence: usize,
}

impl Layer for Live {
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let tokens = input.to_dtype(DType::U32)?.flatten_all()?;
        let rows = parameters[0].index_select(&tokens, 0)?;
        rows.reshape(((), self.sequence, self.dimension))
    }

    fn forward(
        &mut self,
        Forward {
            values, input, output, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        for (token, row) in input.iter().zip(output.chunks_exact_mut(self.dimension)) {
            if token.fract() != 0.0 || !(0.0..self.vocabulary as f32).contains(token) {
                return Err(ModelError::Token {
                    token: *token,
                    last: self.vocabulary - 1,
                });
            }
            let start = *token as usize * self.dimension;
            row.copy_from_slice(&values.parameters[start..start + self.dimension]);
        }
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
        let gradient = sink.begun();
        for (token, above) in input.iter().zip(output_gradient.chunks_exact(self.dimension)) {
            let start = *token as usize * self.dimension;
            let row = &mut gradient[start..start + self.dimension];
            for (sum, above) in row.iter_mut().zip(above) {
                *sum += above;
            }
        }
        // Tokens are not moved a little this way or that.
        if let Some(input_gradient) = input_gradient {
            input_gradient.fill(0.0);
        }
        Ok(())
    }
}
