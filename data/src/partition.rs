//! How examples are dealt to clients: `[data.partition]` of a run's description.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::{DataError, Dataset};

/// How the training examples are dealt to clients. Every kind deals every example exactly once, whatever its
/// parameters; clients may end up with no example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PartitionDescription {
    /// Shuffled and dealt evenly: sizes differ by at most one.
    Iid {},
}

impl PartitionDescription {
    /// Checks the parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), DataError> {
        Ok(())
    }

    /// Deals the examples of `dataset` to `clients` clients: a function of its arguments and the state of `rng`.
    ///
    /// # Errors
    /// When a parameter is out of its range.
    pub fn deal(
        &self,
        dataset: &Dataset,
        clients: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<Partition, DataError> {
        self.check()?;
        if clients == 0 || clients > u32::MAX as usize {
            let range = "between 1 and 4294967295";
            return Err(DataError::Setting {
                key: "clients",
                value: clients.to_string(),
                range,
            });
        }
        let owners = match self {
            Self::Iid {} => {
                let mut owners = vec![0; dataset.len()];
                for (position, example) in shuffled(dataset.len(), rng).into_iter().enumerate() {
                    owners[example as usize] = (position % clients) as u32;
                }
                owners
            }
        };
        Ok(Partition::from_owners(&owners, clients))
    }
}

/// The numbers below `count`, shuffled.
fn shuffled(count: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    numbers.shuffle(rng);
    numbers
}

/// Which examples each client holds: four bytes for each example and four for each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Indices of examples, client after client, ascending within a client.
    indices: Vec<u32>,
    /// Where each client's indices begin, and where the last one's end.
    offsets: Vec<u32>,
}

impl Partition {
    /// Sorts examples by their owner, so that each is dealt exactly once however the owners were chosen.
    fn from_owners(owners: &[u32], clients: usize) -> Self {
        let mut offsets = vec![0_u32; clients + 1];
        for &owner in owners {
            offsets[owner as usize + 1] += 1;
        }
        for client in 0..clients {
            offsets[client + 1] += offsets[client];
        }
        let mut next = offsets.clone();
        let mut indices = vec![0_u32; owners.len()];
        for (example, &owner) in owners.iter().enumerate() {
            let place = &mut next[owner as usize];
            indices[*place as usize] = example as u32;
            *place += 1;
        }
        Self { indices, offsets }
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The number of examples over all clients.
    pub fn examples(&self) -> usize {
        self.indices.len()
    }

    /// The examples of a client, as ascending indices into the data set.
    ///
    /// # Panics
    /// When `client` is not below [`Partition::clients`].
    pub fn client(&self, client: usize) -> &[u32] {
        &self.indices[self.offsets[client] as usize..self.offsets[client + 1] as usize]
    }
}
