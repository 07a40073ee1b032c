//! How long a step takes: what is predicted, and which cut makes the shortest.

use selvedge_models::{CutSummary, STEP};
use serde::{Deserialize, Serialize};

use super::StepEncoding;

/// What clients, server and the links between them can do: `devices` of `[split]`, from which the time of a step is
/// predicted. Nothing else depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// How fast a client trains, in billions of floating-point operations a second, above 0.
    pub speed: f64,
    /// How fast the server trains, in the same unit.
    pub server_speed: f64,
    /// Megabits a second from each client to the server, above 0. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<f64>,
    /// Megabits a second from the server to each client, above 0. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<f64>,
    /// Milliseconds that a message is on its way, beside those its bytes take, 0 or above. Default 0.
    #[serde(default)]
    pub delay: f64,
}

impl Devices {
    /// What is wrong with the values, if anything: (key, what it must be).
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let rates = [
            ("speed", Some(self.speed)),
            ("server_speed", Some(self.server_speed)),
            ("up", self.up),
            ("down", self.down),
        ];
        for (key, rate) in rates {
            if let Some(rate) = rate.filter(|rate| !(*rate > 0.0 && rate.is_finite())) {
                return Some((key, format!("{rate} is not a number above 0")));
            }
        }
        let delay = self.delay;
        let is_delay = delay >= 0.0 && delay.is_finite();
        (!is_delay).then(|| ("delay", format!("{delay} is not a number from 0 on")))
    }
}

/// What the time of a step of parallel split learning depends on, beside the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// What clients, server and links can do.
    pub devices: Devices,
    /// Examples in a client's batch.
    pub batch: usize,
    /// Clients that take the step together.
    pub clients: usize,
    /// How smashed data travel.
    pub smashed: StepEncoding,
    /// How cut gradients travel.
    pub gradients: StepEncoding,
}

impl StepTime {
    /// The predicted seconds of one step with this cut, the sum of
    ///
    /// - the client's forward and backward: [`STEP`] x front operations x batch / speed;
    /// - the smashed data's way up: their bytes / up;
    /// - the server's forward and backward, on the batches of all clients together:
    ///   [`STEP`] x back operations x batch x clients / server speed;
    /// - the cut gradient's way down: its bytes / down;
    /// - the delay, twice.
    ///
    /// It is a little too long: the first layer with parameters needs no gradient of its input, which saves up to a
    /// third of that layer's work. It is too short where clients share a link or a processor, or where one is slower than
    /// the others, for whom they then wait. Targets, which are few values, and the optimisers' updates are left out.
    pub fn seconds(&self, cut: &CutSummary) -> f64 {
        let Devices {
            speed,
            server_speed,
            up,
            down,
            delay,
        } = self.devices;
        let batch = self.batch as f64;
        let bits = |encoding: StepEncoding| {
            let bytes = encoding.bytes(self.batch, usize::try_from(cut.values).unwrap_or(usize::MAX));
            8.0 * bytes.unwrap_or(usize::MAX) as f64
        };
        let on_link = |encoding: StepEncoding, megabits: Option<f64>| {
            megabits.map_or(0.0, |megabits| bits(encoding) / (1e6 * megabits))
        };
        let client = STEP * cut.front_operations as f64 * batch / (1e9 * speed);
        let server = STEP * cut.back_operations as f64 * batch * self.clients as f64 / (1e9 * server_speed);
        client + on_link(self.smashed, up) + server + on_link(self.gradients, down) + 2.0 * delay / 1e3
    }

    /// The cut with the shortest predicted step; of several, the one with the fewest layers in the front. A front
    /// without parameters learns nothing: such a cut is only recommended where there is no other. `None` without cuts.
    pub fn recommended<'a>(&self, cuts: &'a [CutSummary]) -> Option<&'a CutSummary> {
        let learns_nothing = |cut: &CutSummary| cut.front_parameters == 0;
        cuts.iter().min_by(|one, other| {
            learns_nothing(one)
                .cmp(&learns_nothing(other))
                .then(self.seconds(one).total_cmp(&self.seconds(other)))
                .then(one.layers.cmp(&other.layers))
        })
    }
}
