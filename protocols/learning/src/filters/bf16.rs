//! Half the bytes: an update's change in 16 bits.

use half::bf16;
use selvedge_words::Rejection;
use serde::{Deserialize, Serialize};

use super::{Filter, Reference};
use crate::{Context, Vectors, sections::{Encoding, Values}};

/// Sends `Δ = w − w_global` as bf16 (8 bits of precision, the range of f32), rounded to nearest; the server adds it to
/// the global model again. The change, not the weights, so that what is lost is small beside the step. No settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bf16 {}

impl Filter for Bf16 {
    fn client(&self, values: Values, reference: Reference<'_>, _: &mut Vectors, _: &mut Context<'_>) -> Values {
        let Values::F32(weights) = values else {
            return values;
        };
        let change = weights.iter().zip(reference.values());
        Values::Bf16(change.map(|(w, reference)| bf16::from_f32(w - reference)).collect())
    }

    fn server(
        &self,
        values: Values,
        reference: Reference<'_>,
        _: f64,
        _: &mut Context<'_>,
    ) -> Result<Values, Rejection> {
        let Values::Bf16(change) = values else {
            let is = values.encoding();
            return Err(Rejection::WrongShape(format!("{is:?} where Bf16 was assigned")));
        };
        let weights = change.iter().zip(reference.values());
        Ok(Values::F32(weights.map(|(change, reference)| reference + change.to_f32()).collect()))
    }

    fn lengthens(&self) -> f64 {
        // Eight bits: each value is rounded by a 256th of itself at most.
        1.0 / 256.0
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Bf16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::tests::{Bench, f32s};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_comes_back_to_within_a_256th(pairs in prop::collection::vec((-1f32..1.0, -1f32..1.0), 1..30)) {
            let (w, global): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let mut bench = Bench::default();
            let sent = bench.client(&Bf16 {}, w.clone(), Reference::Model(&global));
            let back = f32s(bench.server(&Bf16 {}, sent, Reference::Model(&global), 0.0).unwrap());
            for ((back, w), global) in back.iter().zip(&w).zip(&global) {
                prop_assert!((back - w).abs() <= (w - global).abs() / 256.0 + 1e-6, "{back} {w} {global}");
            }
        }
    }
}
