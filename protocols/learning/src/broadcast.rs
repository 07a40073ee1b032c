//! What every client of a round receives, and how it travels.

use std::sync::Arc;

use half::bf16;
use selvedge_models::{SubModel, Weights};
use serde::{Deserialize, Serialize};

use crate::{
    Shape, Vectors,
    sections::{Encoding, Section, SectionHeader, Values, pack_numbers},
    update::{BUFFERS, PARAMETERS},
    vectors::Named,
};

/// In how many bits the model's parameters, and vectors of their shape, travel to those who train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32, as they are.
    #[default]
    F32,
    /// 16: rounded to the nearest bf16 (8 bits of precision, the range of f32), which is half the bytes. The coordinator
    /// keeps what rounding has cut off, so that steps smaller than it are not lost.
    Bf16,
}

impl Precision {
    /// What those who train receive of a model.
    fn of_model(self, weights: &Arc<Weights>) -> Arc<Weights> {
        match self {
            Self::F32 => weights.clone(),
            Self::Bf16 => Arc::new(Weights {
                parameters: weights.parameters.iter().copied().map(rounded).collect(),
                buffers: weights.buffers.clone(),
            }),
        }
    }

    /// What clients have made of a rounded model, as a change of the model that was rounded:
    /// `w' ← w' + w − round(w)`.
    pub fn carry_over(self, trained: &mut Weights, model: &Weights) {
        if self == Self::Bf16 {
            for (trained, w) in trained.parameters.iter_mut().zip(&model.parameters) {
                *trained += w - rounded(*w);
            }
        }
    }

    fn encoding(self, shape: Shape) -> Encoding {
        match (self, shape) {
            (Self::Bf16, Shape::Parameters) => Encoding::Bf16,
            _ => Encoding::F32,
        }
    }
}

/// The nearest bf16; the largest of them in place of infinity.
fn rounded(value: f32) -> f32 {
    bf16::from_f32(value)
        .to_f32()
        .clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32())
}

/// What every client of a round receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The global model.
    pub weights: Arc<Weights>,
    /// The vectors that the algorithm names in [`broadcast_vectors`](crate::Algorithm::broadcast_vectors).
    pub vectors: Vectors,
    /// In which precision the values are, and travel.
    pub precision: Precision,
}

impl Broadcast {
    /// A model without vectors beside it.
    pub fn bare(weights: impl Into<Arc<Weights>>) -> Self {
        Self {
            weights: weights.into(),
            vectors: Vectors::new(),
            precision: Precision::F32,
        }
    }

    /// The same in this precision.
    #[must_use]
    pub fn rounded(mut self, precision: Precision) -> Self {
        self.weights = precision.of_model(&self.weights);
        if precision == Precision::Bf16 {
            for (_, vector) in self.vectors.iter_mut() {
                if vector.shape == Shape::Parameters {
                    vector.values.iter_mut().for_each(|value| *value = rounded(*value));
                }
            }
        }
        Self { precision, ..self }
    }

    /// The parts in the order in which they travel: parameters, buffers (if the model has any), then the vectors in the
    /// order of their names.
    fn parts(&self) -> impl Iterator<Item = (&str, Shape, &[f32])> {
        let Weights { parameters, buffers } = &*self.weights;
        let buffers = (!buffers.is_empty()).then_some((BUFFERS, Shape::Buffers, buffers.as_slice()));
        let vectors = self.vectors.iter();
        std::iter::once((PARAMETERS, Shape::Parameters, parameters.as_slice()))
            .chain(buffers)
            .chain(vectors.map(|(name, vector)| (name, vector.shape, vector.values.as_slice())))
    }

    /// What the sections of its blob are.
    pub fn headers(&self) -> Vec<SectionHeader> {
        let header = |(name, shape, values): (&str, Shape, &[f32])| SectionHeader {
            name: name.into(),
            encoding: self.precision.encoding(shape),
            values: values.len() as u64,
        };
        self.parts().map(header).collect()
    }

    /// What the sections of its blob are for those who receive so many of its parameters and buffers.
    pub fn headers_of(&self, parameters: usize, buffers: usize) -> Vec<SectionHeader> {
        let length = |shape| match shape {
            Shape::Parameters => parameters,
            Shape::Buffers => buffers,
            Shape::Free(length) => length,
        };
        let header = |(name, shape, _): (&str, Shape, &[f32])| SectionHeader {
            name: name.into(),
            encoding: self.precision.encoding(shape),
            values: length(shape) as u64,
        };
        let headers = self.parts().map(header);
        headers
            .filter(|header| header.name != BUFFERS || header.values > 0)
            .collect()
    }

    /// The broadcast as one blob.
    pub fn pack(&self) -> Vec<u8> {
        pack_numbers(
            self.parts()
                .map(|(_, shape, values)| (self.precision.encoding(shape), values)),
        )
    }

    /// The broadcast that `sections` are, for this part of a model and an algorithm that sends these vectors beside it;
    /// `None` when they cannot be one.
    pub fn from_sections(sections: Vec<Section>, part: &SubModel, beside: &[Named]) -> Option<Self> {
        let mut weights = Weights::default();
        let mut vectors = Vectors::new();
        let mut precision = Precision::F32;
        for Section { name, values } in sections {
            let values = match values {
                Values::F32(values) => values,
                Values::Bf16(values) => {
                    precision = Precision::Bf16;
                    values.into_iter().map(bf16::to_f32).collect()
                }
                Values::Bytes(_) => return None,
            };
            match name.as_str() {
                PARAMETERS => weights.parameters = values,
                BUFFERS => weights.buffers = values,
                other => {
                    let (_, shape) = beside.iter().find(|(known, _)| *known == other)?;
                    if values.len() != shape.length(part) {
                        return None;
                    }
                    vectors.insert(name, *shape, values);
                }
            }
        }
        let fits = weights.parameters.len() == part.parameters.count() && weights.buffers.len() == part.buffers.count();
        fits.then_some(Self {
            weights: Arc::new(weights),
            vectors,
            precision,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::{packed_bytes, unpack};
    use proptest::prelude::*;
    use selvedge_models::Coordinates;

    proptest! {
        #[test]
        fn what_is_received_is_what_was_broadcast(
            pairs in prop::collection::vec((any::<f32>(), any::<f32>()), 1..40),
            buffers in prop::collection::vec(-1f32..1.0, 0..3),
            narrow: bool,
        ) {
            let finite = |value: f32| if value.is_finite() { value } else { 1.0 };
            let (parameters, beside): (Vec<_>, Vec<_>) = pairs.into_iter().map(|(w, c)| (finite(w), finite(c))).unzip();
            let part = SubModel {
                units: vec![],
                parameters: Coordinates::all(parameters.len()),
                buffers: Coordinates::all(buffers.len()),
            };
            let mut broadcast = Broadcast::bare(Weights { parameters, buffers });
            broadcast.vectors.insert("control", Shape::Parameters, beside);
            broadcast.vectors.insert("rates", Shape::Free(1), vec![0.1]);
            let broadcast = broadcast.rounded(if narrow { Precision::Bf16 } else { Precision::F32 });
            prop_assert!(broadcast.weights.is_finite());
            let (headers, bytes) = (broadcast.headers(), broadcast.pack());
            prop_assert_eq!(packed_bytes(&headers), Some(bytes.len() as u64));
            let beside = [("control", Shape::Parameters), ("rates", Shape::Free(1))];
            let received = unpack(&headers, &bytes).and_then(|sections| Broadcast::from_sections(sections, &part, &beside));
            prop_assert_eq!(received, Some(broadcast));
        }

        #[test]
        fn a_model_that_nobody_changed_is_carried_over_as_it_was(parameters in prop::collection::vec(-2f32..2.0, 1..40)) {
            let model = Arc::new(Weights { parameters, buffers: vec![] });
            let mut trained = Weights::clone(&Precision::Bf16.of_model(&model));
            Precision::Bf16.carry_over(&mut trained, &model);
            prop_assert_eq!(trained, Weights::clone(&model));
        }
    }
}
