//! What every component of a run may know, and where it can say what it has measured.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use selvedge_models::{Layout, OptimiserDescription};
use selvedge_words::{ClientName, Seed};

/// The most metrics that a client may report, and how long their names may be.
pub const MOST_METRICS: usize = 64;
/// The most characters of a metric's name.
pub const LONGEST_METRIC: usize = 64;

/// What a component of a run (an algorithm's client or server half, a rule of aggregation, a server step, a filter) may
/// know where it is called, and where it can say what it has measured.
pub struct Context<'a> {
    /// The component's name: `algorithm`, `server.0`, ….
    component: String,
    /// The round, counted from 1.
    pub round: u32,
    /// How many rounds the run has.
    pub rounds: u32,
    /// How many clients the federation has, selected or not.
    pub clients: usize,
    /// How many clients a round selects; where that is known, how many this round has.
    pub cohort: usize,
    /// Where the values of the model lie, tensor by tensor: on a client, of its part of the model.
    pub layout: &'a Layout,
    /// The clients' local optimiser.
    pub optimiser: &'a OptimiserDescription,
    /// The component's own random numbers: of this round and, on a client's account, of this client; the same on both
    /// sides.
    pub random: ChaCha8Rng,
    metrics: &'a mut Metrics,
}

/// What components have measured in a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Of the round or, on a client, of this client: by component and name, `server.0.norm`.
    pub own: BTreeMap<String, f64>,
    /// Of single clients.
    pub clients: BTreeMap<ClientName, BTreeMap<String, f64>>,
}

impl Context<'_> {
    /// Notes a number. One that is not finite is left out, as is what is more than [`MOST_METRICS`].
    pub fn note(&mut self, name: &str, value: f64) {
        let key = key(&self.component, name);
        note(&mut self.metrics.own, key, value);
    }

    /// Notes a number of a single client, as [`note`](Self::note) does.
    pub fn note_of(&mut self, client: &ClientName, name: &str, value: f64) {
        let key = key(&self.component, name);
        note(self.metrics.clients.entry(client.clone()).or_default(), key, value);
    }
}

fn key(component: &str, name: &str) -> String {
    let name = component.chars().chain(['.']).chain(name.chars());
    name.take(LONGEST_METRIC).collect()
}

fn note(metrics: &mut BTreeMap<String, f64>, key: String, value: f64) {
    if value.is_finite() && (metrics.len() < MOST_METRICS || metrics.contains_key(&key)) {
        metrics.insert(key, value);
    }
}

/// Where and when a component is called, apart from which component it is.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    /// From which the run's random numbers are derived.
    pub seed: Seed,
    /// The round, counted from 1.
    pub round: u32,
    /// How many rounds the run has.
    pub rounds: u32,
    /// How many clients the federation has.
    pub clients: usize,
    /// How many clients a round selects, or this one has.
    pub cohort: usize,
    /// On whose account; `None` on that of the whole cohort.
    pub client: Option<&'a ClientName>,
    /// Where the values of the model, or of the client's part of it, lie.
    pub layout: &'a Layout,
    /// The clients' local optimiser.
    pub optimiser: &'a OptimiserDescription,
}

impl<'a> Occasion<'a> {
    /// What a component may know on this occasion.
    pub fn context(&self, component: impl Into<String>, metrics: &'a mut Metrics) -> Context<'a> {
        let component = component.into();
        Context {
            round: self.round,
            rounds: self.rounds,
            clients: self.clients,
            cohort: self.cohort,
            layout: self.layout,
            optimiser: self.optimiser,
            random: self.seed.component_stream(&component, self.round, self.client),
            metrics,
            component,
        }
    }
}
