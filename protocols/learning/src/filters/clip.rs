//! Clipping of an update's change. McMahan et al., *Learning Differentially Private Recurrent Language Models*, ICLR
//! 2018, "flat clipping".

use selvedge_words::Rejection;
use serde::{Deserialize, Serialize};

use super::{Filter, Reference};
use crate::{Context, Vectors, sections::Values};

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
    fn client(&self, values: Values, reference: Reference<'_>, _: &mut Vectors, _: &mut Context<'_>) -> Values {
        let Values::F32(mut weights) = values else {
            return values;
        };
        let norm = norm_of_change(&weights, reference);
        if norm > self.norm {
            let scale = self.norm / norm;
            for (w, reference) in weights.iter_mut().zip(reference.values()) {
                let reference = f64::from(reference);
                *w = (reference + scale * (f64::from(*w) - reference)) as f32;
            }
        }
        Values::F32(weights)
    }

    fn server(
        &self,
        values: Values,
        reference: Reference<'_>,
        lengthened: f64,
        _: &mut Context<'_>,
    ) -> Result<Values, Rejection> {
        if let Values::F32(weights) = &values {
            let (norm, bound) = (norm_of_change(weights, reference), self.norm);
            // Weights are sent, not changes: each is rounded when it is clipped, and once more when a filter is undone.
            let rounding = f64::from(f32::EPSILON) * norm_of_change(weights, Reference::Zeros(weights.len()));
            if norm > bound * (1.0 + lengthened) + rounding {
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

/// The Euclidean norm of a change.
fn norm_of_change(weights: &[f32], reference: Reference<'_>) -> f64 {
    let square = |(w, reference): (&f32, f32)| (f64::from(*w) - f64::from(reference)).powi(2);
    weights.iter().zip(reference.values()).map(square).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::tests::{Bench, f32s};

    fn clipped(norm: f64, weights: &[f32], global: &[f32]) -> Vec<f32> {
        f32s(Bench::default().client(&Clip { norm }, weights.to_vec(), Reference::Model(global)))
    }

    #[test]
    fn a_change_beyond_the_norm_is_scaled_to_it() {
        assert_eq!(clipped(2.5, &[4.0, 5.0], &[1.0, 1.0]), [2.5, 3.0]);
    }

    #[test]
    fn a_client_that_does_not_clip_is_rejected() {
        let clip = Clip { norm: 2.5 };
        let server = |weights: [f32; 2]| {
            let values = Values::F32(weights.to_vec());
            Bench::default().server(&clip, values, Reference::Model(&[1.0, 1.0]), 0.0)
        };
        assert!(server([2.5, 3.0]).is_ok());
        let error = server([4.0, 5.0]).unwrap_err();
        assert_eq!(error, Rejection::NormTooLarge { norm: 5.0, bound: 2.5 });
    }

    #[test]
    fn what_passes_is_longer_by_what_the_filters_after_it_may_have_added_and_no_more() {
        let clip = Clip { norm: 5.0 };
        let server = |change: f32, lengthened| {
            let values = Values::F32(vec![change, 0.0]);
            Bench::default().server(&clip, values, Reference::Zeros(2), lengthened)
        };
        assert!(server(5.01, 0.0).is_err());
        assert!(server(5.01, 1.0 / 256.0).is_ok());
        assert!(server(5.03, 1.0 / 256.0).is_err());
    }

    #[test]
    fn a_change_within_the_norm_passes_bit_for_bit() {
        let weights = [0.1, -3.3e-7, 1e9];
        assert_eq!(clipped(f64::INFINITY, &weights, &[0.3, 0.2, 0.1]), weights);
        assert_eq!(clipped(2e9, &weights, &[0.3, 0.2, 0.1]), weights);
    }

    #[test]
    fn what_a_client_has_clipped_passes_however_large_the_model_is_beside_the_bound() {
        let global: Vec<f32> = (0..10_000).map(|at| 100.0 + at as f32 * 0.37).collect();
        let weights: Vec<f32> = global.iter().map(|global| global + 0.5).collect();
        let clip = Clip { norm: 0.01 };
        let sent = clipped(clip.norm, &weights, &global);
        let passed = Bench::default().server(&clip, Values::F32(sent), Reference::Model(&global), 0.0);
        assert!(passed.is_ok(), "{passed:?}");
    }
}
