//! The server's half of split learning in one round: one back for all clients, or one for each.

use std::{collections::BTreeMap, sync::Arc};

use candle_core::Tensor;
use selvedge_models::{ModelError, Pieces, Weights};
use selvedge_protocols::{
    ClientName, Description, Purpose, Rejection,
    description::Split,
    split::{Arrival, Back, leader::Leader, targets},
};

/// One client's part of a step, as it has come.
pub(in crate::engine) struct Contribution {
    pub(in crate::engine) client: ClientName,
    /// Which of the round's clients that is.
    pub(in crate::engine) at: usize,
    pub(in crate::engine) pieces: Arc<Pieces>,
    pub(in crate::engine) smashed: Tensor,
    /// Where labels are sent, these.
    pub(in crate::engine) targets: Option<targets::Received>,
}

impl Contribution {
    pub(in crate::engine) fn rows(&self) -> usize {
        self.smashed.dims().first().copied().unwrap_or(0)
    }

    fn arrival(&self) -> Arrival {
        Arrival {
            front: self.pieces.front.layers.len() as u32,
            smashed: self.smashed.clone(),
        }
    }
}

/// What a client's examples came to in a step.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct StepLoss {
    pub(in crate::engine) sum: f64,
    pub(in crate::engine) examples: usize,
}

/// Why nothing comes of a step.
pub(in crate::engine) struct Lost(pub(in crate::engine) Rejection);

impl<E: Into<ModelError>> From<E> for Lost {
    /// What was checked runs: this is a defect, and says what failed.
    fn from(error: E) -> Self {
        Self(Rejection::ClientFailed(error.into().to_string()))
    }
}

/// The round's backs.
pub(in crate::engine) struct Backs {
    description: Arc<Description>,
    round: u32,
    kind: Kind,
}

enum Kind {
    Shared(Box<Back>),
    Each(BTreeMap<usize, Back>),
}

impl Backs {
    /// One back for all. `weights` are those of the server's part for the first cut.
    pub(in crate::engine) fn shared(
        description: &Arc<Description>,
        round: u32,
        split: &Split,
        weights: &Weights,
        leader: Leader,
    ) -> Result<Self, ModelError> {
        let optimiser = &description.training.optimiser;
        let mut back = Back::new(&description.model, &split.fronts(), split.head(), optimiser)?;
        back.load(weights)?;
        back.leader = leader;
        Ok(Self {
            description: description.clone(),
            round,
            kind: Kind::Shared(Box::new(back)),
        })
    }

    /// A back for each, to be [added](Self::add).
    pub(in crate::engine) fn for_each(description: &Arc<Description>, round: u32) -> Self {
        Self {
            description: description.clone(),
            round,
            kind: Kind::Each(BTreeMap::new()),
        }
    }

    /// Adds a client's own back.
    pub(in crate::engine) fn add(&mut self, at: usize, pieces: &Pieces, weights: &Weights) -> Result<(), ModelError> {
        if let Kind::Each(backs) = &mut self.kind {
            let mut back = Back::of(
                &pieces.back,
                pieces.front.layers.len() as u32,
                &self.description.training.optimiser,
            )?;
            back.load(weights)?;
            backs.insert(at, back);
        }
        Ok(())
    }

    /// The values of a client's own back, if it has one.
    pub(in crate::engine) fn of(&self, at: usize) -> Option<Weights> {
        match &self.kind {
            Kind::Shared(_) => None,
            Kind::Each(backs) => Some(backs.get(&at)?.weights()),
        }
    }

    /// Of the back that all share, the values between two cuts, and after how many layers they come.
    pub(in crate::engine) fn segments(&self) -> Vec<(u32, Weights)> {
        match &self.kind {
            Kind::Shared(back) => back.segments().collect(),
            Kind::Each(_) => Vec::new(),
        }
    }

    /// The leader of the back's own gradients.
    pub(in crate::engine) fn leader(&self) -> Leader {
        match &self.kind {
            Kind::Shared(back) => back.leader.clone(),
            Kind::Each(_) => Leader::default(),
        }
    }

    /// Runs the contributions forward: the outputs of each.
    pub(in crate::engine) fn forward(&mut self, step: u32, batch: &[Contribution]) -> Result<Vec<Tensor>, ModelError> {
        let Some(first) = batch.first() else {
            return Ok(Vec::new());
        };
        let (seed, round) = (self.description.seed, self.round);
        let draws = |client: &ClientName| seed.step_stream(Purpose::Dropout, round, client, u64::from(step));
        match &mut self.kind {
            // Of one client, what it would draw itself.
            Kind::Shared(back) => {
                let arrivals = batch.iter().map(Contribution::arrival).collect();
                back.forward(arrivals, step, draws(&first.client))
            }
            Kind::Each(backs) => {
                let mut outputs = Vec::with_capacity(batch.len());
                for contribution in batch {
                    let back = of(backs, contribution.at)?;
                    outputs.extend(back.forward(vec![contribution.arrival()], step, draws(&contribution.client))?);
                }
                Ok(outputs)
            }
        }
    }

    /// Takes back what the last forward has made of the running statistics of the back that all share.
    pub(in crate::engine) fn take_back(&mut self) -> Result<(), ModelError> {
        match &mut self.kind {
            Kind::Shared(back) => back.take_back(),
            Kind::Each(_) => Ok(()),
        }
    }

    /// The gradients of the clients' own mean losses at these outputs, and the losses, from the labels they have sent.
    pub(in crate::engine) fn losses(
        &self,
        batch: &[Contribution],
        outputs: &[Tensor],
    ) -> Result<(Vec<Option<Tensor>>, Vec<StepLoss>), ModelError> {
        let loss = self.description.training.loss;
        let (mut gradients, mut losses) = (Vec::new(), Vec::new());
        for (contribution, outputs) in batch.iter().zip(outputs) {
            let targets = contribution.targets.as_ref();
            let targets = targets.ok_or_else(|| ModelError::Targets("none were sent".into()))?;
            let value = loss.evaluate(outputs, targets.as_targets())?;
            losses.push(StepLoss {
                sum: value.sum,
                examples: value.examples,
            });
            gradients.push(Some(value.gradient));
        }
        Ok((gradients, losses))
    }

    /// From the gradients at the outputs to the cut gradients, after which the backs move. Where a probe follows, they
    /// move by [`catch_up`](Self::catch_up).
    ///
    /// Nothing moves, and it is an error, if a gradient has become infinite or none.
    pub(in crate::engine) fn backward(
        &mut self,
        batch: &[Contribution],
        gradients: &[Option<Tensor>],
        is_probed: bool,
    ) -> Result<Vec<Tensor>, Lost> {
        let method = self.description.split.as_ref().map(|split| &*split.method);
        match &mut self.kind {
            Kind::Shared(back) => {
                let returned = match method {
                    Some(method) => method.backward(back, gradients)?,
                    None => back.backward(gradients)?,
                };
                if !back.is_finite() {
                    back.take_back()?;
                    return Err(Lost(Rejection::NotFinite("the gradient of the back".into())));
                }
                match is_probed {
                    true => back.hold(),
                    false => back.update(),
                }
                Ok(returned)
            }
            Kind::Each(backs) => {
                let mut returned = Vec::with_capacity(batch.len());
                for (contribution, gradient) in batch.iter().zip(gradients) {
                    let back = of(backs, contribution.at)?;
                    if gradient.is_none() {
                        returned.push(contribution.smashed.zeros_like()?);
                        continue;
                    }
                    returned.extend(back.backward(std::slice::from_ref(gradient))?);
                    // It is nobody else's.
                    if back.is_finite() {
                        back.update();
                    }
                }
                Ok(returned)
            }
        }
    }

    /// The cut gradients of a probe: nothing moves.
    pub(in crate::engine) fn probe(&mut self, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        match &mut self.kind {
            Kind::Shared(back) => back.backward(gradients),
            Kind::Each(_) => Ok(Vec::new()),
        }
    }

    /// Moves the back by the gradient that was held for a probe, if one was.
    pub(in crate::engine) fn catch_up(&mut self) {
        if let Kind::Shared(back) = &mut self.kind {
            back.update_held();
        }
    }
}

fn of(backs: &mut BTreeMap<usize, Back>, at: usize) -> Result<&mut Back, ModelError> {
    let missing = || ModelError::Description(format!("client {at} of the round has no back"));
    backs.get_mut(&at).ok_or_else(missing)
}
