//! Where every value of a model lies in its flat vectors.

use crate::width::{Axis, Group};

/// The names, shapes and places of a model's values, in one fixed order: layer by layer as the model lists them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Layout {
    /// What is trained.
    pub parameters: Vec<Entry>,
    /// What is kept but not trained: running statistics.
    pub buffers: Vec<Entry>,
    /// The width groups; [`WidthGroup`](crate::WidthGroup) indexes them.
    pub groups: Vec<Group>,
}

/// One tensor of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its layer's place and its own name: `3.weight`, `4.shortcut.0.bias`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Where its first value lies in the flat vector of parameters (or of buffers).
    pub offset: usize,
    /// How each of its axes can be thinned.
    pub axes: Vec<Axis>,
    /// How its values are drawn at the start.
    pub initial: Initial,
}

/// How a tensor's values are drawn at the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Initial {
    /// All the same.
    Constant(f32),
    /// Uniform from `low` to `high`.
    Uniform {
        /// The smallest value.
        low: f32,
        /// The largest value.
        high: f32,
    },
    /// Normal.
    Normal {
        /// Its mean.
        mean: f32,
        /// Its standard deviation.
        deviation: f32,
    },
}

impl Initial {
    /// PyTorch's usual start for weights and biases: uniform within one over the root of the inputs of a unit
    /// (Kaiming-uniform with a = sqrt 5).
    pub fn uniform_by_inputs(inputs: usize) -> Self {
        let bound = 1.0 / (inputs as f32).sqrt();
        Self::Uniform {
            low: -bound,
            high: bound,
        }
    }
}

impl Entry {
    /// Values in the tensor.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its place in the flat vector.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.size()
    }

    /// Whether it belongs to the layer at a place: `4`, or `4.0` inside a residual layer.
    pub fn is_of_layer(&self, place: &str) -> bool {
        let rest = self.name.strip_prefix(place);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

impl Layout {
    /// Where the values of some of the tensors lie once the others are left out.
    #[must_use]
    pub fn only(&self, is_kept: impl Fn(&Entry) -> bool) -> Self {
        let only = |tensors: &[Entry]| {
            let mut offset = 0;
            let mut moved = |tensor: &Entry| {
                let moved = Entry {
                    offset,
                    ..tensor.clone()
                };
                offset += moved.size();
                moved
            };
            tensors
                .iter()
                .filter(|tensor| is_kept(tensor))
                .map(&mut moved)
                .collect()
        };
        Self {
            parameters: only(&self.parameters),
            buffers: only(&self.buffers),
            groups: self.groups.clone(),
        }
    }

    /// Values in the flat vector of parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |entry| entry.range().end)
    }

    /// For each unit of each width group, the sum of the squares of the parameters that belong to it.
    pub fn squares_of_units(&self, parameters: &[f32]) -> Vec<Vec<f64>> {
        let mut sums: Vec<Vec<f64>> = self.groups.iter().map(|group| vec![0.0; group.units]).collect();
        for entry in &self.parameters {
            let values = &parameters[entry.range()];
            let mut stride = entry.size();
            for (size, axis) in entry.shape.iter().zip(&entry.axes) {
                stride /= size;
                let Axis::Group { group, block } = axis else { continue };
                let sums = &mut sums[group.0];
                for (at, values) in values.chunks_exact(stride).enumerate() {
                    let unit = at % size / block % sums.len();
                    sums[unit] += values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
                }
            }
        }
        sums
    }

    /// Values in the flat vector of buffers.
    pub fn buffer_count(&self) -> usize {
        self.buffers.last().map_or(0, |entry| entry.range().end)
    }
}
