//! Dropout.

use candle_core::Tensor;
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    error::{LayerProblem, ModelError},
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// In training, sets each value to 0 with probability `rate` and multiplies the others by `1 / (1 - rate)`
/// (Srivastava et al. 2014, in its inverted form). In evaluation it changes nothing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Share of values dropped, from 0 up to but without 1.
    pub rate: f32,
}

impl LayerSettings for Dropout {
    fn build(&self, place: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        if !(0.0..1.0).contains(&self.rate) {
            let needs = "from 0 up to 1, without 1";
            return Err(LayerProblem::setting("rate", self.rate, needs).into());
        }
        let live = Live {
            rate: self.rate,
            stream: stream(place),
            factors: vec![],
        };
        Ok(PlacedLayer::bare(live, input.clone(), input.size()))
    }

    fn depends_on_the_run(&self) -> bool {
        self.rate > 0.0
    }
}

struct Live {
    rate: f32,
    /// Which stream of the generator it draws from.
    stream: u64,
    /// What each value of the last forward was multiplied by.
    factors: Vec<f32>,
}

/// A stream for each place in a model: what a layer draws does not depend on what those before it have drawn, nor on
/// whether the model is cut.
fn stream(place: &str) -> u64 {
    let hash = blake3::hash(place.as_bytes());
    hash.as_bytes()
        .first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

/// Fills `factors` for a pass.
fn draw(rate: f32, stream: u64, factors: &mut [f32], mode: &Mode<'_>) {
    match mode {
        Mode::Train(rng) if rate > 0.0 => {
            let mut rng = (*rng).clone();
            rng.set_stream(stream);
            let kept = 1.0 / (1.0 - rate);
            factors.fill_with(|| if rng.random::<f32>() < rate { 0.0 } else { kept });
        }
        _ => factors.fill(1.0),
    }
}

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, mode: &Mode<'_>) -> candle_core::Result<Tensor> {
        let mut factors = vec![0.0; input.elem_count()];
        draw(self.rate, self.stream, &mut factors, mode);
        input * Tensor::from_vec(factors, input.shape(), input.device())?
    }

    fn forward(
        &mut self,
        Forward {
            input, output, mode, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        self.factors.resize(input.len(), 0.0);
        draw(self.rate, self.stream, &mut self.factors, mode);
        for ((output, input), factor) in output.iter_mut().zip(input).zip(&self.factors) {
            *output = input * factor;
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
        let above = output_gradient.iter().zip(&self.factors);
        for (gradient, (above, factor)) in input_gradient.iter_mut().zip(above) {
            *gradient = above * factor;
        }
        Ok(())
    }
}
