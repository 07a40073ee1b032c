//! Which coordinates the updates of a round have trained.

use selvedge_models::{SubModel, Weights};

use crate::{Shape, Vectors};

/// Which coordinates the updates of a round have trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    all: bool,
    parameters: Vec<bool>,
    buffers: Vec<bool>,
}

impl Coverage {
    /// Takes note of an update of a part of the model.
    pub fn add(&mut self, part: &SubModel) {
        if self.all || part.is_whole() {
            *self = Self {
                all: true,
                ..Self::default()
            };
            return;
        }
        for (covered, places) in [
            (&mut self.parameters, &part.parameters),
            (&mut self.buffers, &part.buffers),
        ] {
            covered.resize(places.of(), false);
            places
                .ranges()
                .iter()
                .for_each(|range| covered[range.clone()].fill(true));
        }
    }

    /// Puts back what the server half has moved of the coordinates that nobody trained: moments decay, and would move a
    /// coordinate long after anybody has.
    pub fn restore(&self, weights: &mut Weights, before: &Weights) {
        if self.all {
            return;
        }
        put_back(&mut weights.parameters, &before.parameters, &self.parameters);
        put_back(&mut weights.buffers, &before.buffers, &self.buffers);
    }

    /// [`restore`](Self::restore) for what the server half keeps, where it kept it before: in the first round a new vector
    /// is what the server half made it.
    pub fn restore_vectors(&self, vectors: &mut Vectors, before: Option<&Vectors>) {
        let (false, Some(before)) = (self.all, before) else {
            return;
        };
        for (name, vector) in vectors.iter_mut() {
            let covered = match vector.shape {
                Shape::Parameters => &self.parameters,
                Shape::Buffers => &self.buffers,
                Shape::Free(_) => continue,
            };
            if let Some(before) = before.get(name) {
                put_back(&mut vector.values, before, covered);
            }
        }
    }
}

fn put_back(now: &mut [f32], before: &[f32], covered: &[bool]) {
    let values = now.iter_mut().zip(before).zip(covered);
    values
        .filter(|(_, covered)| !**covered)
        .for_each(|((now, before), _)| *now = *before);
}
