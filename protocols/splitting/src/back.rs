//! The server's part of a cut model, live.

use std::collections::BTreeSet;

use candle_core::{Device, Tensor};
use rand_chacha::ChaCha8Rng;
use selvedge_models::{
    Cut, Mode, ModelDescription, ModelError, Network, Optimiser, OptimiserDescription, Pieces, Weights, all_finite,
};

use crate::leader::Leader;

/// One client's part of a step, as it comes to the server.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// How many layers the client has at the front.
    pub front: u32,
    /// The smashed data, an example a row.
    pub smashed: Tensor,
}

impl Arrival {
    /// How many examples it is of.
    pub fn rows(&self) -> usize {
        self.smashed.dims().first().copied().unwrap_or(0)
    }
}

/// The server's part of a cut model, live. Clients' models can be cut at different places: the back begins at the first,
/// and each client's smashed data joins the others' where its own cut is.
///
/// Rows of all clients go through it as one batch, so that its memory grows with their examples, not with their number.
pub struct Back {
    /// What lies between two cuts, and after the last.
    segments: Vec<Segment>,
    /// The direction in which the gradients of its own parameters go, where those are aligned.
    pub leader: Leader,
    /// What is under way.
    batch: Vec<Arrival>,
    /// A gradient that is not yet applied.
    held: Option<Vec<f32>>,
    step: u32,
    draws: Option<ChaCha8Rng>,
}

struct Segment {
    /// How many layers lie before it.
    after: u32,
    network: Network,
    optimiser: Optimiser,
    /// Whether anything went through it in the last forward.
    is_used: bool,
    /// The running statistics before the last forward.
    buffers: Vec<f32>,
}

impl Segment {
    fn new(piece: &ModelDescription, after: u32, optimiser: &OptimiserDescription) -> Result<Self, ModelError> {
        let network = Network::new(piece, &Device::Cpu)?;
        let optimiser = Optimiser::new(optimiser, network.layout().parameter_count())?;
        Ok(Self {
            after,
            network,
            optimiser,
            is_used: false,
            buffers: Vec::new(),
        })
    }
}

impl Back {
    /// The back of a model that is cut after each of these numbers of layers, all values 0. `head` layers at the end are
    /// the clients'.
    ///
    /// # Errors
    /// When the model cannot be cut like this.
    pub fn new(
        model: &ModelDescription,
        fronts: &BTreeSet<u32>,
        head: u32,
        optimiser: &OptimiserDescription,
    ) -> Result<Self, ModelError> {
        let mut segments = Vec::new();
        let mut ends = fronts.iter().skip(1);
        for front in fronts {
            let mut piece = Pieces::of(model, Cut { front: *front, head })?.back;
            if let Some(end) = ends.next() {
                piece = piece.cut((end - front) as usize)?.0;
            }
            segments.push(Segment::new(&piece, *front, optimiser)?);
        }
        Ok(Self::made_of(segments))
    }

    /// The back that is this piece of a model, after so many layers, all values 0.
    ///
    /// # Errors
    /// When the piece is not in order.
    pub fn of(piece: &ModelDescription, after: u32, optimiser: &OptimiserDescription) -> Result<Self, ModelError> {
        Ok(Self::made_of(vec![Segment::new(piece, after, optimiser)?]))
    }

    fn made_of(segments: Vec<Segment>) -> Self {
        Self {
            segments,
            leader: Leader::default(),
            batch: Vec::new(),
            held: None,
            step: 0,
            draws: None,
        }
    }

    /// Takes over these values, in the order of the layers.
    ///
    /// # Errors
    /// When there are not as many as it has.
    pub fn load(&mut self, weights: &Weights) -> Result<(), ModelError> {
        let mut rest = weights.clone();
        for Segment { network, .. } in &mut self.segments {
            let (own, others) = rest.cut(&network.layout().clone())?;
            network.load(&own)?;
            rest = others;
        }
        Ok(())
    }

    /// A copy of its values, in the order of the layers.
    pub fn weights(&self) -> Weights {
        let segments = self.segments();
        segments.fold(Weights::default(), |before, (_, segment)| {
            Weights::join(&before, &segment)
        })
    }

    /// Copies of the values between two cuts and after the last, each with the number of layers before it.
    pub fn segments(&self) -> impl Iterator<Item = (u32, Weights)> {
        let segments = self.segments.iter();
        segments.map(|segment| (segment.after, segment.network.weights()))
    }

    /// What the last forward was of, a client each.
    pub fn batch(&self) -> &[Arrival] {
        &self.batch
    }

    /// The step of the last forward.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Runs the clients' smashed data forward, all in one pass; gives the outputs of each. Dropout draws from `draws`.
    ///
    /// # Errors
    /// When there is nothing, or it is of other shapes.
    pub fn forward(&mut self, batch: Vec<Arrival>, step: u32, draws: ChaCha8Rng) -> Result<Vec<Tensor>, ModelError> {
        let mut flowing: Vec<Option<Tensor>> = vec![None; batch.len()];
        for segment in &mut self.segments {
            segment.buffers.clear();
            segment.buffers.extend_from_slice(segment.network.buffers());
            for (flowing, arrival) in flowing.iter_mut().zip(&batch) {
                if arrival.front == segment.after {
                    *flowing = Some(arrival.smashed.clone());
                }
            }
            // Always in the order of the clients, wherever their models are cut.
            let parts: Vec<&Tensor> = flowing.iter().flatten().collect();
            segment.is_used = !parts.is_empty();
            if segment.is_used {
                let outputs = segment
                    .network
                    .forward(&concatenated(&parts)?, &mut Mode::Train(&draws))?;
                split_rows(&outputs, flowing.iter_mut().zip(&batch))?;
            }
        }
        (self.batch, self.step, self.draws) = (batch, step, Some(draws));
        flowing
            .into_iter()
            .map(|outputs| outputs.ok_or(ModelError::EmptyBatch))
            .collect()
    }

    /// Runs other smashed data forward in the same step, with the same draws: what the next backward is of.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward), and when there was none.
    pub fn forward_again(&mut self, batch: Vec<Arrival>) -> Result<Vec<Tensor>, ModelError> {
        let draws = self.draws.clone().ok_or(ModelError::NothingToDifferentiate)?;
        self.forward(batch, self.step, draws)
    }

    /// Takes back what the last forward has made of running statistics.
    ///
    /// # Errors
    /// When there was none.
    pub fn take_back(&mut self) -> Result<(), ModelError> {
        for Segment { network, buffers, .. } in &mut self.segments {
            network.set_buffers(buffers)?;
        }
        Ok(())
    }

    /// The vector-Jacobian product of the last forward with the gradients of the clients' own mean losses at the outputs,
    /// each weighted with the client's share of the examples: leaves the gradient of the back, and gives each client its
    /// cut gradient, of its own mean loss again. One without a gradient counts as not there.
    ///
    /// # Errors
    /// When there was no forward, or the gradients are of other shapes.
    pub fn backward(&mut self, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        let shares = self.shares(gradients);
        self.backward_weighted(gradients, &shares)
    }

    /// ρ: of those with a gradient, the shares of the examples.
    pub fn shares(&self, gradients: &[Option<Tensor>]) -> Vec<f64> {
        let present =
            |(arrival, gradient): (&Arrival, &Option<Tensor>)| gradient.as_ref().map_or(0, |_| arrival.rows());
        let counts: Vec<usize> = self.batch.iter().zip(gradients).map(present).collect();
        let all: usize = counts.iter().sum();
        counts
            .into_iter()
            .map(|count| count as f64 / all.max(1) as f64)
            .collect()
    }

    /// [`backward`](Self::backward) with weights of one's own in place of the shares.
    ///
    /// # Errors
    /// As for [`backward`](Self::backward).
    pub fn backward_weighted(
        &mut self,
        gradients: &[Option<Tensor>],
        weights: &[f64],
    ) -> Result<Vec<Tensor>, ModelError> {
        let outputs = self.segments.last().map_or(&[][..], |last| last.network.output_shape());
        let mut flowing: Vec<Option<Tensor>> = Vec::with_capacity(self.batch.len());
        for ((arrival, gradient), weight) in self.batch.iter().zip(gradients).zip(weights) {
            flowing.push(Some(match gradient {
                Some(gradient) => scaled(gradient, *weight)?,
                None => {
                    let shape = [&[arrival.rows()], outputs].concat();
                    Tensor::zeros(shape, candle_core::DType::F32, &Device::Cpu)?
                }
            }));
        }
        let mut returned: Vec<Option<Tensor>> = vec![None; self.batch.len()];
        for segment in self.segments.iter_mut().rev() {
            segment.network.zero_gradient();
            if !segment.is_used {
                continue;
            }
            let parts: Vec<&Tensor> = flowing.iter().flatten().collect();
            let below = segment.network.backward_to_input(&concatenated(&parts)?)?;
            split_rows(&below, flowing.iter_mut().zip(&self.batch))?;
            let ends = |(_, arrival): &(usize, &Arrival)| arrival.front == segment.after;
            for (at, _) in self.batch.iter().enumerate().filter(ends) {
                if let Some(gradient) = flowing[at].take() {
                    let weight = weights[at];
                    returned[at] = Some(scaled(&gradient, if weight > 0.0 { 1.0 / weight } else { 0.0 })?);
                }
            }
        }
        returned
            .into_iter()
            .map(|gradient| gradient.ok_or(ModelError::EmptyBatch))
            .collect()
    }

    /// Puts this in the place of the gradient that the last backward has left: as many values as [`gradient`](Self::gradient)
    /// gives.
    ///
    /// # Errors
    /// When there are not as many.
    pub fn set_gradient(&mut self, values: &[f32]) -> Result<(), ModelError> {
        let networks = self.segments.iter().map(|segment| &segment.network);
        let expected = networks.map(|network| network.layout().parameter_count()).sum();
        let (what, given) = ("values of the gradient", values.len());
        if given != expected {
            return Err(ModelError::Weights { what, expected, given });
        }
        let mut rest = values;
        for Segment { network, .. } in &mut self.segments {
            network.update(|_, gradient| {
                let own;
                (own, rest) = rest.split_at(gradient.len());
                gradient.copy_from_slice(own);
            });
        }
        Ok(())
    }

    /// Puts the gradient that the last backward has left aside, for [`update_held`](Self::update_held): meanwhile the back
    /// can be differentiated as it is.
    pub fn hold(&mut self) {
        self.held = Some(self.gradient());
    }

    /// [`update`](Self::update) by the gradient that was put aside, if one was.
    pub fn update_held(&mut self) {
        if let Some(gradient) = self.held.take() {
            // It is as long as it was.
            if self.set_gradient(&gradient).is_ok() {
                self.update();
            }
        }
    }

    /// Whether the gradient that the last backward has left has only numbers.
    pub fn is_finite(&mut self) -> bool {
        let finite = |gradient: &[f32]| all_finite(gradient);
        self.segments
            .iter_mut()
            .filter(|segment| segment.is_used)
            .all(|segment| {
                let mut is_finite = true;
                segment.network.update(|_, gradient| is_finite = finite(gradient));
                is_finite
            })
    }

    /// A copy of the gradient that the last backward has left, in the order of the layers.
    pub fn gradient(&mut self) -> Vec<f32> {
        let mut all = Vec::new();
        for segment in &mut self.segments {
            segment.network.update(|_, gradient| all.extend_from_slice(gradient));
        }
        all
    }

    /// Moves the back down the gradient that the last backward has left. A part that no smashed data went through stays as
    /// it is.
    pub fn update(&mut self) {
        for Segment {
            network,
            optimiser,
            is_used,
            ..
        } in &mut self.segments
        {
            if *is_used {
                network.update(|parameters, gradient| optimiser.step(parameters, gradient));
            }
        }
    }
}

/// Gives each client that is there its rows of what the others' rows are in too.
fn split_rows<'a>(
    all: &Tensor,
    clients: impl Iterator<Item = (&'a mut Option<Tensor>, &'a Arrival)>,
) -> Result<(), ModelError> {
    let mut start = 0;
    for (part, arrival) in clients.filter(|(part, _)| part.is_some()) {
        *part = Some(all.narrow(0, start, arrival.rows())?);
        start += arrival.rows();
    }
    Ok(())
}

fn scaled(tensor: &Tensor, factor: f64) -> Result<Tensor, ModelError> {
    match factor == 1.0 {
        true => Ok(tensor.clone()),
        false => Ok((tensor * factor)?),
    }
}

fn concatenated(parts: &[&Tensor]) -> Result<Tensor, ModelError> {
    match parts {
        [one] => Ok((*one).clone()),
        parts => Ok(Tensor::cat(parts, 0)?),
    }
}
