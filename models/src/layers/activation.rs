//! Activations: functions of each value alone.

use std::marker::PhantomData;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::ModelError,
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// `max(x, 0)`; its slope at 0 is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relu {}

/// `x · Φ(x)`, Φ the standard normal distribution function (Hendrycks & Gimpel 2016), exact, not the tanh form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gelu {}

/// The hyperbolic tangent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tanh {}

/// `1 / (1 + exp(-x))`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sigmoid {}

/// A function of one value.
trait Curve: Send + 'static {
    /// Floating-point operations for one value, counted roughly.
    const OPERATIONS: usize;
    fn value(input: f32) -> f32;
    fn slope(input: f32, output: f32) -> f32;
    fn plain(input: &Tensor) -> candle_core::Result<Tensor>;
}

impl Curve for Relu {
    const OPERATIONS: usize = 1;
    fn value(input: f32) -> f32 {
        input.max(0.0)
    }
    fn slope(_: f32, output: f32) -> f32 {
        if output > 0.0 { 1.0 } else { 0.0 }
    }
    fn plain(input: &Tensor) -> candle_core::Result<Tensor> {
        input.relu()
    }
}

impl Curve for Gelu {
    const OPERATIONS: usize = 10;
    fn value(input: f32) -> f32 {
        input * normal_below(input)
    }
    fn slope(input: f32, _: f32) -> f32 {
        const DENSITY_AT_ZERO: f32 = 0.398_942_3;
        normal_below(input) + input * DENSITY_AT_ZERO * (-0.5 * input * input).exp()
    }
    fn plain(input: &Tensor) -> candle_core::Result<Tensor> {
        input.gelu_erf()
    }
}

/// The probability that a standard normal variable is below `x`.
fn normal_below(x: f32) -> f32 {
    0.5 * libm::erfcf(-x * std::f32::consts::FRAC_1_SQRT_2)
}

impl Curve for Tanh {
    const OPERATIONS: usize = 8;
    fn value(input: f32) -> f32 {
        input.tanh()
    }
    fn slope(_: f32, output: f32) -> f32 {
        1.0 - output * output
    }
    fn plain(input: &Tensor) -> candle_core::Result<Tensor> {
        input.tanh()
    }
}

impl Curve for Sigmoid {
    const OPERATIONS: usize = 8;
    fn value(input: f32) -> f32 {
        1.0 / (1.0 + (-input).exp())
    }
    fn slope(_: f32, output: f32) -> f32 {
        output * (1.0 - output)
    }
    fn plain(input: &Tensor) -> candle_core::Result<Tensor> {
        // Written out: candle-nn's own sigmoid cannot be differentiated.
        (input.neg()?.exp()? + 1.0)?.recip()
    }
}

impl<C: Curve> LayerSettings for C {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let live = Live::<C>(PhantomData);
        Ok(PlacedLayer::bare(live, input.clone(), input.size() * C::OPERATIONS))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

struct Live<C>(PhantomData<C>);

impl<C: Curve> Layer for Live<C> {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        C::plain(input)
    }

    fn forward(&mut self, Forward { input, output, .. }: Forward<'_>) -> Result<(), ModelError> {
        for (output, input) in output.iter_mut().zip(input) {
            *output = C::value(*input);
        }
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            input,
            output,
            output_gradient,
            input_gradient,
            ..
        }: Backward<'_>,
    ) -> Result<(), ModelError> {
        let Some(input_gradient) = input_gradient else {
            return Ok(());
        };
        let values = input.iter().zip(output).zip(output_gradient);
        for (gradient, ((input, output), above)) in input_gradient.iter_mut().zip(values) {
            *gradient = above * C::slope(*input, *output);
        }
        Ok(())
    }
}
