//! Which clients are there, and which of them a round selects.

use std::collections::BTreeSet;

use rand::{Rng, seq::index};
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
        self.draw(
            size,
            &BTreeSet::new(),
            &mut seed.round_stream(Purpose::Selection, round),
        )
    }

    /// Selects like that among those who are not `busy`.
    pub(super) fn draw(&self, size: usize, busy: &BTreeSet<ClientName>, random: &mut impl Rng) -> Vec<ClientName> {
        let free = self.len() - busy.iter().filter(|client| self.contains(client)).count();
        let mut selected = index::sample(random, free, size.min(free)).into_vec();
        selected.sort_unstable();
        match self {
            Self::Numbered(clients) => {
                let numbers = busy.iter().filter_map(ClientName::number);
                let mut busy = numbers.filter(|number| number < clients).peekable();
                let mut passed = 0;
                let number = |at: usize| {
                    while busy.next_if(|number| *number <= at + passed).is_some() {
                        passed += 1;
                    }
                    ClientName::numbered(at + passed)
                };
                selected.into_iter().map(number).collect()
            }
            Self::Joined(names) => {
                let mut selected = selected.into_iter().peekable();
                let is_next = |at: &usize| selected.next_if_eq(at).is_some();
                let mut is_selected = is_next;
                names
                    .iter()
                    .filter(|name| !busy.contains(*name))
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
    fn those_who_are_busy_are_passed_over_and_all_others_can_be_drawn() {
        let numbered = Roster::Numbered(20);
        let joined = Roster::Joined((0..20).map(ClientName::numbered).collect());
        let busy: BTreeSet<_> = [0, 1, 5, 12, 19, 40].map(ClientName::numbered).into();
        let stream = |round| Seed(1).round_stream(Purpose::Selection, round);
        for round in 1..50 {
            let drawn = numbered.draw(6, &busy, &mut stream(round));
            assert_eq!(drawn, joined.draw(6, &busy, &mut stream(round)));
            assert!(drawn.is_sorted() && drawn.len() == 6 && drawn.iter().all(|client| !busy.contains(client)));
        }
        let all = numbered.draw(99, &busy, &mut stream(1));
        let free: Vec<_> = (0..20)
            .map(ClientName::numbered)
            .filter(|client| !busy.contains(client))
            .collect();
        assert_eq!(all, free);
    }

    #[test]
    fn with_fewer_clients_than_asked_all_are_selected() {
        assert_eq!(Roster::Numbered(3).select(10, Seed(1), 1).len(), 3);
        assert_eq!(Roster::Numbered(0).select(10, Seed(1), 1), []);
    }
}
