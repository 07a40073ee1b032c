//! Where a model can be cut in two, what each cut costs, and which one makes the shortest step.

use serde::Serialize;

use crate::{description::ModelDescription, error::ModelError, summary::STEP};

/// What one cut leaves to the client, which has the front, and to the server, which has the back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CutSummary {
    /// Layers of the front, as [`ModelDescription::cut`] takes them.
    pub layers: usize,
    /// The place of the front's last layer.
    pub place: String,
    /// The kind of the front's last layer.
    pub kind: &'static str,
    /// Values that the front trains.
    pub front_parameters: usize,
    /// Values that the back trains.
    pub back_parameters: usize,
    /// Floating-point operations of one example's forward through the front; a training step takes about [`STEP`] times
    /// as many.
    pub front_operations: u64,
    /// The same through the back.
    pub back_operations: u64,
    /// About how many bytes a client needs to train the front with plain gradient descent, beside its data and the
    /// program itself: see [`training_memory`](ModelDescription::training_memory).
    pub front_memory: u64,
    /// Values that cross the cut for one example: activations on the way up, and as many of their gradient on the way
    /// down.
    pub values: u64,
}

impl ModelDescription {
    /// All cuts of the model, from one layer in the front to one layer in the back; none when the model has one layer.
    /// The memory is for a `batch` of so many examples; nothing else depends on it.
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn cuts(&self, batch: u64) -> Result<Vec<CutSummary>, ModelError> {
        let whole = self.summary()?;
        let (mut front_parameters, mut front_operations) = (0, 0);
        let mut cuts = Vec::new();
        for (index, layer) in whole.layers[..whole.layers.len() - 1].iter().enumerate() {
            let layers = index + 1;
            front_parameters += layer.parameters;
            front_operations += layer.operations;
            let (front, _) = self.cut(layers)?;
            cuts.push(CutSummary {
                layers,
                place: layer.place.clone(),
                kind: layer.kind,
                front_parameters,
                back_parameters: whole.parameters - front_parameters,
                front_operations,
                back_operations: whole.operations - front_operations,
                // Gradients count as examples.
                front_memory: front.training_memory(0, batch.saturating_mul(2))?,
                values: layer.output.iter().product::<usize>() as u64,
            });
        }
        Ok(cuts)
    }
}

/// How values are written as they cross a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutEncoding {
    /// Four bytes a value; the default.
    #[default]
    F32,
    /// Two bytes a value.
    Bf16,
    /// One byte a value, and for each example eight more for the range of its values.
    Int8,
}

impl CutEncoding {
    /// Bytes that one example of so many values takes.
    pub fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F32 => values.saturating_mul(4),
            Self::Bf16 => values.saturating_mul(2),
            Self::Int8 => values.saturating_add(8),
        }
    }
}

/// What the time of a step of parallel split learning depends on, beside the cut. All numbers are above 0; only the
/// latency may be 0, and speeds may be infinite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SplitStep {
    /// Floating-point operations that a client trains with in a second.
    pub speed: f64,
    /// Floating-point operations that the server trains with in a second.
    pub server_speed: f64,
    /// Bytes a second from each client to the server.
    pub uplink: f64,
    /// Bytes a second from the server to each client.
    pub downlink: f64,
    /// Seconds that a message is on its way, beside those its bytes take.
    pub latency: f64,
    /// Examples in a client's batch.
    pub batch: u64,
    /// Clients that take the step together.
    pub clients: u64,
    /// How values are written as they cross the cut, both ways.
    pub encoding: CutEncoding,
}

impl SplitStep {
    /// The predicted seconds of one step with this cut, the sum of
    ///
    /// - the client's forward and backward: [`STEP`] x front operations x batch / speed;
    /// - the activations' way up: bytes of an example x batch / uplink;
    /// - the server's forward and backward, on the batches of all clients together:
    ///   [`STEP`] x back operations x batch x clients / server speed;
    /// - the gradient's way down: bytes of an example x batch / downlink;
    /// - the latency, twice.
    ///
    /// It is a little too long: the first layer with parameters needs no gradient of its input, which saves up to a
    /// third of that layer's work. It is too short where clients share a link, or where one is slower than the others,
    /// for whom they then wait. Targets, which are few values, and the optimisers' updates are left out.
    pub fn seconds(&self, cut: &CutSummary) -> f64 {
        let batch = self.batch as f64;
        let bytes = self.encoding.bytes(cut.values) as f64 * batch;
        let client = STEP * cut.front_operations as f64 * batch / self.speed;
        let up = bytes / self.uplink;
        let server = STEP * cut.back_operations as f64 * batch * self.clients as f64 / self.server_speed;
        let down = bytes / self.downlink;
        client + up + server + down + 2.0 * self.latency
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
