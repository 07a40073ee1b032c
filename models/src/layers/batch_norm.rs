//! Normalisation over the batch.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    norm::{epsilon, scale_and_shift},
    settings::positive,
};
use crate::{
    error::{LayerProblem, ModelError},
    kernels::sums::{squares_about, sum, weighted_about},
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Signal, WidthGroups},
};

/// Normalises each channel over the batch to mean 0 and variance 1, then scales and shifts it (Ioffe & Szegedy 2015).
/// Takes `[channels]` or `[channels, height, width]`.
///
/// In training it uses the batch's statistics and lets the running ones follow (with the unbiased variance); in
/// evaluation it uses the running ones. A training batch with a single value for each channel has no variance: it is
/// normalised by the running statistics, which stay as they are.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// How far the running statistics go towards the batch's in a step, above 0 and at most 1. Default 0.1.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// Added to the variance. Default 1e-5.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
}

fn momentum() -> f32 {
    0.1
}

impl LayerSettings for BatchNorm {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let (channels, places) = match input.shape[..] {
            [channels] => (channels, 1),
            [channels, height, width] => (channels, height * width),
            _ => {
                let needs = "[channels] or [channels, height, width]";
                return Err(LayerProblem::input(needs, &input.shape).into());
            }
        };
        positive("epsilon", self.epsilon)?;
        if !(self.momentum > 0.0 && self.momentum <= 1.0) {
            let needs = "above 0 and at most 1";
            return Err(LayerProblem::setting("momentum", self.momentum, needs).into());
        }
        let running = |name, value| DeclaredTensor::new(name, [(channels, input.width)], Initial::Constant(value));
        Ok(PlacedLayer {
            live: Box::new(Live {
                settings: *self,
                channels,
                places,
                statistics: vec![],
                of_batch: false,
            }),
            output: input.clone(),
            parameters: scale_and_shift(channels, input.width).into(),
            buffers: vec![running("running_mean", 0.0), running("running_variance", 1.0)],
            inside: 0,
            operations: 8 * input.size() as u64,
        })
    }

    fn depends_on_the_run(&self) -> bool {
        true
    }
}

struct Live {
    settings: BatchNorm,
    channels: usize,
    places: usize,
    /// Of each channel in the last forward, the mean and one over the standard deviation used.
    statistics: Vec<(f32, f32)>,
    /// Whether those were the batch's.
    of_batch: bool,
}

impl Live {
    /// Whether a pass over so many values for each channel goes by the batch's statistics.
    fn by_batch(mode: &Mode<'_>, count: usize) -> bool {
        match mode {
            Mode::Train(_) => count > 1,
            Mode::Calibrate => true,
            Mode::Evaluate => false,
        }
    }

    /// Lets a channel's running statistics follow those of a batch.
    fn follow(&self, running: (&mut f32, &mut f32), mean: f32, variance: f32, count: usize, mode: &Mode<'_>) {
        if let Mode::Calibrate = mode {
            (*running.0, *running.1) = (mean, variance);
            return;
        }
        let unbiased = variance * (count as f32 / (count - 1) as f32);
        *running.0 += self.settings.momentum * (mean - *running.0);
        *running.1 += self.settings.momentum * (unbiased - *running.1);
    }

    /// The rows of a channel, one of each example.
    fn rows<'a>(&self, values: &'a [f32], channel: usize) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        values.chunks_exact(self.places).skip(channel).step_by(self.channels)
    }
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        buffers: &mut [f32],
        input: &Tensor,
        mode: &Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let values = input.reshape(((), self.channels, self.places))?;
        let count = values.dim(0)? * self.places;
        let (running_mean, running_variance) = buffers.split_at_mut(self.channels);
        let (mean, variance) = if Self::by_batch(mode, count) {
            let mean = values.mean_keepdim((0, 2))?;
            let variance = values.broadcast_sub(&mean)?.sqr()?.mean_keepdim((0, 2))?;
            let host = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
            let running = running_mean.iter_mut().zip(running_variance);
            for (running, (mean, variance)) in running.zip(host(&mean)?.into_iter().zip(host(&variance)?)) {
                self.follow(running, mean, variance, count, mode);
            }
            (mean, variance)
        } else {
            let shape = (1, self.channels, 1);
            let device = |values: &[f32]| Tensor::from_slice(values, shape, input.device());
            (device(running_mean)?, device(running_variance)?)
        };
        let deviation = (variance + f64::from(self.settings.epsilon))?.sqrt()?;
        let channels = |parameter: &Tensor| parameter.reshape((1, self.channels, 1));
        values
            .broadcast_sub(&mean)?
            .broadcast_div(&deviation)?
            .broadcast_mul(&channels(&parameters[0])?)?
            .broadcast_add(&channels(&parameters[1])?)?
            .reshape(input.shape())
    }

    fn forward(
        &mut self,
        Forward {
            values,
            input,
            output,
            mode,
            ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let (weight, bias) = values.parameters.split_at(self.channels);
        let (running_mean, running_variance) = values.buffers.split_at_mut(self.channels);
        let count = input.len() / self.channels;
        self.of_batch = Self::by_batch(mode, count);
        self.statistics.clear();
        for channel in 0..self.channels {
            let (mut mean, mut variance) = (running_mean[channel], running_variance[channel]);
            if self.of_batch {
                mean = self.rows(input, channel).map(sum).sum::<f32>() / count as f32;
                let squares = self.rows(input, channel).map(|row| squares_about(row, mean));
                variance = squares.sum::<f32>() / count as f32;
                let running = (&mut running_mean[channel], &mut running_variance[channel]);
                self.follow(running, mean, variance, count, mode);
            }
            self.statistics
                .push((mean, 1.0 / (variance + self.settings.epsilon).sqrt()));
        }
        let rows = input
            .chunks_exact(self.places)
            .zip(output.chunks_exact_mut(self.places));
        let channels = self.statistics.iter().zip(weight.iter().zip(bias)).cycle();
        for ((row, output), ((mean, scale), (weight, bias))) in rows.zip(channels) {
            for (output, value) in output.iter_mut().zip(row) {
                *output = (value - mean) * scale * weight + bias;
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
        let share = self.channels as f32 / input.len() as f32;
        for (channel, &(mean, scale)) in self.statistics.iter().enumerate() {
            let rows = || self.rows(input, channel).zip(self.rows(output_gradient, channel));
            let level: f32 = rows().map(|(_, above)| sum(above)).sum();
            let tilt: f32 = rows().map(|(row, above)| weighted_about(row, mean, above)).sum();
            bias_gradient[channel] += level;
            weight_gradient[channel] += tilt * scale;
            let Some(gradient) = &mut input_gradient else {
                continue;
            };
            // Without the batch's own statistics the normalisation is a fixed scale.
            let part = if self.of_batch { share } else { 0.0 };
            let (level, tilt) = (level * part, tilt * scale * scale * part);
            let gradients = gradient.chunks_exact_mut(self.places);
            let gradients = gradients.skip(channel).step_by(self.channels);
            for (gradient, (row, above)) in gradients.zip(rows()) {
                for ((gradient, above), value) in gradient.iter_mut().zip(above).zip(row) {
                    *gradient = weight[channel] * scale * (above - level - (value - mean) * tilt);
                }
            }
        }
        Ok(())
    }
}
