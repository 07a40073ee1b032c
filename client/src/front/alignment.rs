//! How a client turns its front's gradient: it says in few numbers where that points, leads if it is told to, and follows the
//! leaders.

use selvedge_protocols::{
    LocalError, Purpose,
    split::{Alignment, Exchange, leader::sketch},
};

use super::{Front, Said, payload};
use crate::Examples;

impl Front {
    /// The alignment of fronts, where it does anything.
    fn alignment(&self) -> Option<Alignment> {
        self.description.split.as_ref()?.front_alignment()
    }

    /// The gradient of the front, from a cut gradient. Where leaders are to be found, a sketch of it is sent.
    pub(super) fn differentiate(&mut self, payload: &[u8], examples: Examples<'_>) -> Result<Said, LocalError> {
        self.backward(payload)?;
        match self.alignment() {
            Some(alignment) if alignment.is_refreshed(self.taken) => {
                let random = self.description.seed.round_stream(Purpose::Sketches, self.round);
                let sketch = sketch(&self.gradient(), alignment.sketch, random);
                Ok(self.send(Exchange::Sketch, payload::bytes(&sketch)))
            }
            _ => self.turn(examples),
        }
    }

    /// A copy of the front's gradient.
    fn gradient(&mut self) -> Vec<f32> {
        let mut copy = Vec::new();
        self.front
            .network
            .update(|_, gradient| copy.extend_from_slice(gradient));
        copy
    }

    /// Sends the front's gradient, if this client leads.
    pub(super) fn lead(&mut self, answer: &[u8]) -> Result<Said, LocalError> {
        match answer.is_empty() {
            true => Ok(Said::Nothing),
            false => {
                let gradient = self.gradient();
                Ok(self.send(Exchange::Gradient, payload::bytes(&gradient)))
            }
        }
    }

    /// Takes over where the leaders go, if anywhere, and turns towards it.
    pub(super) fn follow(&mut self, answer: &[u8], examples: Examples<'_>) -> Result<Said, LocalError> {
        if !answer.is_empty() {
            self.leader = Some(payload::read_f32(answer, self.pieces.front_size().0)?);
        }
        self.turn(examples)
    }

    /// Turns the front's gradient towards the leader's, and makes the step; where that takes a probe, sends it.
    fn turn(&mut self, examples: Examples<'_>) -> Result<Said, LocalError> {
        let Some(alignment) = self.alignment() else {
            return self.step(examples);
        };
        if alignment.is_probed() {
            let gradient = self.gradient();
            let leader = self.leader.as_deref();
            let aside = leader.and_then(|leader| alignment.aside(&gradient, leader));
            // Without a leader, or where there is nothing to turn, the probe is of the same parameters.
            let (step, scale) = aside.unwrap_or_default();
            let before = self.front.network.parameters().to_vec();
            self.front.network.update(|parameters, _| {
                parameters
                    .iter_mut()
                    .zip(&step)
                    .for_each(|(parameter, step)| *parameter += step);
            });
            self.probe = Some((before, gradient, scale));
            return self.smash(Exchange::Probe, examples);
        }
        if let Some(leader) = &self.leader {
            self.front
                .network
                .update(|_, gradient| alignment.align(gradient, leader));
        }
        self.step(examples)
    }

    /// Adds what the probe has shown of the regulariser's gradient, and makes the step.
    pub(super) fn regularise(&mut self, payload: &[u8], examples: Examples<'_>) -> Result<Said, LocalError> {
        self.backward(payload)?;
        if let Some((before, original, scale)) = self.probe.take() {
            self.front.network.update(|parameters, gradient| {
                parameters.copy_from_slice(&before);
                for (gradient, original) in gradient.iter_mut().zip(&original) {
                    *gradient = original + scale * (*gradient - original);
                }
            });
        }
        self.step(examples)
    }

    /// Puts the parameters back where they were before a probe that nothing has come of.
    pub(super) fn abandon_probe(&mut self) {
        if let Some((before, ..)) = self.probe.take() {
            self.front
                .network
                .update(|parameters, _| parameters.copy_from_slice(&before));
        }
    }
}
