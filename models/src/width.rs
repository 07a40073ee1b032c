//! Width groups: which axes of which parameters are made thinner together.
//!
//! A *unit* is what thinning keeps or drops: a convolution's channel, a dense layer's hidden unit. Every axis that
//! counts the same units belongs to the same group: a layer's outputs and the next layer's inputs, the norm between
//! them, everything that writes into one residual stream.

use serde::{Deserialize, Serialize};

/// A set of axes that are thinned together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WidthGroup(pub usize);

/// What is known of a width group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// The place of the first layer whose output it is.
    pub place: String,
    /// How many units it has.
    pub units: usize,
    /// Whether they are attention heads: of these a sub-model keeps its width's share exactly, or it is refused.
    pub are_heads: bool,
}

/// How one axis of a parameter can be thinned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Axis {
    /// Always whole: the input's features, the classes, a kernel's rows.
    Fixed,
    /// Made of the group's units: position `i` belongs to unit `(i / block) % units`.
    Group {
        /// The group.
        group: WidthGroup,
        /// Consecutive positions that belong to one unit, for instance 49 after flattening images of 7x7.
        block: usize,
    },
}

/// What flows between two layers: the shape of one example, and whose units its feature axis counts.
///
/// The feature axis is the first of `[features]` and `[channels, height, width]`, the last of `[sequence, features]`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Signal {
    pub(crate) shape: Vec<usize>,
    pub(crate) width: Axis,
}

impl Signal {
    /// Values of one example.
    pub(crate) fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The groups of a model while its layers are being chained.
#[derive(Default)]
pub(crate) struct WidthGroups(Vec<Standing>);

enum Standing {
    Open(Group),
    Joined(usize),
    Fixed,
}

impl WidthGroups {
    /// A new group of `units` units, for the layer at `place`.
    pub(crate) fn open(&mut self, place: &str, units: usize) -> Axis {
        self.open_group(Group {
            place: place.to_string(),
            units,
            are_heads: false,
        })
    }

    /// A new group of attention heads.
    pub(crate) fn open_heads(&mut self, place: &str, heads: usize) -> Axis {
        self.open_group(Group {
            place: place.to_string(),
            units: heads,
            are_heads: true,
        })
    }

    fn open_group(&mut self, group: Group) -> Axis {
        self.0.push(Standing::Open(group));
        Axis::Group {
            group: WidthGroup(self.0.len() - 1),
            block: 1,
        }
    }

    /// Makes two axes, added value by value, keep the same units.
    pub(crate) fn join(&mut self, one: Axis, other: Axis) -> Axis {
        match (self.resolve(one), self.resolve(other)) {
            (Axis::Fixed, axis) | (axis, Axis::Fixed) => {
                self.fix(axis);
                Axis::Fixed
            }
            (kept @ Axis::Group { group: a, block: one }, dropped @ Axis::Group { group: b, block: other }) => {
                if one != other {
                    self.fix(kept);
                    self.fix(dropped);
                    return Axis::Fixed;
                }
                // The one that was opened first stands for both.
                let (first, second) = (a.min(b), a.max(b));
                if first != second {
                    self.0[second.0] = Standing::Joined(first.0);
                }
                self.resolve(kept)
            }
        }
    }

    /// Keeps an axis whole, and with it every axis of its group.
    pub(crate) fn fix(&mut self, axis: Axis) {
        if let Axis::Group { group, .. } = self.resolve(axis) {
            self.0[group.0] = Standing::Fixed;
        }
    }

    /// The axis as all that has been joined and fixed leaves it.
    pub(crate) fn resolve(&self, axis: Axis) -> Axis {
        let Axis::Group { mut group, block } = axis else {
            return Axis::Fixed;
        };
        loop {
            match self.0[group.0] {
                Standing::Open(_) => return Axis::Group { group, block },
                Standing::Joined(other) => group = WidthGroup(other),
                Standing::Fixed => return Axis::Fixed,
            }
        }
    }

    /// Every axis that was opened, in the order of opening.
    pub(crate) fn opened(&self) -> impl Iterator<Item = Axis> {
        let axis = |group| Axis::Group {
            group: WidthGroup(group),
            block: 1,
        };
        (0..self.0.len()).map(axis)
    }

    /// Numbers the open groups from 0 in the order of their making. Gives the groups, and the new numbers.
    pub(crate) fn number(&self) -> (Vec<Group>, impl Fn(Axis) -> Axis + '_) {
        let mut groups = Vec::new();
        let mut numbers = vec![0; self.0.len()];
        for (index, standing) in self.0.iter().enumerate() {
            if let Standing::Open(group) = standing {
                numbers[index] = groups.len();
                groups.push(group.clone());
            }
        }
        let rename = move |axis| match self.resolve(axis) {
            Axis::Group { group, block } => Axis::Group {
                group: WidthGroup(numbers[group.0]),
                block,
            },
            Axis::Fixed => Axis::Fixed,
        };
        (groups, rename)
    }
}
