//! Sparse updates with error feedback. Stich, Cordonnier and Jaggi, *Sparsified SGD with Memory*, NeurIPS 2018,
//! Algorithm 1, on the change of a round.

use selvedge_words::Rejection;
use serde::{Deserialize, Serialize};

use super::{Filter, Reference, sparse};
use crate::{Context, Shape, Vectors, sections::{Encoding, Values}};

/// Sends the k coordinates of the change that are largest, what earlier rounds have left unsent included: `g ← m + Δ`,
/// sends `top_k(g)`, keeps `m ← g − top_k(g)`. Each of them takes 8 bytes: its place and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopK {
    /// k as a share of all coordinates, above 0 and at most 1.
    pub share: f64,
}

impl TopK {
    fn k(&self, values: usize) -> usize {
        ((self.share * values as f64).ceil() as usize).min(values)
    }
}

impl Filter for TopK {
    fn client(&self, values: Values, reference: Reference<'_>, memory: &mut Vectors, _: &mut Context<'_>) -> Values {
        let Values::F32(weights) = values else {
            return values;
        };
        // g ← m + Δ
        let g = memory.entry("unsent", Shape::Parameters, || vec![0.0; weights.len()]);
        for ((g, w), reference) in g.iter_mut().zip(&weights).zip(reference.values()) {
            *g += w - reference;
        }
        // Of equals the first.
        let mut places: Vec<u32> = (0..g.len() as u32).collect();
        let k = self.k(g.len());
        let size = |place: &u32| g[*place as usize].abs();
        if k < places.len() {
            places.select_nth_unstable_by(k, |one, other| size(other).total_cmp(&size(one)).then(one.cmp(other)));
            places.truncate(k);
        }
        places.sort_unstable();
        // m ← g − top_k(g)
        Values::Bytes(sparse::write(&places, places.iter().map(|place| std::mem::take(&mut g[*place as usize]))))
    }

    fn server(&self, values: Values, reference: Reference<'_>, _: f64, _: &mut Context<'_>) -> Result<Values, Rejection> {
        let Values::Bytes(bytes) = values else {
            return Err(Rejection::WrongShape("no sparse values where they were assigned".into()));
        };
        let mut weights: Vec<f32> = reference.values().collect();
        sparse::add(&bytes, &mut weights)?;
        Ok(Values::F32(weights))
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Bytes)
    }

    fn encoded(&self, values: u64) -> u64 {
        sparse::bytes_of(self.k(values as usize) as u64)
    }

    fn keeps(&self) -> bool {
        true
    }

    fn lengthens(&self) -> f64 {
        // What was left unsent may come at once.
        f64::INFINITY
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let allowed = self.share > 0.0 && self.share <= 1.0;
        (!allowed).then(|| ("share", format!("{} is not above 0 and at most 1", self.share)))
    }
}
