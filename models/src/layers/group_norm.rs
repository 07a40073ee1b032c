//! Normalisation within each example, by groups of channels; layer norm is its other face.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    norm::{epsilon, scale_and_shift},
    settings::positive,
};
use crate::{
    error::{LayerProblem, ModelError},
    kernels::sums::{squares_about, sum, weighted_about},
    layer::{Fault, Layer, LayerSettings, PlacedLayer},
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// Normalises each group of channels of each example to mean 0 and variance 1, then scales and shifts each channel
/// (Wu & He 2018). Takes `[channels]` or `[channels, height, width]`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    /// Groups, of `channels / groups` neighbouring channels each.
    pub groups: usize,
    /// Added to the variance. Default 1e-5.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
}

/// Normalises the features of `[features]`, or of each position of `[sequence, features]`, to mean 0 and variance 1,
/// then scales and shifts each feature (Ba et al. 2016). For images use `group-norm` with one group.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Added to the variance. Default 1e-5.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
}

impl LayerSettings for GroupNorm {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let (channels, places) = match input.shape[..] {
            [channels] => (channels, 1),
            [channels, height, width] => (channels, height * width),
            _ => {
                let needs = "[channels] or [channels, height, width]";
                return Err(LayerProblem::input(needs, &input.shape).into());
            }
        };
        if self.groups == 0 || channels % self.groups != 0 {
            let needs = format!("a divisor of the {channels} channels");
            return Err(LayerProblem::setting("groups", self.groups, needs).into());
        }
        positive("epsilon", self.epsilon)?;
        Ok(normalisation(
            Live::new(channels, self.groups, places, self.epsilon),
            input,
        ))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

impl LayerSettings for LayerNorm {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let ([features] | [_, features]) = input.shape[..] else {
            let needs = "[features] or [sequence, features]";
            return Err(LayerProblem::input(needs, &input.shape).into());
        };
        positive("epsilon", self.epsilon)?;
        Ok(normalisation(Live::new(features, 1, 1, self.epsilon), input))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

fn normalisation(live: Live, input: &Signal) -> PlacedLayer {
    let [weight, bias] = scale_and_shift(live.channels, input.width);
    PlacedLayer {
        live: Box::new(live),
        output: input.clone(),
        parameters: vec![weight, bias],
        buffers: vec![],
        inside: 0,
        operations: 8 * input.size() as u64,
    }
}

/// Rows of `channels x places` values, each channel's together, normalised by groups of channels.
struct Live {
    channels: usize,
    groups: usize,
    places: usize,
    epsilon: f32,
    /// Of each group in the last forward, its mean and one over its standard deviation.
    statistics: Vec<(f32, f32)>,
    /// Scratch: the gradient at one group's normalised values.
    scaled: Vec<f32>,
}

impl Live {
    fn new(channels: usize, groups: usize, places: usize, epsilon: f32) -> Self {
        Self {
            channels,
            groups,
            places,
            epsilon,
            statistics: vec![],
            scaled: vec![],
        }
    }

    /// Values in a group.
    fn group(&self) -> usize {
        self.channels / self.groups * self.places
    }
}

impl Layer for Live {
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let groups = input.reshape(((), self.groups, self.group()))?;
        let centred = groups.broadcast_sub(&groups.mean_keepdim(2)?)?;
        let variance = centred.sqr()?.mean_keepdim(2)?;
        let normal = centred.broadcast_div(&(variance + f64::from(self.epsilon))?.sqrt()?)?;
        let channels = |parameter: &Tensor| parameter.reshape((1, self.channels, 1));
        normal
            .reshape(((), self.channels, self.places))?
            .broadcast_mul(&channels(&parameters[0])?)?
            .broadcast_add(&channels(&parameters[1])?)?
            .reshape(input.shape())
    }

    fn forward(
        &mut self,
        Forward {
            values, input, output, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let (weight, bias) = values.parameters.split_at(self.channels);
        let (size, channels) = (self.group(), self.channels / self.groups);
        self.statistics.clear();
        for (index, (group, output)) in input.chunks_exact(size).zip(output.chunks_exact_mut(size)).enumerate() {
            let mean = sum(group) / size as f32;
            let variance = squares_about(group, mean) / size as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            self.statistics.push((mean, scale));
            let first = index % self.groups * channels;
            let rows = group
                .chunks_exact(self.places)
                .zip(output.chunks_exact_mut(self.places));
            for ((row, output), (weight, bias)) in rows.zip(weight[first..].iter().zip(&bias[first..])) {
                for (output, value) in output.iter_mut().zip(row) {
                    *output = (value - mean) * scale * weight + bias;
                }
            }
        }
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            sink,
            input,
            output_gradient,
            mut input_gradient,
            ..
        }: Backward<'_>,
    ) -> Result<(), ModelError> {
        let weight = &sink.parameters[..self.channels];
        let (weight_gradient, bias_gradient) = sink.begun().split_at_mut(self.channels);
        let (size, channels) = (self.group(), self.channels / self.groups);
        let groups = input.chunks_exact(size).zip(output_gradient.chunks_exact(size));
        for (index, ((group, above), (mean, scale))) in groups.zip(&self.statistics).enumerate() {
            let first = index % self.groups * channels;
            let rows = group.chunks_exact(self.places).zip(above.chunks_exact(self.places));
            for (channel, (row, above)) in (first..).zip(rows) {
                weight_gradient[channel] += weighted_about(row, *mean, above) * scale;
                bias_gradient[channel] += sum(above);
            }
            let Some(gradient) = &mut input_gradient else {
                continue;
            };
            self.scaled.clear();
            for (above, weight) in above.chunks_exact(self.places).zip(&weight[first..]) {
                self.scaled.extend(above.iter().map(|above| above * weight));
            }
            let level = sum(&self.scaled) / size as f32;
            let tilt = weighted_about(group, *mean, &self.scaled) * scale * scale / size as f32;
            let gradient = &mut gradient[index * size..(index + 1) * size];
            for ((gradient, scaled), value) in gradient.iter_mut().zip(&self.scaled).zip(group) {
                *gradient = scale * (scaled - level - (value - mean) * tilt);
            }
        }
        Ok(())
    }
}
