//! How long a step takes: what is predicted, and which cut makes the shortest.

use selvedge_models::{CutSummary, STEP};
use serde::{Deserialize, Serialize};

use super::{Alignment, StepEncoding, leader::sketch_length};

/// Predicted times that differ by less than this factor are taken for equal.
const NEAR: f64 = 1.1;

/// What clients, server and the links between them can do: `devices` of `[split]`, from which the time of a step is
/// predicted. Nothing else depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equipment {
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

impl Equipment {
    /// What is wrong with the values, if anything: (key, what it must be).
    pub fn problem(&self) -> Option<(&'static str, String)> {
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

/// What the time of a step of split learning depends on, beside the cut.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// What clients, server and links can do.
    pub devices: Equipment,
    /// Examples in a client's batch.
    pub batch: usize,
    /// How smashed data travel.
    pub smashed: StepEncoding,
    /// How cut gradients travel.
    pub gradients: StepEncoding,
    /// Of a model in the shape of a U, the second cut: what lies behind it is the clients' too.
    pub head: Option<CutSummary>,
    /// How the fronts' gradients are aligned, where they are.
    pub alignment: Option<Alignment>,
    /// What the server computes, in forwards of one client's batch.
    pub server_work: f64,
}

impl StepTime {
    /// A step of parallel split learning, 32 bits and labels sent.
    pub fn new(devices: Equipment, batch: usize, clients: usize) -> Self {
        Self {
            devices,
            batch,
            smashed: StepEncoding::F32,
            gradients: StepEncoding::F32,
            head: None,
            alignment: None,
            server_work: STEP * clients as f64,
        }
    }

    /// The predicted seconds of one step with this cut, the sum of
    ///
    /// - the client's forward and backward: [`STEP`] x operations of front and head x batch / speed;
    /// - the server's: its work x back operations x batch / server speed;
    /// - what goes up and down, in bytes / up and bytes / down: smashed data and cut gradients; of a model in the shape of
    ///   a U, the head's input and its gradient; where fronts are aligned, sketches and leader gradients;
    /// - the delay, twice for each exchange.
    ///
    /// What an alignment does every `refresh` steps counts with that share. A probe is the whole step again.
    ///
    /// Mostly it is too short, by a half where nothing is far away: small layers run below the speed of large ones,
    /// clients may share a link or a processor or wait for one that is slower, and encryption and the optimisers' updates
    /// are left out. (The first layer with parameters needs no gradient of its input, which makes it a little too long.)
    pub fn seconds(&self, cut: &CutSummary) -> f64 {
        let Equipment {
            speed,
            server_speed,
            up,
            down,
            delay,
        } = self.devices;
        let bytes = |encoding: StepEncoding, cut: &CutSummary| {
            let values = usize::try_from(cut.values).unwrap_or(usize::MAX);
            encoding.bytes(self.batch, values).unwrap_or(usize::MAX) as f64
        };
        let on_link =
            |bytes: f64, megabits: Option<f64>| megabits.map_or(0.0, |megabits| 8.0 * bytes / (1e6 * megabits));
        let head_operations = self.head.as_ref().map_or(0, |head| head.back_operations);
        let client_operations = STEP * cut.front_operations.saturating_add(head_operations) as f64;
        let server_operations = self.server_work * cut.back_operations.saturating_sub(head_operations) as f64;
        let batch = self.batch as f64;
        let mut seconds = client_operations * batch / (1e9 * speed)
            + server_operations * batch / (1e9 * server_speed)
            + on_link(bytes(self.smashed, cut), up)
            + on_link(bytes(self.gradients, cut), down)
            + 2.0 * delay / 1e3;
        if let Some(head) = &self.head {
            seconds += on_link(bytes(self.smashed, head), down) + on_link(bytes(self.gradients, head), up);
            seconds += 2.0 * delay / 1e3;
        }
        if let Some(alignment) = &self.alignment {
            if alignment.is_probed() {
                seconds *= 2.0;
            }
            let gradient = 4.0 * cut.front_parameters as f64;
            let sketch = 4.0 * sketch_length(cut.front_parameters, alignment.sketch) as f64;
            let leading = on_link(sketch + gradient, up) + on_link(gradient, down) + 4.0 * delay / 1e3;
            seconds += leading / f64::from(alignment.refresh.max(1));
        }
        seconds
    }

    /// Whether this cut leaves the server something to train.
    pub fn is_possible(&self, cut: &CutSummary) -> bool {
        let (head, layers) = match &self.head {
            Some(head) => (head.back_parameters, head.layers),
            None => (0, usize::MAX),
        };
        cut.layers < layers && cut.back_parameters > head
    }

    /// Of the possible cuts, the one with the shortest predicted step. Of those that are within a tenth of it, which is
    /// nearer than predictions are, the one where least crosses; of several, the one with the fewest layers in the front.
    /// A front without parameters learns nothing: such a cut is only recommended where there is no other. `None` without
    /// cuts.
    pub fn recommended<'a>(&self, cuts: &'a [CutSummary]) -> Option<&'a CutSummary> {
        let possible = || cuts.iter().filter(|cut| self.is_possible(cut));
        let learns = possible().any(|cut| cut.front_parameters > 0);
        let candidates = || possible().filter(|cut| !learns || cut.front_parameters > 0);
        let shortest = candidates().map(|cut| self.seconds(cut)).reduce(f64::min)?;
        let near = candidates().filter(|cut| self.seconds(cut) <= NEAR * shortest);
        near.min_by_key(|cut| (cut.values, cut.layers))
    }
}
