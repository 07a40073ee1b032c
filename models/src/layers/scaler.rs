//! What makes up for units that a sub-model lacks.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::{LayerProblem, ModelError},
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// Divides by `share` (the scaler of Diao et al. 2021): a layer above that sums over a share of its inputs meets sums as
/// large as it would over all of them. Theirs does so in training only; where batch norm's statistics are taken anew for
/// evaluation, as theirs are, that is the same, and elsewhere this is the sub-model that was trained.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaler {
    /// The share of the units that are there, above 0 and at most 1.
    pub share: f32,
}

impl LayerSettings for Scaler {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            let needs = "above 0 and at most 1";
            return Err(LayerProblem::setting("share", self.share, needs).into());
        }
        let live = Live {
            factor: 1.0 / self.share,
        };
        Ok(PlacedLayer::bare(live, input.clone(), input.size()))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

struct Live {
    factor: f32,
}

impl Layer for Live {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        input * f64::from(self.factor)
    }

    fn forward(&mut self, Forward { input, output, .. }: Forward<'_>) -> Result<(), ModelError> {
        for (output, value) in output.iter_mut().zip(input) {
            *output = self.factor * value;
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
        for (gradient, above) in input_gradient.into_iter().flatten().zip(output_gradient) {
            *gradient = self.factor * above;
        }
        Ok(())
    }
}
