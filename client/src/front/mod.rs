//! The client's half of split learning: a front (and, in a U-shape, a head) and its steps through one round.

mod alignment;
mod payload;

use std::sync::Arc;

use candle_core::Device;
use rand_chacha::ChaCha8Rng;
use selvedge_models::{Layout, Mode, ModelError, Network, Optimiser, Pieces, SubModel, Weights};
use selvedge_protocols::{
    Broadcast, ClientName, Description, LocalError, Memory, Metrics, Part, Purpose, Shape, Trained, Update,
    description::Split,
    evaluation::Batch,
    split::{Exchange, FromClient, FromServer, targets},
    update::{BUFFERS, PARAMETERS, SealedUpdate, TrainingReport},
};

use crate::{Examples, batches::Batches};

/// Under which name a client keeps its front.
const FRONT: &str = "front";

/// A client's part of a cut model in one round: what it has heard says what comes next. It does no I/O and never waits.
pub struct Front {
    description: Arc<Description>,
    pieces: Pieces,
    client: ClientName,
    round: u32,
    examples: u64,
    front: Piece,
    head: Option<Piece>,
    broadcast: Arc<Weights>,
    /// Where its values lie in the whole model, and in its own.
    places: SubModel,
    layout: Arc<Layout>,
    /// What filters have kept of earlier rounds, of this part of the model, and of all of it.
    memory: Memory,
    kept: Memory,
    batches: Batches,
    /// How many examples each step takes, where the server says so.
    sizes: Option<Vec<u32>>,
    /// How many batches were taken.
    taken: u32,
    /// The examples of the step that is under way.
    batch: Vec<u32>,
    gathered: Batch,
    random: ChaCha8Rng,
    leader: Option<Vec<f32>>,
    /// While a probe is under way: the parameters and the gradient as they were, and by what the difference of the gradients
    /// is to be multiplied.
    probe: Option<(Vec<f32>, Vec<f32>, f32)>,
    steps: u64,
    /// Where the head is the client's: what the examples of the step under way came to, and how many these are.
    came_to: (f64, usize),
    seen: usize,
    loss: f64,
}

struct Piece {
    network: Network,
    optimiser: Optimiser,
}

/// What a front has to say.
pub enum Said {
    /// This, with a payload.
    Message(FromClient, Vec<u8>),
    /// Nothing: it waits to hear more.
    Nothing,
    /// It has made its last step.
    Finished,
}

impl Front {
    /// A front for a round. `kept` is what the client keeps from round to round: where fronts are kept, it goes on with its
    /// own, and else with the one that was broadcast.
    ///
    /// # Errors
    /// When the part is not cut, or what is kept is of another model.
    pub fn new(
        description: &Arc<Description>,
        part: &Part,
        client: &ClientName,
        round: u32,
        broadcast: &Broadcast,
        examples: Examples<'_>,
        kept: &Memory,
    ) -> Result<Self, LocalError> {
        let pieces = part.pieces.clone();
        let pieces = pieces.ok_or_else(|| ModelError::Description("the part is not cut".into()))?;
        let training = &description.training;
        let piece = |model, weights: &Weights| {
            let mut network = Network::new(model, &Device::Cpu)?;
            network.load(weights)?;
            let optimiser = Optimiser::new(&training.optimiser, network.layout().parameter_count())?;
            Ok::<_, ModelError>(Piece { network, optimiser })
        };
        let own = kept.of(FRONT).and_then(|kept| {
            Some(Weights {
                parameters: kept.get(PARAMETERS)?.to_vec(),
                buffers: kept.get(BUFFERS).unwrap_or_default().to_vec(),
            })
        });
        let start = own.map_or_else(|| broadcast.weights.clone(), Arc::new);
        let (front, head) = start.cut(&pieces.front.layout()?)?;
        Ok(Self {
            front: piece(&pieces.front, &front)?,
            head: pieces.head.as_ref().map(|model| piece(model, &head)).transpose()?,
            description: description.clone(),
            pieces,
            client: client.clone(),
            round,
            examples: examples.indices.len() as u64,
            broadcast: broadcast.weights.clone(),
            places: part.coordinates.clone(),
            layout: part.layout.clone(),
            memory: kept.without(FRONT).slice(&part.coordinates),
            kept: kept.without(FRONT),
            batches: Batches::new(training, examples.indices),
            sizes: None,
            taken: 0,
            batch: Vec::new(),
            gathered: Batch::default(),
            random: description.seed.client_stream(Purpose::Training, round, client),
            leader: None,
            probe: None,
            steps: 0,
            came_to: (0.0, 0),
            seen: 0,
            loss: 0.0,
        })
    }

    /// Whether what a client keeps has all of a front with these places, or nothing of one.
    pub(crate) fn is_whole(kept: &Memory, front: &SubModel) -> bool {
        kept.of(FRONT).is_none_or(|kept| {
            let length = |name| kept.get(name).unwrap_or_default().len();
            (length(PARAMETERS), length(BUFFERS)) == (front.parameters.count(), front.buffers.count())
        })
    }

    /// Whether there is a front among what a client keeps, so that it needs none to be broadcast.
    pub fn is_kept(kept: &Memory) -> bool {
        kept.of(FRONT).is_some_and(|kept| kept.get(PARAMETERS).is_some())
    }

    /// The round.
    pub fn round(&self) -> u32 {
        self.round
    }

    fn split(&self) -> Result<&Split, LocalError> {
        let split = self.description.split.as_ref();
        Ok(split.ok_or_else(|| ModelError::Description("the run has no [split]".into()))?)
    }

    /// How it makes itself known, at the beginning or on a new connection.
    pub fn enter(&self) -> Said {
        let (round, examples) = (self.round, self.examples);
        Said::Message(FromClient::Enter { round, examples }, Vec::new())
    }

    /// Takes in what the server says.
    ///
    /// # Errors
    /// When the model cannot be run on the examples, or what the server says is not of this round's steps.
    pub fn hear(&mut self, examples: Examples<'_>, message: FromServer, payload: &[u8]) -> Result<Said, LocalError> {
        match message {
            FromServer::Go { round, step, sizes } if round == self.round => {
                if let Some(sizes) = sizes.filter(|_| self.taken == 0) {
                    self.batches.follow(sizes.len());
                    self.sizes = Some(sizes);
                }
                // One that has begun goes on with its own.
                if !payload.is_empty() && self.taken == 0 {
                    self.take_over(payload)?;
                }
                self.resume(step, examples)
            }
            FromServer::Skipped { round, step } if round == self.round => self.resume(step, examples),
            FromServer::Answer { round, step, exchange } if (round, step) == (self.round, self.taken) => match exchange
            {
                Exchange::Smashed if self.head.is_some() => self.run_head(examples, payload),
                Exchange::Smashed | Exchange::Head => self.differentiate(payload, examples),
                Exchange::Sketch => self.lead(payload),
                Exchange::Gradient => self.follow(payload, examples),
                Exchange::Probe => self.regularise(payload, examples),
            },
            // Of a step that has gone on without this client, or of another round.
            _ => Ok(Said::Nothing),
        }
    }

    /// Goes on with the front that another client has left.
    fn take_over(&mut self, payload: &[u8]) -> Result<(), LocalError> {
        let head = self.head.as_ref().map(|head| head.network.layout().clone());
        let layouts = [Some(self.front.network.layout().clone()), head];
        let layouts = layouts.iter().flatten();
        let counts = layouts.map(|layout| (layout.parameter_count(), layout.buffer_count()));
        let (parameters, buffers) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        let mut values = payload::read_f32(payload, parameters + buffers)?;
        let buffers = values.split_off(parameters);
        let weights = Weights {
            parameters: values,
            buffers,
        };
        let (front, head) = weights.cut(&self.pieces.front.layout()?)?;
        self.front.network.load(&front)?;
        if let Some(piece) = &mut self.head {
            piece.network.load(&head)?;
        }
        Ok(())
    }

    /// Goes on with a step. What the client has already sent for it may not have come through.
    fn resume(&mut self, step: u32, examples: Examples<'_>) -> Result<Said, LocalError> {
        self.abandon_probe();
        match step == self.taken && !self.batch.is_empty() {
            true => self.smash(Exchange::Smashed, examples),
            false => self.begin(step, examples),
        }
    }

    /// Begins a step, or the first after it to which this client contributes. A batch belongs to its step: those of steps
    /// that went on without the client are passed over.
    fn begin(&mut self, step: u32, examples: Examples<'_>) -> Result<Said, LocalError> {
        loop {
            let size = match &self.sizes {
                Some(sizes) => match sizes.get(self.taken as usize) {
                    Some(size) => Some(*size as usize),
                    None => return Ok(Said::Finished),
                },
                None => None,
            };
            let Some(batch) = self.batches.next(size, &mut self.random) else {
                return Ok(Said::Finished);
            };
            self.taken += 1;
            if self.taken >= step && !batch.is_empty() {
                self.batch.clear();
                self.batch.extend_from_slice(batch);
                return self.smash(Exchange::Smashed, examples);
            }
        }
    }

    /// Runs the batch through the front.
    fn smash(&mut self, exchange: Exchange, examples: Examples<'_>) -> Result<Said, LocalError> {
        let draws = self.draws();
        let inputs = self.gathered.gather(examples.dataset, &self.batch)?;
        let smashed = self.front.network.forward(&inputs, &mut Mode::Train(&draws))?;
        let split = self.split()?;
        let mut payload = Vec::new();
        if self.head.is_none() && exchange == Exchange::Smashed {
            targets::write(self.gathered.targets(examples.dataset), &mut payload);
        }
        let row = self.front.network.output_shape().iter().product();
        split.smashed.write(&payload::values(&smashed)?, row, &mut payload);
        Ok(self.send(exchange, payload))
    }

    /// What dropout draws from in this step.
    fn draws(&self) -> ChaCha8Rng {
        let step = u64::from(self.taken);
        self.description
            .seed
            .step_stream(Purpose::Dropout, self.round, &self.client, step)
    }

    fn send(&self, exchange: Exchange, payload: Vec<u8>) -> Said {
        let message = FromClient::Send {
            round: self.round,
            step: self.taken,
            exchange,
            examples: self.batch.len() as u32,
        };
        Said::Message(message, payload)
    }

    /// Runs the head, and gives the gradient at its input. It moves when the front does.
    fn run_head(&mut self, examples: Examples<'_>, payload: &[u8]) -> Result<Said, LocalError> {
        let draws = self.draws();
        let (encoding, back) = (self.split()?.smashed, self.split()?.gradients);
        let Some(Piece { network, .. }) = &mut self.head else {
            return Ok(Said::Nothing);
        };
        let shape = network.input_shape().to_vec();
        let input = payload::read_rows(encoding, payload, self.batch.len(), &shape)?;
        let outputs = network.forward(&input, &mut Mode::Train(&draws))?;
        let training = &self.description.training;
        let loss = training
            .loss
            .evaluate(&outputs, self.gathered.targets(examples.dataset))?;
        network.zero_gradient();
        let below = network.backward_to_input(&loss.gradient)?;
        self.came_to = (loss.sum, loss.examples);
        let mut payload = Vec::new();
        back.write(&payload::values(&below)?, shape.iter().product(), &mut payload);
        Ok(self.send(Exchange::Head, payload))
    }

    /// The gradient of the front, from a cut gradient.
    fn backward(&mut self, payload: &[u8]) -> Result<(), LocalError> {
        let encoding = self.split()?.gradients;
        let network = &mut self.front.network;
        let cut_gradient = payload::read_rows(encoding, payload, self.batch.len(), network.output_shape())?;
        network.zero_gradient();
        Ok(network.backward(&cut_gradient)?)
    }

    /// Moves front and head down their gradients, and goes on to the next step.
    fn step(&mut self, examples: Examples<'_>) -> Result<Said, LocalError> {
        for Piece { network, optimiser } in std::iter::once(&mut self.front).chain(&mut self.head) {
            network.update(|parameters, gradient| {
                // What is infinite would spoil the piece for good.
                if gradient.iter().all(|value| value.is_finite()) {
                    optimiser.step(parameters, gradient);
                }
            });
        }
        let (loss, seen) = std::mem::take(&mut self.came_to);
        self.loss += loss;
        self.seen += seen;
        self.steps += 1;
        self.begin(self.taken + 1, examples)
    }

    /// The end of the round: the update, and what the client is to keep.
    ///
    /// # Errors
    /// When its values have grown beyond all bounds: they are not to be kept.
    pub fn finish(mut self) -> Result<(SealedUpdate, Memory), LocalError> {
        let none = Weights::default();
        let front = self.front.network.weights();
        let head = self.head.map_or(none, |head| head.network.weights());
        let weights = Weights::join(&front, &head);
        if !weights.is_finite() {
            return Err(LocalError::Diverged);
        }
        let description = &self.description;
        let mut kept = self.kept;
        if description.keeps_fronts() {
            let own = kept.of_mut(FRONT);
            for (name, values) in [(PARAMETERS, &weights.parameters), (BUFFERS, &weights.buffers)] {
                if !values.is_empty() {
                    own.insert(name, Shape::Free(values.len()), values.clone());
                }
            }
        }
        let trained = Trained {
            weights,
            examples: self.examples,
            steps: self.steps,
            loss: (self.seen > 0).then(|| self.loss / self.seen as f64),
        };
        if !description.fronts_travel(self.round) {
            let report = TrainingReport::of(&trained, Metrics::default());
            let sections = Vec::new();
            return Ok((SealedUpdate { report, sections }, kept));
        }
        let (filters, memory) = (&description.filters, &mut self.memory);
        let occasion = description.occasion(self.round, Some(&self.client), &self.layout);
        let update = Update::from(trained);
        let sealed = SealedUpdate::seal(update, filters, &self.broadcast, memory, &occasion, Metrics::default());
        kept.merge(self.memory, &self.places);
        Ok((sealed, kept))
    }
}
