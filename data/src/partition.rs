//! How examples are dealt to clients: `[partition]` of a run's description.

mod cut;
mod dirichlet;
mod power_law;
mod shards;

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
    /// Label skew: the examples of each class are shared out in proportions drawn from a Dirichlet distribution
    /// (Hsu, Qi, Brown 2019, arXiv:1909.06335; class by class as in Yurochkin et al. 2019, arXiv:1905.12022).
    Dirichlet {
        /// Concentration, without unit: small gives each class to few clients, large makes clients alike.
        /// Range: 0.000001 to 1000000.
        alpha: f64,
    },
    /// Sorted by label, cut into `clients` × `per_client` equal shards, dealt at random
    /// (McMahan et al. 2017, arXiv:1602.05629, section 3: two shards for each client).
    Shards {
        /// Shards for each client. Range: 1 to 65535.
        per_client: usize,
    },
    /// Sizes by a power law (Zipf's): the client of rank r gets a share in proportion to r^-exponent. Which
    /// client has which rank is drawn.
    PowerLaw {
        /// The exponent, without unit; 0 gives equal sizes. Range: 0 to 100.
        exponent: f64,
        /// Classes that each client holds, consecutive ones, as in FedProx's MNIST with two digits a client
        /// (Li et al. 2020, arXiv:1812.06127, appendix C.1). A class that would have no holder, when clients are
        /// few, is added to one. Range: 1 or more. Default: classes are not looked at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        classes_per_client: Option<usize>,
    },
    /// One client for each group (writer, device, hospital) that the data itself names.
    Natural {},
}

impl PartitionDescription {
    /// Checks the parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), DataError> {
        let refuse = |key, value: String, range| Err(DataError::Setting { key, value, range });
        match *self {
            Self::Dirichlet { alpha } if !(1e-6..=1e6).contains(&alpha) => {
                refuse("alpha", format!("{alpha:?}"), "between 0.000001 and 1000000")
            }
            Self::Shards { per_client } if !(1..=65535).contains(&per_client) => {
                refuse("per_client", per_client.to_string(), "between 1 and 65535")
            }
            Self::PowerLaw { exponent, .. } if !(0.0..=100.0).contains(&exponent) => {
                refuse("exponent", exponent.to_string(), "between 0 and 100")
            }
            Self::PowerLaw {
                classes_per_client: Some(0),
                ..
            } => refuse("classes_per_client", "0".into(), "1 or more"),
            _ => Ok(()),
        }
    }

    /// Deals the examples of `dataset` to `clients` clients: a function of its arguments and the state of `rng`.
    ///
    /// Integer arithmetic decides everything except for shares by `dirichlet` and `power-law`, whose logarithms
    /// and powers are the platform's; a last bit that differs there moves an example with a chance of about
    /// 1e-12 a share.
    ///
    /// # Errors
    /// When a parameter is out of its range, or the data set lacks the classes or groups that the kind needs.
    pub fn deal(&self, dataset: &Dataset, clients: usize, rng: &mut ChaCha8Rng) -> Result<Partition, DataError> {
        self.check()?;
        if clients == 0 || clients > MOST_CLIENTS {
            let range = "between 1 and 268435456";
            return Err(DataError::Setting {
                key: "clients",
                value: clients.to_string(),
                range,
            });
        }
        let owners = match *self {
            Self::Iid {} => {
                let mut owners = vec![0; dataset.len()];
                for (position, example) in shuffled(dataset.len(), rng).into_iter().enumerate() {
                    owners[example as usize] = (position % clients) as u32;
                }
                owners
            }
            Self::Dirichlet { alpha } => dirichlet::owners(
                &examples_by_class(dataset, "a dirichlet partition")?,
                clients,
                alpha,
                rng,
            )?,
            Self::Shards { per_client } => {
                let by_class = examples_by_class(dataset, "a partition into shards")?;
                shards::owners(&by_class.concat(), clients, per_client, rng)
            }
            Self::PowerLaw {
                exponent,
                classes_per_client: None,
            } => power_law::owners(&[(0..dataset.len() as u32).collect()], clients, 1, exponent, rng),
            Self::PowerLaw {
                exponent,
                classes_per_client: Some(each),
            } => {
                let by_class = examples_by_class(dataset, "classes_per_client")?;
                power_law::owners(&by_class, clients, each, exponent, rng)
            }
            Self::Natural {} => {
                let groups = dataset.groups().ok_or(DataError::NoGroups)?;
                if groups.names.len() != clients {
                    return Err(DataError::GroupsDiffer {
                        groups: groups.names.len(),
                        clients,
                    });
                }
                groups.of_example.clone()
            }
        };
        Ok(Partition::from_owners(&owners, clients))
    }
}

/// The most clients that are dealt to: offsets alone would take 1 GiB.
const MOST_CLIENTS: usize = 1 << 28;

/// The numbers below `count`, shuffled.
fn shuffled(count: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    numbers.shuffle(rng);
    numbers
}

/// For each class, its examples in ascending order.
fn examples_by_class(dataset: &Dataset, what: &'static str) -> Result<Vec<Vec<u32>>, DataError> {
    let (labels, classes) = dataset.labels(what)?;
    let mut by_class = vec![Vec::new(); classes];
    for (example, &label) in labels.iter().enumerate() {
        by_class[label as usize].push(example as u32);
    }
    Ok(by_class)
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

    /// A partition of one's own: the examples of each client, as indices into a data set of so many. An example may be held
    /// by several clients, or by none.
    ///
    /// # Errors
    /// When a client is to hold an example that there is not, or all together hold more than 2^32.
    pub fn from_clients(clients: &[Vec<u32>], examples: usize) -> Result<Self, DataError> {
        let held: usize = clients.iter().map(Vec::len).sum();
        if u32::try_from(held).is_err() {
            let range = "at most 4294967295 examples over all clients";
            let value = held.to_string();
            return Err(DataError::Setting {
                key: "partition",
                value,
                range,
            });
        }
        let mut partition = Self {
            indices: Vec::with_capacity(held),
            offsets: vec![0],
        };
        for (client, indices) in clients.iter().enumerate() {
            if let Some(&example) = indices.iter().find(|index| **index as usize >= examples) {
                return Err(DataError::NoSuchExample {
                    client,
                    example,
                    examples,
                });
            }
            partition.push_client(indices);
        }
        Ok(partition)
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

    /// How many examples of each class a client holds.
    pub(crate) fn client_histogram(&self, client: usize, dataset: &Dataset) -> Result<Vec<u64>, DataError> {
        let (labels, classes) = dataset.labels("a histogram of labels")?;
        let mut counts = vec![0; classes];
        self.client(client)
            .iter()
            .for_each(|&example| counts[labels[example as usize] as usize] += 1);
        Ok(counts)
    }

    /// Sets a part of each client's examples aside: what is left to train on, and what is held out.
    ///
    /// Of n examples, ⌊n × `fraction`⌋ are drawn at random, so a client that has examples keeps at least one.
    ///
    /// # Errors
    /// When `fraction` is not at least 0 and less than 1.
    pub fn split_holdout(&self, fraction: f64, rng: &mut ChaCha8Rng) -> Result<(Self, Self), DataError> {
        if !(0.0..1.0).contains(&fraction) {
            let range = "at least 0 and less than 1";
            return Err(DataError::Setting {
                key: "holdout",
                value: fraction.to_string(),
                range,
            });
        }
        let empty = || Self {
            indices: Vec::new(),
            offsets: vec![0],
        };
        let (mut kept, mut held_out) = (empty(), empty());
        for client in 0..self.clients() {
            let mut examples = self.client(client).to_vec();
            examples.shuffle(rng);
            // The product may round up to n itself for a fraction just below one.
            let most = examples.len().saturating_sub(1);
            let (out, keep) = examples.split_at(most.min((examples.len() as f64 * fraction) as usize));
            kept.push_client(keep);
            held_out.push_client(out);
        }
        Ok((kept, held_out))
    }

    fn push_client(&mut self, examples: &[u32]) {
        let begin = self.indices.len();
        self.indices.extend_from_slice(examples);
        self.indices[begin..].sort_unstable();
        self.offsets.push(self.indices.len() as u32);
    }
}

#[cfg(test)]
mod tests;
