//! What every client of a round receives, and how it travels.

use selvedge_models::{SubModel, Weights};

use crate::{
    algorithm::{Algorithm, Vectors},
    sections::{Encoding, Section, SectionHeader, Values, pack_f32},
    update::{BUFFERS, PARAMETERS},
};

/// What every client of a round receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The global model.
    pub weights: Weights,
    /// The vectors that the algorithm names in [`Algorithm::broadcast_vectors`].
    pub vectors: Vectors,
}

impl Broadcast {
    /// The parts in the order in which they travel: parameters, buffers (if the model has any), then the vectors in the
    /// order of their names.
    fn parts(&self) -> impl Iterator<Item = (&str, &[f32])> {
        let Weights { parameters, buffers } = &self.weights;
        let buffers = (!buffers.is_empty()).then_some((BUFFERS, buffers.as_slice()));
        let vectors = self.vectors.iter();
        std::iter::once((PARAMETERS, parameters.as_slice()))
            .chain(buffers)
            .chain(vectors.map(|(name, values)| (name.as_str(), values.as_slice())))
    }

    /// What the sections of its blob are.
    pub fn headers(&self) -> Vec<SectionHeader> {
        let header = |(name, values): (&str, &[f32])| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
            values: values.len() as u64,
        };
        self.parts().map(header).collect()
    }

    /// What the sections of its blob are for those who receive so many of its parameters and buffers.
    pub fn headers_of(&self, parameters: usize, buffers: usize) -> Vec<SectionHeader> {
        let headers = self.headers().into_iter().map(|header| SectionHeader {
            values: match header.name.as_str() {
                BUFFERS => buffers as u64,
                _ => parameters as u64,
            },
            ..header
        });
        headers
            .filter(|header| header.name != BUFFERS || header.values > 0)
            .collect()
    }

    /// The broadcast as one blob.
    pub fn pack(&self) -> Vec<u8> {
        pack_f32(self.parts().map(|(_, values)| values))
    }

    /// The broadcast that `sections` are, for this part of a model; `None` when they cannot be one.
    pub fn from_sections(sections: Vec<Section>, part: &SubModel, algorithm: &dyn Algorithm) -> Option<Self> {
        let mut weights = Weights {
            parameters: Vec::new(),
            buffers: Vec::new(),
        };
        let mut vectors = Vectors::new();
        for Section { name, values } in sections {
            let Values::F32(values) = values else {
                return None;
            };
            match name.as_str() {
                PARAMETERS => weights.parameters = values,
                BUFFERS => weights.buffers = values,
                other if algorithm.broadcast_vectors().contains(&other) => drop(vectors.insert(name, values)),
                _ => return None,
            }
        }
        let parameters = part.parameters.count();
        let fits = weights.parameters.len() == parameters
            && weights.buffers.len() == part.buffers.count()
            && vectors.values().all(|vector| vector.len() == parameters);
        fits.then_some(Self { weights, vectors })
    }
}
