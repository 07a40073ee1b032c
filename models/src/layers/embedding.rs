//! A learnt vector for each token.

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, at_least_one, bounded};
use crate::{
    chain::{Sink, Values},
    error::{LayerProblem, ModelError},
    layout::Initial,
    network::Mode,
    width::{Axis, Signal, WidthGroups},
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

impl Description for Embedding {
    fn kind(&self) -> &'static str {
        "embedding"
    }

    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
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
        Ok(Built {
            live: Box::new(Live {
                vocabulary,
                dimension,
                sequence,
            }),
            output: Signal { shape, width },
            parameters: vec![Declared::new("weight", axes, initial)],
            buffers: vec![],
            inside: 0,
            operations: 0,
        })
    }
}

struct Live {
    vocabulary: usize,
    dimension: usize,
    sequence: usize,
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        _: &mut [f32],
        input: &Tensor,
        _: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let tokens = input.to_dtype(DType::U32)?.flatten_all()?;
        let rows = parameters[0].index_select(&tokens, 0)?;
        rows.reshape(((), self.sequence, self.dimension))
    }

    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        _: &mut Mode<'_>,
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
        sink: Sink<'_>,
        input: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
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
