//! The statistics that batch norm evaluates with, taken over examples once a model is trained: static batch norm (Diao et
//! al. 2021).

use crate::layout::Layout;

/// The first and second moments of what a model's batch norms met, pooled from the means and variances of batches that ran
/// in [`Mode::Calibrate`](crate::Mode::Calibrate), or of clients: moments can be averaged, where variances cannot.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    sums: Vec<f64>,
    weight: f64,
}

impl Moments {
    /// Takes in means and variances, laid out as a model's buffers, of so many examples.
    pub fn add(&mut self, layout: &Layout, statistics: &[f32], examples: f64) {
        self.sums.resize(layout.buffer_count(), 0.0);
        for (mean, variance) in pairs(layout) {
            let (Some(first), Some(spread)) = (statistics.get(mean), statistics.get(variance)) else {
                return;
            };
            let (first, spread) = (f64::from(*first), f64::from(*spread).max(0.0));
            self.sums[mean] += examples * first;
            self.sums[variance] += examples * (spread + first * first);
        }
        self.weight += examples;
    }

    /// The means and variances of all that was taken in; `None` when that was nothing.
    pub fn statistics(&self, layout: &Layout) -> Option<Vec<f32>> {
        if self.weight <= 0.0 {
            return None;
        }
        let mut statistics = vec![0.0; layout.buffer_count()];
        for (mean, variance) in pairs(layout) {
            let first = self.sums[mean] / self.weight;
            let second = self.sums[variance] / self.weight;
            statistics[mean] = first as f32;
            statistics[variance] = (second - first * first).max(0.0) as f32;
        }
        Some(statistics)
    }
}

/// Where each channel's running mean and variance lie: batch norm alone has buffers, always these two.
fn pairs(layout: &Layout) -> impl Iterator<Item = (usize, usize)> {
    let norms = layout.buffers.as_chunks::<2>().0.iter();
    norms.flat_map(|[mean, variance]| mean.range().zip(variance.range()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::ModelDescription;
    use crate::layers::{BatchNorm, LayerDescription};

    #[test]
    fn moments_of_batches_make_the_statistics_of_all_examples() {
        let model = ModelDescription {
            input: vec![1],
            layers: vec![LayerDescription::BatchNorm(BatchNorm {
                momentum: 0.1,
                epsilon: 1e-5,
            })],
            first_layer: 0,
        };
        let layout = model.layout().unwrap();
        // Of 1, 3 and of 5, 7, 9: all have mean 5 and variance 8.
        let mut moments = Moments::default();
        assert_eq!(moments.statistics(&layout), None);
        moments.add(&layout, &[2.0, 1.0], 2.0);
        moments.add(&layout, &[7.0, 8.0 / 3.0], 3.0);
        assert_eq!(moments.statistics(&layout), Some(vec![5.0, 8.0]));
        // A small variance far from 0 survives, as it would not as a second moment of 32 bits.
        let mut moments = Moments::default();
        moments.add(&layout, &[2000.0, 0.01], 3.0);
        moments.add(&layout, &[2000.0, 0.03], 1.0);
        let variance = moments.statistics(&layout).unwrap()[1];
        assert!((variance - 0.015).abs() < 1e-6, "{variance}");
    }
}
