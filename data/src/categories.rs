//! Names of categories, and their numbers.

use std::collections::BTreeMap;

/// Categories, numbered as they are met while they are learned, in order once they are not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Categories {
    numbers: BTreeMap<String, u32>,
    /// Whether new names are no longer added.
    fixed: bool,
}

impl Categories {
    /// Exactly these, numbered in the order given. Fails with a name that is given twice.
    pub(crate) fn given(names: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut numbers = BTreeMap::new();
        for (name, number) in names.into_iter().zip(0..) {
            if numbers.insert(name.clone(), number).is_some() {
                return Err(name);
            }
        }
        Ok(Self { numbers, fixed: true })
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of `name`, which is added unless the categories are fixed.
    pub(crate) fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        let number = self.numbers.len() as u32;
        (!self.fixed).then(|| {
            self.numbers.insert(name.to_owned(), number);
            number
        })
    }

    /// The names by their numbers.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<(&String, &u32)> = self.numbers.iter().collect();
        names.sort_by_key(|&(_, number)| number);
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Fixes learned categories in order (integers by value, anything else by name), so that the order of rows
    /// does not matter. Gives each old number's new one.
    pub(crate) fn fix(&mut self) -> Vec<u32> {
        let old = self.names();
        let integers = old.iter().all(|name| name.parse::<i64>().is_ok());
        let mut order = old.clone();
        order.sort_by_cached_key(|name| (name.parse::<i64>().ok().filter(|_| integers), name.clone()));
        let sorted = Self {
            numbers: order.into_iter().zip(0..).collect(),
            fixed: true,
        };
        let renumbered = old
            .iter()
            .map(|name| sorted.numbers.get(name).copied().unwrap_or(0))
            .collect();
        *self = sorted;
        renumbered
    }
}
