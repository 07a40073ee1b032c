//! Which clients are there, and which of them a round selects.

use std::collections::BTreeSet;

use rand::seq::index;
use selvedge_protocols::{ClientName, Purpose, Seed};

/// The clients that could be selected, in the order of their names.
#[derive(Clone, Debug, PartialEq)]
pub enum Roster {
    /// A simulation's: `client-0` to `client-{n-1}`, all there, always. Costs no memory.
    Numbered(usize),
    /// Those that have joined over the network.
    Joined(BTreeSet<ClientName>),
}

impl Roster {
    /// How many clients there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbered(clients) => *clients,
            Self::Joined(names) => names.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn contains(&self, client: &ClientName) -> bool {
        match self {
            Self::Numbered(clients) => client.number().is_some_and(|number| number < *clients),
            Self::Joined(names) => names.contains(client),
        }
    }

    /// Those that have joined over the network.
    pub(super) fn joined(&self) -> BTreeSet<ClientName> {
        match self {
            Self::Numbered(_) => BTreeSet::new(),
            Self::Joined(names) => names.clone(),
        }
    }

    pub(super) fn join(&mut self, client: ClientName) {
        if let Self::Joined(names) = self {
            names.insert(client);
        }
    }

    pub(super) fn leave(&mut self, client: &ClientName) {
        if let Self::Joined(names) = self {
            names.remove(client);
        }
    }

    /// Selects `size` clients (or all, when there are fewer) uniformly without replacement, in the order of names.
    pub fn select(&self, size: usize, seed: Seed, round: u32) -> Vec<ClientName> {
        let mut random = seed.round_stream(Purpose::Selection, round);
        let mut selected = index::sample(&mut random, self.len(), size.min(self.len())).into_vec();
        selected.sort_unstable();
        match self {
            Self::Numbered(_) => selected.into_iter().map(ClientName::numbered).collect(),
            Self::Joined(names) => {
                let mut selected = selected.into_iter().peekable();
                let is_next = |at: &usize| selected.next_if_eq(at).is_some();
                let mut is_selected = is_next;
                names
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| is_selected(at))
                    .map(|(_, name)| name.clone())
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_and_the_network_select_the_same_clients() {
        let numbered = Roster::Numbered(20);
        let joined = Roster::Joined((0..20).map(ClientName::numbered).collect());
        for round in 1..50 {
            let selected = numbered.select(6, Seed(1), round);
            assert_eq!(selected, joined.select(6, Seed(1), round));
            assert_eq!(selected.len(), 6);
            assert!(selected.is_sorted());
        }
    }

    #[test]
    fn with_fewer_clients_than_asked_all_are_selected() {
        assert_eq!(Roster::Numbered(3).select(10, Seed(1), 1).len(), 3);
        assert_eq!(Roster::Numbered(0).select(10, Seed(1), 1), []);
    }
}
