//! Half the bytes: an update's change in 16 bits.

use half::bf16;
use rand_chacha::ChaCha8Rng;
use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

use super::Filter;
use crate::{
    Rejection,
    sections::{Encoding, Values},
};

/// Sends `Δ = w − w_global` as bf16 (8 bits of precision, the range of f32), rounded to nearest; the server adds it to
/// the global model again. The change, not the weights, so that what is lost is small beside the step. No settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bf16 {}

impl Filter for Bf16 {
    fn client(&self, values: Values, global: &Weights, _: &mut ChaCha8Rng) -> Values {
        let Values::F32(weights) = values else {
            return values;
        };
        let change = weights
            .iter()
            .zip(&global.parameters)
            .map(|(w, global)| bf16::from_f32(w - global));
        Values::Bf16(change.collect())
    }

    fn server(&self, values: Values, global: &Weights) -> Result<Values, Rejection> {
        let Values::Bf16(change) = values else {
            return Err(Rejection::WrongShape(format!(
                "{:?} where Bf16 was assigned",
                values.encoding()
            )));
        };
        let weights = change
            .iter()
            .zip(&global.parameters)
            .map(|(change, global)| global + change.to_f32());
        Ok(Values::F32(weights.collect()))
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Bf16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, Seed};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_comes_back_to_within_a_256th(pairs in prop::collection::vec((-1f32..1.0, -1f32..1.0), 1..30)) {
            let (w, global): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let global = Weights { parameters: global, buffers: vec![] };
            let sent = Bf16 {}.client(Values::F32(w.clone()), &global, &mut Seed(1).stream(Purpose::Filters));
            let Values::F32(back) = Bf16 {}.server(sent, &global).unwrap() else { panic!() };
            for ((back, w), global) in back.iter().zip(&w).zip(&global.parameters) {
                prop_assert!((back - w).abs() <= (w - global).abs() / 256.0 + 1e-6, "{back} {w} {global}");
            }
        }
    }
}
