//! What every client of a round receives, and how it travels.

use std::sync::Arc;

use selvedge_models::{SubModel, Weights};

use crate::{
    Shape, Vectors,
    sections::{Encoding, Section, SectionHeader, Values, pack_f32},
    update::{BUFFERS, PARAMETERS},
    vectors::Named,
};

/// What every client of a round receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The global model.
    pub weights: Arc<Weights>,
    /// The vectors that the algorithm names in [`broadcast_vectors`](crate::Algorithm::broadcast_vectors).
    pub vectors: Vectors,
}

impl Broadcast {
    /// A model without vectors beside it.
    pub fn bare(weights: impl Into<Arc<Weights>>) -> Self {
        Self {
            weights: weights.into(),
            vectors: Vectors::new(),
        }
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
        let header = |(name, _, values): (&str, Shape, &[f32])| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
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
            encoding: Encoding::F32,
            values: length(shape) as u64,
        };
        let headers = self.parts().map(header);
        headers
            .filter(|header| header.name != BUFFERS || header.values > 0)
            .collect()
    }

    /// The broadcast as one blob.
    pub fn pack(&self) -> Vec<u8> {
        pack_f32(self.parts().map(|(_, _, values)| values))
    }

    /// The broadcast that `sections` are, for this part of a model and an algorithm that sends these vectors beside it;
    /// `None` when they cannot be one.
    pub fn from_sections(sections: Vec<Section>, part: &SubModel, beside: &[Named]) -> Option<Self> {
        let mut weights = Weights::default();
        let mut vectors = Vectors::new();
        for Section { name, values } in sections {
            let Values::F32(values) = values else {
                return None;
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
        })
    }
}
