//! Clipping of an update's change. McMahan et al., *Learning Differentially Private Recurrent Language Models*, ICLR
//! 2018, "flat clipping".

use rand_chacha::ChaCha8Rng;
use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

use super::Filter;
use crate::sections::Values;

/// Bounds the Euclidean norm of what a client changed: `Δ ← Δ · min(1, norm / ‖Δ‖)`. A change within the bound is left
/// as it is, bit for bit, so an infinite norm (`inf`) is no clipping at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// The largest norm that passes, above 0.
    pub norm: f64,
}

impl Filter for Clip {
    fn client(&self, values: Values, global: &Weights, _: &mut ChaCha8Rng) -> Values {
        let Values::F32(mut weights) = values else {
            return values;
        };
        let global = &global.parameters;
        let square = |(w, global): (&f32, &f32)| (f64::from(*w) - f64::from(*global)).powi(2);
        let norm = weights.iter().zip(global).map(square).sum::<f64>().sqrt();
        if norm > self.norm {
            let scale = self.norm / norm;
            for (w, &global) in weights.iter_mut().zip(global) {
                let global = f64::from(global);
                *w = (global + scale * (f64::from(*w) - global)) as f32;
            }
        }
        Values::F32(weights)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let allowed = self.norm > 0.0;
        (!allowed).then(|| ("norm", format!("{} is not above 0", self.norm)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, Seed};

    fn clipped(norm: f64, weights: &[f32], global: &[f32]) -> Vec<f32> {
        let global = Weights {
            parameters: global.to_vec(),
            buffers: vec![],
        };
        let mut random = Seed(1).stream(Purpose::Filters);
        match (Clip { norm }).client(Values::F32(weights.to_vec()), &global, &mut random) {
            Values::F32(weights) => weights,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_change_beyond_the_norm_is_scaled_to_it() {
        assert_eq!(clipped(2.5, &[4.0, 5.0], &[1.0, 1.0]), [2.5, 3.0]);
    }

    #[test]
    fn a_change_within_the_norm_passes_bit_for_bit() {
        let weights = [0.1, -3.3e-7, 1e9];
        assert_eq!(clipped(f64::INFINITY, &weights, &[0.3, 0.2, 0.1]), weights);
        assert_eq!(clipped(2e9, &weights, &[0.3, 0.2, 0.1]), weights);
    }
}
