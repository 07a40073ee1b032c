//! Clipping of an update's change. McMahan et al., *Learning Differentially Private Recurrent Language Models*, ICLR
//! 2018, "flat clipping".

use rand_chacha::ChaCha8Rng;
use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

use super::Filter;
use crate::{Rejection, sections::Values};

/// What a filter between this one and the server may add to the norm: bf16 rounds each value by up to a 256th.
const TOLERANCE: f64 = 1.01;

/// Bounds the Euclidean norm of what a client changed: `Δ ← Δ · min(1, norm / ‖Δ‖)`. A change within the bound is left
/// as it is, bit for bit, so an infinite norm (`inf`) is no clipping at all. The server rejects a change that is larger.
///
/// Only the parameters are bounded; an algorithm that sends more than them (SCAFFOLD) cannot be combined with it.
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
        let norm = norm_of_change(&weights, global);
        if norm > self.norm {
            let scale = self.norm / norm;
            for (w, &global) in weights.iter_mut().zip(&global.parameters) {
                let global = f64::from(global);
                *w = (global + scale * (f64::from(*w) - global)) as f32;
            }
        }
        Values::F32(weights)
    }

    fn server(&self, values: Values, global: &Weights) -> Result<Values, Rejection> {
        if let Values::F32(weights) = &values {
            let (norm, bound) = (norm_of_change(weights, global), self.norm);
            if norm > TOLERANCE * bound {
                return Err(Rejection::NormTooLarge { norm, bound });
            }
        }
        Ok(values)
    }

    fn bounds(&self) -> bool {
        true
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let allowed = self.norm > 0.0;
        (!allowed).then(|| ("norm", format!("{} is not above 0", self.norm)))
    }
}

/// ‖w − w_global‖
fn norm_of_change(weights: &[f32], global: &Weights) -> f64 {
    let square = |(w, global): (&f32, &f32)| (f64::from(*w) - f64::from(*global)).powi(2);
    weights.iter().zip(&global.parameters).map(square).sum::<f64>().sqrt()
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
    fn a_client_that_does_not_clip_is_rejected() {
        let global = Weights {
            parameters: vec![1.0; 2],
            buffers: vec![],
        };
        let clip = Clip { norm: 2.5 };
        let server = |weights: [f32; 2]| clip.server(Values::F32(weights.to_vec()), &global);
        assert!(server([2.5, 3.0]).is_ok());
        let error = server([4.0, 5.0]).unwrap_err();
        assert_eq!(error, Rejection::NormTooLarge { norm: 5.0, bound: 2.5 });
    }

    #[test]
    fn a_change_within_the_norm_passes_bit_for_bit() {
        let weights = [0.1, -3.3e-7, 1e9];
        assert_eq!(clipped(f64::INFINITY, &weights, &[0.3, 0.2, 0.1]), weights);
        assert_eq!(clipped(2e9, &weights, &[0.3, 0.2, 0.1]), weights);
    }
}
