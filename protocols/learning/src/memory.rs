//! What is kept from round to round, on a client or on the server.

use std::collections::BTreeMap;

use selvedge_models::SubModel;
use serde::{Deserialize, Serialize};

use crate::Vectors;

/// What the components of a run keep from round to round, each under its own name: `algorithm`, `server.0`,
/// `filters.1.parameters`, …. What has the model's shape is sliced and merged with sub-models like the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(BTreeMap<String, Vectors>);

impl Memory {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a component keeps.
    pub fn of(&self, component: &str) -> Option<&Vectors> {
        self.0.get(component)
    }

    /// What a component keeps, to be changed.
    pub fn of_mut(&mut self, component: &str) -> &mut Vectors {
        self.0.entry(component.to_owned()).or_default()
    }

    /// All but what a component keeps.
    #[must_use]
    pub fn without(&self, component: &str) -> Self {
        let others = self.0.iter().filter(|(name, _)| *name != component);
        Self(others.map(|(name, vectors)| (name.clone(), vectors.clone())).collect())
    }

    /// Whether no component keeps anything.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(Vectors::is_empty)
    }

    /// What each component keeps, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Vectors)> {
        self.0.iter().map(|(component, vectors)| (component.as_str(), vectors))
    }

    /// What each component keeps, to be changed, in the order of their names.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Vectors)> {
        self.0
            .iter_mut()
            .map(|(component, vectors)| (component.as_str(), vectors))
    }

    /// Whether no value is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.0.values().all(Vectors::is_finite)
    }

    /// What belongs to this part of the model, from what is kept for the whole.
    pub fn slice(&self, part: &SubModel) -> Self {
        let slice = |(component, vectors): (&String, &Vectors)| (component.clone(), vectors.slice(part));
        Self(self.0.iter().map(slice).collect())
    }

    /// [`slice`](Self::slice), to be [merged](Self::merge) again: what is of the whole model is not copied.
    pub fn take(&mut self, part: &SubModel) -> Self {
        match part.is_whole() {
            true => std::mem::take(self),
            false => self.slice(part),
        }
    }

    /// Puts what was kept for this part of the model into what is kept for the whole. Components that keep nothing are
    /// forgotten.
    pub fn merge(&mut self, of_part: Self, part: &SubModel) {
        for (component, vectors) in of_part.0 {
            if !vectors.is_empty() {
                self.of_mut(&component).merge(vectors, part);
            }
        }
        self.0.retain(|_, vectors| !vectors.is_empty());
    }
}
