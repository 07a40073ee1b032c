//! `[devices]`: what the devices of a simulation's clients are like, from which its clock goes.

use std::{fmt, time::Duration};

use rand::Rng;
use selvedge_words::{ClientName, Purpose, Seed};
use serde::{Deserialize, Serialize};

use super::{
    Description, Problem, Shares,
    check::{LONGEST, SHORTEST},
};

/// `[devices]`: what the devices of a simulation's clients are like, from which its clock goes. What is not given takes no
/// time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Devices {
    /// Examples a second in training with the whole model, above 0. Default: training takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples_per_second: Option<OfEach>,
    /// Bytes a second from the coordinator to the client, above 0. Default: receiving takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_bytes_per_second: Option<OfEach>,
    /// Bytes a second from the client to the coordinator, above 0. Default: sending takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_bytes_per_second: Option<OfEach>,
    /// Seconds until a message is there, one way, 0 to ten years. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_seconds: Option<OfEach>,
    /// The share of the time in which the client is there, above 0 and at most 1. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<OfEach>,
    /// Seconds from one going of a client that is not always there to the next, on the mean, 0.001 to ten years.
    /// Default 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<f64>,
    /// Seconds after which the client leaves for good, 0.001 to ten years. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<OfEach>,
}

/// A number that each client has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a number, a list of { value = NUMBER, share = SHARE }, or { kind = \"log-uniform\", lowest = NUMBER, \
                 highest = NUMBER }"
)]
pub enum OfEach {
    /// The same for all.
    Alike(f64),
    /// For each share of the clients.
    Shares(Vec<ValueShare>),
    /// Drawn, once for each client.
    Drawn(Drawn),
}

/// The number that some of the clients have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueShare {
    /// The number.
    pub value: f64,
    /// The share of the clients, above 0; all shares sum to 1.
    pub share: f64,
}

/// From what numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Drawn {
    /// Uniformly on a scale of ratios: as many are between 1 and 10 as between 10 and 100.
    LogUniform {
        /// The lowest, above 0.
        lowest: f64,
        /// The highest.
        highest: f64,
    },
}

/// The most shares of one number.
const MOST_SHARES: usize = 100;

/// The most clients of a federation that are not always there: each has a place in the clock's agenda.
const MOST_COMING_AND_GOING: usize = 1_000_000;

/// The largest rate.
const FASTEST: f64 = 1e15;

/// What a number can be.
#[derive(Clone, Copy)]
struct Range {
    lowest: f64,
    /// Whether it is to be above the lowest.
    is_open: bool,
    highest: f64,
}

impl Range {
    fn contains(self, value: f64) -> bool {
        (self.lowest..=self.highest).contains(&value) && !(self.is_open && value == self.lowest)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lowest, highest, .. } = self;
        match self.is_open {
            true => write!(f, "above {lowest} and at most {highest}"),
            false => write!(f, "from {lowest} to {highest}"),
        }
    }
}

impl OfEach {
    /// All numbers that there can be, or the ends of their range.
    fn values(&self) -> Vec<f64> {
        match self {
            Self::Alike(value) => vec![*value],
            Self::Shares(shares) => shares.iter().map(|share| share.value).collect(),
            Self::Drawn(Drawn::LogUniform { lowest, highest }) => vec![*lowest, *highest],
        }
    }

    /// What is wrong with it where numbers are to be in `range`, if anything.
    fn problem(&self, range: Range) -> Option<String> {
        if let Some(value) = self.values().into_iter().find(|value| !range.contains(*value)) {
            return Some(format!("{value} is not {range}"));
        }
        match self {
            Self::Alike(_) => None,
            Self::Drawn(Drawn::LogUniform { lowest, highest }) => {
                let holds = *lowest > 0.0 && lowest <= highest;
                (!holds).then(|| format!("{lowest} to {highest} is no range of numbers above 0"))
            }
            Self::Shares(shares) => {
                let sum: f64 = shares.iter().map(|share| share.share).sum();
                let count = shares.len();
                if !(1..=MOST_SHARES).contains(&count) {
                    return Some(format!("{count} shares are given; 1 to {MOST_SHARES} can be"));
                }
                if let Some(share) = shares.iter().find(|share| share.share.is_nan() || share.share <= 0.0) {
                    return Some(format!("the share {} is not above 0", share.share));
                }
                ((sum - 1.0).abs() > 1e-6).then(|| format!("the shares sum to {sum}, not to 1"))
            }
        }
    }

    fn deal(&self, description: &Description, purpose: Purpose) -> Dealt {
        match self {
            Self::Alike(value) => Dealt::Shares(Shares::Alike(*value)),
            Self::Shares(shares) => {
                let shares = shares.iter().map(|share| (share.value, share.share)).collect();
                Dealt::Shares(Shares::deal(description, shares, purpose))
            }
            Self::Drawn(drawn) => Dealt::Drawn(*drawn, description.seed, purpose),
        }
    }
}

impl Devices {
    /// Whether clients come and go.
    pub fn come_and_go(&self) -> bool {
        self.availability.is_some() || self.lifetime_seconds.is_some()
    }

    /// All that is wrong with the values in a run of `description`; empty when nothing is.
    pub(super) fn problems(&self, description: &Description) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let key = key.into();
            problems.push(Problem { key, message });
        };
        if description.split.is_some() {
            let message = "the steps of split learning have no virtual time: leave out `devices` or `split`";
            refuse("devices", message.into());
        }
        let rate = Range {
            lowest: 0.0,
            is_open: true,
            highest: FASTEST,
        };
        let share = Range { highest: 1.0, ..rate };
        let time = Range {
            lowest: SHORTEST,
            is_open: false,
            highest: LONGEST,
        };
        let delay = Range { lowest: 0.0, ..time };
        let period = self.period_seconds.map(OfEach::Alike);
        for (key, given, range) in [
            ("examples_per_second", &self.examples_per_second, rate),
            ("download_bytes_per_second", &self.download_bytes_per_second, rate),
            ("upload_bytes_per_second", &self.upload_bytes_per_second, rate),
            ("latency_seconds", &self.latency_seconds, delay),
            ("availability", &self.availability, share),
            ("period_seconds", &period, time),
            ("lifetime_seconds", &self.lifetime_seconds, time),
        ] {
            if let Some(message) = given.as_ref().and_then(|given| given.problem(range)) {
                refuse(&format!("devices.{key}"), message);
            }
        }
        let clients = description.clients;
        if self.come_and_go() && clients > MOST_COMING_AND_GOING {
            let message = format!("{MOST_COMING_AND_GOING} clients can come and go at most, and there are {clients}");
            refuse("devices", message);
        }
        problems
    }
}

impl Description {
    /// What the clients' devices are like; without `[devices]`, nothing takes any time.
    pub fn dealt_devices(&self) -> DealtDevices {
        let devices = self.devices.clone().unwrap_or_default();
        let deal = |given: &Option<OfEach>, default: f64, purpose| match given {
            Some(given) => given.deal(self, purpose),
            None => Dealt::Shares(Shares::Alike(default)),
        };
        DealtDevices {
            speed: deal(&devices.examples_per_second, f64::INFINITY, Purpose::Speeds),
            download: deal(&devices.download_bytes_per_second, f64::INFINITY, Purpose::Downloads),
            upload: deal(&devices.upload_bytes_per_second, f64::INFINITY, Purpose::Uploads),
            latency: deal(&devices.latency_seconds, 0.0, Purpose::Latencies),
            availability: deal(&devices.availability, 1.0, Purpose::Availabilities),
            lifetime: deal(&devices.lifetime_seconds, f64::INFINITY, Purpose::Lifetimes),
            period: devices.period_seconds.unwrap_or(3600.0),
            seed: self.seed,
        }
    }
}

/// One number of each client.
#[derive(Clone, Debug)]
enum Dealt {
    Shares(Shares<f64>),
    Drawn(Drawn, Seed, Purpose),
}

impl Dealt {
    fn of(&self, client: &ClientName) -> f64 {
        match self {
            Self::Shares(shares) => shares.of(client),
            Self::Drawn(Drawn::LogUniform { lowest, highest }, seed, purpose) => {
                let at: f64 = seed.client_stream(*purpose, 0, client).random();
                lowest * (highest / lowest).powf(at)
            }
        }
    }
}

/// What the devices of a run's clients are like.
#[derive(Clone, Debug)]
pub struct DealtDevices {
    speed: Dealt,
    download: Dealt,
    upload: Dealt,
    latency: Dealt,
    availability: Dealt,
    lifetime: Dealt,
    period: f64,
    seed: Seed,
}

impl DealtDevices {
    /// How long a client's device trains on so many examples with the whole model.
    pub fn training(&self, client: &ClientName, examples: f64) -> Duration {
        seconds(examples / self.speed.of(client))
    }

    /// How long so many bytes take to a client.
    pub fn download(&self, client: &ClientName, bytes: u64) -> Duration {
        seconds(bytes as f64 / self.download.of(client))
    }

    /// How long so many bytes take from a client.
    pub fn upload(&self, client: &ClientName, bytes: u64) -> Duration {
        seconds(bytes as f64 / self.upload.of(client))
    }

    /// How long a message takes to a client, or from it.
    pub fn latency(&self, client: &ClientName) -> Duration {
        seconds(self.latency.of(client))
    }

    /// When a client leaves for good, measured from the beginning of the run; `None` when it never does.
    pub fn lifetime(&self, client: &ClientName) -> Option<Duration> {
        let lifetime = self.lifetime.of(client);
        lifetime.is_finite().then(|| seconds(lifetime))
    }

    /// For how long a client is there, and then away, for the `cycle`-th time; `None` when it is always there.
    pub fn stay(&self, client: &ClientName, cycle: u32) -> Option<(Duration, Duration)> {
        let availability = self.availability.of(client);
        if availability >= 1.0 {
            return None;
        }
        let mut random = self.seed.client_stream(Purpose::Presence, cycle, client);
        let mut exponential = |mean: f64| seconds(-mean * (1.0 - random.random::<f64>()).ln());
        let there = exponential(self.period * availability);
        Some((there, exponential(self.period * (1.0 - availability))))
    }
}

/// So many seconds, ten years at most: sums of them are far from the end of all clocks.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(devices: &str) -> Description {
        let text = format!(
            "rounds = 1\nclients = 40\ndata = {{ source = \"fashion-mnist-small\" }}\n\
             model = {{ preset = \"logistic-regression\" }}\n\
             training = {{ optimiser = {{ kind = \"sgd\", learning_rate = 0.1 }} }}\n[devices]\n{devices}"
        );
        Description::parse(&text, "test", &[]).unwrap()
    }

    fn all(devices: &DealtDevices, of: impl Fn(&DealtDevices, &ClientName) -> f64) -> Vec<f64> {
        (0..40)
            .map(|client| of(devices, &ClientName::numbered(client)))
            .collect()
    }

    #[test]
    fn what_is_not_given_takes_no_time_and_clients_are_always_there() {
        let (devices, client) = (description("").dealt_devices(), ClientName::numbered(3));
        assert_eq!(devices.training(&client, 1e9), Duration::ZERO);
        assert_eq!(devices.download(&client, u64::MAX), Duration::ZERO);
        assert_eq!(devices.upload(&client, u64::MAX), Duration::ZERO);
        assert_eq!(devices.latency(&client), Duration::ZERO);
        assert_eq!((devices.lifetime(&client), devices.stay(&client, 0)), (None, None));
    }

    #[test]
    fn drawn_numbers_lie_in_their_range_and_differ_by_client_and_by_what_they_are_of() {
        let drawn = "{ kind = \"log-uniform\", lowest = 1.0, highest = 10.0 }";
        let devices = description(&format!(
            "examples_per_second = {drawn}\nupload_bytes_per_second = {drawn}"
        ))
        .dealt_devices();
        let speeds = all(&devices, |devices, client| devices.speed.of(client));
        let uploads = all(&devices, |devices, client| devices.upload.of(client));
        assert!(speeds.iter().all(|speed| (1.0..=10.0).contains(speed)));
        // As many are on one side of the geometric mean as on the other, about.
        let slow = speeds.iter().filter(|speed| **speed < 10f64.sqrt()).count();
        assert!((10..=30).contains(&slow), "{slow}");
        assert!(speeds.iter().zip(&uploads).all(|(speed, upload)| speed != upload));
    }

    #[test]
    fn shares_are_kept_and_times_are_what_the_rates_make_them() {
        let devices =
            description("examples_per_second = [{ value = 5.0, share = 0.25 }, { value = 50.0, share = 0.75 }]")
                .dealt_devices();
        let times = all(&devices, |devices, client| {
            devices.training(client, 100.0).as_secs_f64()
        });
        assert_eq!(times.iter().filter(|time| **time == 20.0).count(), 10);
        assert_eq!(times.iter().filter(|time| **time == 2.0).count(), 30);
    }

    #[test]
    fn clients_are_there_for_their_share_of_the_time() {
        let devices = description("availability = 0.25\nperiod_seconds = 100.0").dealt_devices();
        let client = ClientName::numbered(7);
        let cycles: Vec<_> = (0..4000).filter_map(|cycle| devices.stay(&client, cycle)).collect();
        let there: f64 = cycles.iter().map(|(there, _)| there.as_secs_f64()).sum();
        let away: f64 = cycles.iter().map(|(_, away)| away.as_secs_f64()).sum();
        let share = there / (there + away);
        assert!((0.23..0.27).contains(&share), "{share}");
        let period = (there + away) / 4000.0;
        assert!((95.0..105.0).contains(&period), "{period}");
    }
}
