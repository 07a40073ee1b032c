//! What a layer is handed for a forward, a backward, or a backward with a step.
//!
//! A pass covers a batch: slices hold its examples one after the other.

use std::ops::Range;

use crate::{definition::Recording, mode::Mode};

/// What a forward is handed.
pub struct Forward<'a> {
    /// The layer's values.
    pub values: LayerValues<'a>,
    /// What the layer is given.
    pub input: &'a [f32],
    /// Where what it gives is written, all of it.
    pub output: &'a mut [f32],
    /// What the forward is for.
    pub mode: &'a Mode<'a>,
    pub(crate) recording: &'a mut Recording,
}

/// What a backward is handed.
pub struct Backward<'a> {
    /// Where the gradient of the layer's parameters goes.
    pub sink: Sink<'a>,
    /// The input of the last forward.
    pub input: &'a [f32],
    /// The output of the last forward.
    pub output: &'a [f32],
    /// The gradient at the output.
    pub output_gradient: &'a [f32],
    /// Where the gradient at the input is written, all of it; `None` where it is not wanted.
    pub input_gradient: Option<&'a mut [f32]>,
    pub(crate) recording: &'a mut Recording,
}

/// What a backward with a step of plain gradient descent is handed.
pub struct Descend<'a> {
    /// What the step moves.
    pub descent: Descent<'a>,
    /// The input of the last forward.
    pub input: &'a [f32],
    /// The output of the last forward.
    pub output: &'a [f32],
    /// The gradient at the output.
    pub output_gradient: &'a [f32],
    /// Where the gradient at the input is written, all of it; `None` where it is not wanted.
    pub input_gradient: Option<&'a mut [f32]>,
    pub(crate) recording: &'a mut Recording,
}

/// A layer's values: its parts of the model's flat vectors.
pub struct LayerValues<'a> {
    /// What is trained.
    pub parameters: &'a [f32],
    /// What is kept but not trained.
    pub buffers: &'a mut [f32],
}

impl LayerValues<'_> {
    /// Those of one of several layers.
    pub(crate) fn part(&mut self, parameters: Range<usize>, buffers: Range<usize>) -> LayerValues<'_> {
        LayerValues {
            parameters: &self.parameters[parameters],
            buffers: &mut self.buffers[buffers],
        }
    }
}

/// Where the gradient of a layer's parameters goes.
pub struct Sink<'a> {
    /// The parameters themselves.
    pub parameters: &'a [f32],
    /// The gradient so far.
    pub gradient: &'a mut [f32],
    /// Whether there is a gradient so far; where it is yet to begin, `gradient` holds anything.
    pub is_begun: bool,
}

impl<'a> Sink<'a> {
    /// That of one of several layers.
    pub(crate) fn part(&mut self, parameters: Range<usize>) -> Sink<'_> {
        Sink {
            parameters: &self.parameters[parameters.clone()],
            gradient: &mut self.gradient[parameters],
            is_begun: self.is_begun,
        }
    }

    /// The gradient, to add to: where it is yet to begin, it is 0.
    pub fn begun(self) -> &'a mut [f32] {
        if !self.is_begun {
            self.gradient.fill(0.0);
        }
        self.gradient
    }

    /// The sinks of the first `parameters` parameters and of the others.
    pub fn split_at(self, parameters: usize) -> (Sink<'a>, Sink<'a>) {
        let is_begun = self.is_begun;
        let (one, other) = self.parameters.split_at(parameters);
        let (one_gradient, other_gradient) = self.gradient.split_at_mut(parameters);
        let one = Sink {
            parameters: one,
            gradient: one_gradient,
            is_begun,
        };
        (
            one,
            Sink {
                parameters: other,
                gradient: other_gradient,
                is_begun,
            },
        )
    }
}

/// What a step of plain gradient descent moves, and by how much.
pub struct Descent<'a> {
    /// What is moved.
    pub parameters: &'a mut [f32],
    /// Scratch as long as the parameters, for a gradient that is written out.
    pub gradient: &'a mut [f32],
    /// The step size.
    pub rate: f32,
}

impl Descent<'_> {
    /// That of one of several layers.
    pub(crate) fn part(&mut self, parameters: Range<usize>) -> Descent<'_> {
        Descent {
            parameters: &mut self.parameters[parameters.clone()],
            gradient: &mut self.gradient[parameters],
            rate: self.rate,
        }
    }
}
