//! What this process knows by name: code, which a description can name but not hold.
//!
//! Names are given once, before descriptions are read, and never taken back. This is the one thing that is not handed
//! from function to function: a description is read by serde in many places, on both sides of the network, and what
//! the program has been linked with is the same in all of them, like the list of layers itself.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use crate::error::ModelError;

/// Values under names that are given once.
pub(crate) struct Names<T>(RwLock<BTreeMap<String, T>>);

impl<T: Clone> Names<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Gives a name to a value, unless it is another's.
    pub(crate) fn give(&self, name: &str, value: T) -> Result<(), ModelError> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.contains_key(name) {
            return Err(ModelError::NameTaken { name: name.into() });
        }
        names.insert(name.into(), value);
        Ok(())
    }

    /// What has this name.
    pub(crate) fn get(&self, name: &str) -> Option<T> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(name).cloned()
    }

    /// All names, in their order.
    pub(crate) fn all(&self) -> Vec<String> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.keys().cloned().collect()
    }
}
