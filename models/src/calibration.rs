//! The statistics that batch norm evaluates with, taken over examples once a model is trained: static batch norm (Diao et
//! al. 2021).

use crate::layout::Layout;

/// The first and second moments of what a model's batch norms met, summed over batches that ran in
/// [`Mode::Calibrate`](crate::Mode::Calibrate).
///
/// Moments can be averaged over clients, by their examples, where variances cannot.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    sums: Vec<f64>,
    examples: f64,
}

impl Moments {
    /// Takes in a batch, from the buffers that its forward has left.
    pub fn add(&mut self, layout: &Layout, buffers: &[f32], examples: usize) {
        let weight = examples as f64;
        self.sums.resize(buffers.len(), 0.0);
        for (mean, variance) in pairs(layout) {
            let first = f64::from(buffers[mean]);
            self.sums[mean] += weight * first;
            self.sums[variance] += weight * (f64::from(buffers[variance]) + first * first);
        }
        self.examples += weight;
    }

    /// The mean moments, laid out as the buffers; `None` when there was no batch.
    pub fn mean(&self) -> Option<Vec<f32>> {
        let mean = |sum: &f64| (sum / self.examples) as f32;
        (self.examples > 0.0).then(|| self.sums.iter().map(mean).collect())
    }

    /// The buffers that mean moments come to.
    pub fn statistics(layout: &Layout, mut moments: Vec<f32>) -> Vec<f32> {
        for (mean, variance) in pairs(layout) {
            let first = f64::from(moments[mean]);
            let second = f64::from(moments[variance]);
            moments[variance] = (second - first * first).max(0.0) as f32;
        }
        moments
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
        assert_eq!(moments.mean(), None);
        moments.add(&layout, &[2.0, 1.0], 2);
        moments.add(&layout, &[7.0, 8.0 / 3.0], 3);
        let statistics = Moments::statistics(&layout, moments.mean().unwrap());
        assert_eq!(statistics, [5.0, 8.0]);
    }
}
