//! Which values of a model a sub-model holds.

use std::ops::Range;

use crate::{
    error::ModelError,
    layout::{Entry, Layout},
    weights::Weights,
    width::Axis,
};

/// Some units of each width group, and with them some of a model's values: those whose every axis is at a kept unit or
/// is fixed. What it holds is, in order, what the [thinned](crate::ModelDescription::thinned) model holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubModel {
    /// The kept units of each width group, ascending.
    pub units: Vec<Vec<u32>>,
    /// Where the kept parameters lie.
    pub parameters: Coordinates,
    /// Where the kept buffers lie.
    pub buffers: Coordinates,
}

/// Some places of a flat vector, ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coordinates {
    ranges: Vec<Range<usize>>,
    count: usize,
    of: usize,
}

impl SubModel {
    /// The sub-model of a model of this layout that keeps these units of each width group.
    ///
    /// # Errors
    /// When the units are not as many lists as there are groups, each of them ascending and of units that there are.
    pub fn new(layout: &Layout, units: Vec<Vec<u32>>) -> Result<Self, ModelError> {
        let wrong = |text: String| Err(ModelError::Thinning(text));
        if units.len() != layout.groups.len() {
            let (has, given) = (layout.groups.len(), units.len());
            return wrong(format!("units of {given} width groups are given, but it has {has}"));
        }
        for (group, kept) in layout.groups.iter().zip(&units) {
            let ascend = kept.is_sorted_by(|one, next| one < next);
            let known = kept.last().is_some_and(|last| (*last as usize) < group.units);
            if !(ascend && known) {
                let place = &group.place;
                return wrong(format!(
                    "the units to keep of layer {place} are none, repeated or unknown"
                ));
            }
        }
        let coordinates = |entries: &[Entry], of| {
            let mut coordinates = Coordinates {
                ranges: Vec::new(),
                count: 0,
                of,
            };
            for entry in entries {
                let axes = entry.shape.iter().zip(&entry.axes);
                let axes: Vec<_> = axes
                    .map(|(size, axis)| Kept::of(*size, *axis, layout, &units))
                    .collect();
                coordinates.add(&axes, entry.offset);
            }
            coordinates
        };
        Ok(Self {
            parameters: coordinates(&layout.parameters, layout.parameter_count()),
            buffers: coordinates(&layout.buffers, layout.buffer_count()),
            units,
        })
    }

    /// All of a model.
    pub fn whole(layout: &Layout) -> Self {
        let units = layout.groups.iter().map(|group| (0..group.units as u32).collect());
        Self {
            units: units.collect(),
            parameters: Coordinates::all(layout.parameter_count()),
            buffers: Coordinates::all(layout.buffer_count()),
        }
    }

    /// Whether nothing is left out.
    pub fn is_whole(&self) -> bool {
        self.parameters.is_all() && self.buffers.is_all()
    }

    /// The kept values of a whole model's weights.
    pub fn extract(&self, whole: &Weights) -> Weights {
        Weights {
            parameters: self.parameters.extract(&whole.parameters),
            buffers: self.buffers.extract(&whole.buffers),
        }
    }

    /// Puts the sub-model's values in their places among a whole model's; the others stay as they are.
    pub fn merge(&self, part: &Weights, whole: &mut Weights) {
        self.parameters.merge(&part.parameters, &mut whole.parameters);
        self.buffers.merge(&part.buffers, &mut whole.buffers);
    }
}

impl Coordinates {
    /// All places of a vector of `of` values.
    pub fn all(of: usize) -> Self {
        Self {
            ranges: Some(0..of).into_iter().filter(|range| !range.is_empty()).collect(),
            count: of,
            of,
        }
    }

    /// No places of a vector of `of` values.
    pub fn none(of: usize) -> Self {
        Self {
            ranges: Vec::new(),
            count: 0,
            of,
        }
    }

    /// How many places there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many values the vector has.
    pub fn of(&self) -> usize {
        self.of
    }

    /// The places, as ranges of neighbours.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Whether they are all places of the vector.
    pub fn is_all(&self) -> bool {
        self.count == self.of
    }

    /// The values at the places.
    pub fn extract(&self, whole: &[f32]) -> Vec<f32> {
        let mut part = Vec::with_capacity(self.count);
        for range in &self.ranges {
            part.extend_from_slice(&whole[range.clone()]);
        }
        part
    }

    /// Of the values at the places, which are `count` in all, the places of those in these ranges, which ascend.
    #[must_use]
    pub fn pick(&self, ranges: &[Range<usize>]) -> Self {
        let mut picked = Self::none(self.of);
        let mut start = 0;
        for known in &self.ranges {
            let end = start + known.len();
            for range in ranges {
                let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
                if from < to {
                    picked.push(known.start + from - start..known.start + to - start);
                }
            }
            start = end;
        }
        picked
    }

    /// Puts values in the places.
    pub fn merge(&self, part: &[f32], whole: &mut [f32]) {
        for (place, part) in self.places(part) {
            whole[place].copy_from_slice(part);
        }
    }

    /// The ranges, each with its part of `part`, which holds a value for each place.
    pub fn places<'a>(&'a self, part: &'a [f32]) -> impl Iterator<Item = (Range<usize>, &'a [f32])> {
        let mut rest = part;
        self.ranges.iter().map(move |range| {
            let part;
            (part, rest) = rest.split_at(range.len());
            (range.clone(), part)
        })
    }

    /// Adds the kept values of a tensor with these axes, the first of which lies at `start`.
    fn add(&mut self, axes: &[Kept], start: usize) {
        let Some((axis, inner)) = axes.split_first() else {
            return self.push(start..start + 1);
        };
        let stride: usize = inner.iter().map(|axis| axis.size).product();
        let is_inner_whole = inner.iter().all(Kept::is_whole);
        for range in &axis.ranges {
            if is_inner_whole {
                self.push(start + range.start * stride..start + range.end * stride);
            } else {
                range.clone().for_each(|at| self.add(inner, start + at * stride));
            }
        }
    }

    fn push(&mut self, range: Range<usize>) {
        self.count += range.len();
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }
}

/// What is kept of one axis, as ranges of neighbours.
struct Kept {
    size: usize,
    ranges: Vec<Range<usize>>,
}

impl Kept {
    fn of(size: usize, axis: Axis, layout: &Layout, units: &[Vec<u32>]) -> Self {
        let Axis::Group { group, block } = axis else {
            let ranges = std::iter::once(0..size).collect();
            return Self { size, ranges };
        };
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let period = layout.groups[group.0].units * block;
        for first in (0..size).step_by(period) {
            for unit in &units[group.0] {
                let start = first + *unit as usize * block;
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end += block,
                    _ => ranges.push(start..start + block),
                }
            }
        }
        Self { size, ranges }
    }

    fn is_whole(&self) -> bool {
        self.ranges.first() == Some(&(0..self.size))
    }
}
