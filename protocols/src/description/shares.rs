//! What shares of the clients have: dealt by number, or drawn by name.

use rand::{Rng, seq::SliceRandom};
use selvedge_words::{ClientName, Purpose, Seed};

use crate::Description;

/// Something that each client of a federation has, the same for all or dealt by shares.
#[derive(Clone, Debug)]
pub enum Shares<T> {
    /// The same for all.
    Alike(T),
    /// By number, for clients that are `client-{i}`, so that the shares are kept; by a draw of their own for others.
    Dealt {
        /// What there is, and where the share of each ends.
        ends: Vec<(T, f64)>,
        /// For each numbered client, the place of what it has.
        numbered: Vec<u8>,
        /// From which the others draw, and for what.
        seed: (Seed, Purpose),
    },
}

impl<T: Clone> Shares<T> {
    /// Deals to the clients of a run; `shares` sum to 1, and are at most 256.
    pub(super) fn deal(description: &Description, shares: Vec<(T, f64)>, purpose: Purpose) -> Self {
        let mut end = 0.0;
        let ends: Vec<(T, f64)> = shares
            .into_iter()
            .map(|(what, share)| {
                end += share;
                (what, end)
            })
            .collect();
        let clients = description.clients;
        let mut numbered: Vec<u8> = (0..clients)
            .map(|at| place(&ends, (at as f64 + 0.5) / clients as f64))
            .collect();
        numbered.shuffle(&mut description.seed.stream(purpose));
        let seed = (description.seed, purpose);
        Self::Dealt { ends, numbered, seed }
    }

    /// What a client has.
    pub fn of(&self, client: &ClientName) -> T {
        match self {
            Self::Alike(what) => what.clone(),
            Self::Dealt { ends, numbered, seed } => {
                let known = client.number().and_then(|number| numbered.get(number));
                let (seed, purpose) = *seed;
                let drawn = || place(ends, seed.client_stream(purpose, 0, client).random());
                ends[known.copied().unwrap_or_else(drawn) as usize].0.clone()
            }
        }
    }
}

/// The place of the share that a number from 0 to 1 falls into.
fn place<T>(ends: &[(T, f64)], at: f64) -> u8 {
    let last = ends.len().saturating_sub(1);
    ends.iter().position(|(_, end)| at < *end).unwrap_or(last) as u8
}
