//! Where every random number of a run comes from.
//!
//! A run is a function of its description, so there is no global generator: each use of randomness has a stream of
//! its own, derived from the run's seed, what it is for, the round and the client. Streams do not depend on one
//! another, so workers, arrival order and restarts cannot change them.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::ClientName;

/// What a random stream is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// The model's first weights.
    Initialisation = 1,
    /// How examples are dealt to clients.
    Partition = 2,
    /// Which of a client's examples are held out for its own evaluation.
    Holdout = 3,
    /// Which clients take part in a round.
    Selection = 4,
    /// A client's local training: the order of its examples, dropout.
    Training = 5,
    /// What an algorithm, a rule of aggregation, a server step or a filter draws.
    Components = 6,
    /// Which sub-model each client of a round gets.
    Dealing = 7,
    /// Which units a sub-model keeps.
    Units = 8,
    /// How much of the model each client can train.
    Capacities = 9,
    /// What dropout drops in a client's steps.
    Dropout = 10,
    /// How many examples each client contributes to each global batch.
    Batches = 11,
    /// How gradients are sketched.
    Sketches = 12,
    /// After how many layers each client's model is cut.
    Cuts = 13,
    /// How quickly each client's virtual device trains.
    Speeds = 14,
    /// How quickly each virtual device receives.
    Downloads = 15,
    /// How quickly each virtual device sends.
    Uploads = 16,
    /// How far each virtual device is.
    Latencies = 17,
    /// For which share of the time each virtual device is there.
    Availabilities = 18,
    /// When each virtual device leaves for good.
    Lifetimes = 19,
    /// When each virtual device comes and goes.
    Presence = 20,
}

/// The seed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

impl Seed {
    /// The largest seed that a description can hold: TOML's integers have a sign.
    pub const LARGEST: u64 = i64::MAX as u64;

    /// The stream for one purpose of the whole run.
    pub fn stream(self, purpose: Purpose) -> ChaCha8Rng {
        self.derive(purpose, 0, "")
    }

    /// The stream for one purpose in one round.
    pub fn round_stream(self, purpose: Purpose, round: u32) -> ChaCha8Rng {
        self.derive(purpose, round, "")
    }

    /// The stream for one purpose of one client in one round.
    pub fn client_stream(self, purpose: Purpose, round: u32, client: &ClientName) -> ChaCha8Rng {
        self.derive(purpose, round, client.as_str())
    }

    /// The stream for one purpose of one client in one step of a round: far from those of the other steps.
    pub fn step_stream(self, purpose: Purpose, round: u32, client: &ClientName, step: u64) -> ChaCha8Rng {
        let mut stream = self.client_stream(purpose, round, client);
        stream.set_word_pos(u128::from(step) << 32);
        stream
    }

    /// The stream for one purpose of one numbered part of one round or version.
    pub fn part_stream(self, purpose: Purpose, round: u32, part: u32) -> ChaCha8Rng {
        // No client has such a name.
        self.derive(purpose, round, &format!("#{part}"))
    }

    /// The stream of one component of a run in one round, on a client's account or on that of the whole cohort.
    pub fn component_stream(self, component: &str, round: u32, client: Option<&ClientName>) -> ChaCha8Rng {
        // No client has such a name.
        let client = client.map_or("", ClientName::as_str);
        self.derive(Purpose::Components, round, &format!("#{component}#{client}"))
    }

    fn derive(self, purpose: Purpose, round: u32, client: &str) -> ChaCha8Rng {
        let mut hasher = blake3::Hasher::new_derive_key("selvedge 1 random streams");
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&[purpose as u8]);
        hasher.update(&round.to_le_bytes());
        hasher.update(client.as_bytes());
        ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn streams_are_reproducible_and_differ_by_seed_purpose_round_and_client() {
        let client = ClientName::numbered(3);
        let draw = |seed: u64, purpose, round, client: &ClientName| -> u64 {
            Seed(seed).client_stream(purpose, round, client).random()
        };
        let reference = draw(1, Purpose::Training, 2, &client);
        assert_eq!(reference, draw(1, Purpose::Training, 2, &client));
        for other in [
            draw(2, Purpose::Training, 2, &client),
            draw(1, Purpose::Components, 2, &client),
            draw(1, Purpose::Training, 3, &client),
            draw(1, Purpose::Training, 2, &ClientName::numbered(4)),
        ] {
            assert_ne!(reference, other);
        }
    }
}
