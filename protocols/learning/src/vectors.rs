//! Vectors beside the model: what an algorithm, a server step or a filter sends with it or keeps from round to round.

use std::collections::BTreeMap;

use selvedge_models::{SubModel, all_finite};
use serde::{Deserialize, Serialize};

/// What the length of a vector follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A value for each of the model's parameters. Of a sub-model, those of its parameters.
    Parameters,
    /// A value for each of the model's buffers, likewise.
    Buffers,
    /// So many values, whatever the model.
    Free(usize),
}

impl Shape {
    /// How many values a vector of this shape has for this part of a model.
    pub fn length(self, part: &SubModel) -> usize {
        match self {
            Self::Parameters => part.parameters.count(),
            Self::Buffers => part.buffers.count(),
            Self::Free(length) => length,
        }
    }
}

/// A vector that is sent beside the model: its name, and what its length follows.
pub type Named = (&'static str, Shape);

/// A vector beside the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    /// What its length follows.
    pub shape: Shape,
    /// Its values.
    pub values: Vec<f32>,
}

/// Vectors by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vectors(BTreeMap<String, Vector>);

impl Vectors {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values of the vector of this name.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.0.get(name).map(|vector| vector.values.as_slice())
    }

    /// The values of the vector of this name, which are `initial` if there is none yet.
    pub fn entry(&mut self, name: &str, shape: Shape, initial: impl FnOnce() -> Vec<f32>) -> &mut Vec<f32> {
        let vector = self.0.entry(name.to_owned()).or_insert_with(|| Vector {
            shape,
            values: initial(),
        });
        &mut vector.values
    }

    /// Puts a vector in place of the one of this name.
    pub fn insert(&mut self, name: impl Into<String>, shape: Shape, values: Vec<f32>) {
        self.0.insert(name.into(), Vector { shape, values });
    }

    /// Takes out the values of the vector of this name.
    pub fn remove(&mut self, name: &str) -> Option<Vec<f32>> {
        self.0.remove(name).map(|vector| vector.values)
    }

    /// The vectors, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Vector)> {
        self.0.iter().map(|(name, vector)| (name.as_str(), vector))
    }

    /// The vectors, to be changed, in the order of their names.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Vector)> {
        self.0.iter_mut().map(|(name, vector)| (name.as_str(), vector))
    }

    /// Whether no value is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.0.values().all(|vector| all_finite(&vector.values))
    }

    /// The vectors of this part of the model, from those of the whole.
    pub fn slice(&self, part: &SubModel) -> Self {
        let slice = |(name, Vector { shape, values }): (&String, &Vector)| {
            let values = match shape {
                Shape::Parameters => part.parameters.extract(values),
                Shape::Buffers => part.buffers.extract(values),
                Shape::Free(_) => values.clone(),
            };
            (name.clone(), Vector { shape: *shape, values })
        };
        Self(self.0.iter().map(slice).collect())
    }

    /// Puts vectors of this part of the model into those of the whole; one that is new there is 0 elsewhere.
    pub fn merge(&mut self, of_part: Self, part: &SubModel) {
        for (name, Vector { shape, values }) in of_part.0 {
            let places = match shape {
                Shape::Parameters => &part.parameters,
                Shape::Buffers => &part.buffers,
                Shape::Free(_) => {
                    self.insert(name, shape, values);
                    continue;
                }
            };
            match places.is_all() {
                true => self.insert(name, shape, values),
                false => places.merge(&values, self.entry(&name, shape, || vec![0.0; places.of()])),
            }
        }
    }
}

impl<Name: Into<String>> FromIterator<(Name, Vector)> for Vectors {
    fn from_iter<I: IntoIterator<Item = (Name, Vector)>>(vectors: I) -> Self {
        Self(
            vectors
                .into_iter()
                .map(|(name, vector)| (name.into(), vector))
                .collect(),
        )
    }
}

impl IntoIterator for Vectors {
    type Item = (String, Vector);
    type IntoIter = std::collections::btree_map::IntoIter<String, Vector>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
