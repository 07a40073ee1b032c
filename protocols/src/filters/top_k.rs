//! Sparse updates with error feedback. Stich, Cordonnier and Jaggi, *Sparsified SGD with Memory*, NeurIPS 2018,
//! Algorithm 1, on the change of a round.

use serde::{Deserialize, Serialize};

use super::{Filter, Reference};
use crate::{
    Context, Rejection, Shape, Vectors,
    sections::{Encoding, Values},
};

/// Sends the k coordinates of the change that are largest, what earlier rounds have left unsent included: `g ← m + Δ`,
/// sends `top_k(g)`, keeps `m ← g − top_k(g)`. Each of them takes 8 bytes: its place and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopK {
    /// k as a share of all coordinates, above 0 and at most 1.
    pub share: f64,
}

/// What is kept: m.
const UNSENT: &str = "unsent";

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
        let g = memory.entry(UNSENT, Shape::Parameters, || vec![0.0; weights.len()]);
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
        let mut bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
        bytes.extend(places.iter().flat_map(|place| std::mem::take(&mut g[*place as usize]).to_le_bytes()));
        Values::Bytes(bytes)
    }

    fn server(
        &self,
        values: Values,
        reference: Reference<'_>,
        _: f64,
        _: &mut Context<'_>,
    ) -> Result<Values, Rejection> {
        let wrong = |what: &str| Rejection::WrongShape(what.into());
        let Values::Bytes(bytes) = values else {
            return Err(wrong("no sparse values where they were assigned"));
        };
        let mut weights: Vec<f32> = reference.values().collect();
        let (places, sent) = bytes.split_at(bytes.len() / 2);
        let (places, sent) = (places.as_chunks().0.iter(), sent.as_chunks().0.iter());
        let mut next = 0;
        for (place, value) in places.map(|place| u32::from_le_bytes(*place)).zip(sent) {
            // They ascend, so that none counts twice.
            let weight = weights.get_mut(place as usize).filter(|_| place >= next);
            *weight.ok_or_else(|| wrong("places of sparse values that do not ascend or are not there"))? +=
                f32::from_le_bytes(*value);
            next = place.saturating_add(1);
        }
        Ok(Values::F32(weights))
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Bytes)
    }

    fn encoded(&self, values: u64) -> u64 {
        8 * self.k(values as usize) as u64
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
