//! Width groups: which axes of which parameters are made thinner together.
//!
//! A *unit* is what thinning keeps or drops: a convolution's channel, a dense layer's hidden unit. Every axis that
//! counts the same units belongs to the same group: a layer's outputs and the next layer's inputs, the norm between
//! them, everything that writes into one residual stream.

use std::collections::{BTreeMap, VecDeque};

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
pub struct Signal {
    /// The shape of one example.
    pub shape: Vec<usize>,
    /// Whose units the feature axis counts.
    pub width: Axis,
}

impl Signal {
    /// Values of one example.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The groups of a model while its layers are being chained.
#[derive(Default)]
pub struct WidthGroups(Vec<Opened>);

/// A group that a layer opened, and what has become of it.
struct Opened {
    group: Group,
    standing: Standing,
}

enum Standing {
    Open,
    Joined(usize),
    Fixed,
}

impl WidthGroups {
    /// A new group of `units` units, for the layer at `place`.
    pub fn open(&mut self, place: &str, units: usize) -> Axis {
        self.open_group(Group {
            place: place.to_string(),
            units,
            are_heads: false,
        })
    }

    /// A new group of attention heads.
    pub fn open_heads(&mut self, place: &str, heads: usize) -> Axis {
        self.open_group(Group {
            place: place.to_string(),
            units: heads,
            are_heads: true,
        })
    }

    fn open_group(&mut self, group: Group) -> Axis {
        self.0.push(Opened {
            group,
            standing: Standing::Open,
        });
        Axis::Group {
            group: WidthGroup(self.0.len() - 1),
            block: 1,
        }
    }

    /// Makes two axes, added value by value, keep the same units.
    pub fn join(&mut self, one: Axis, other: Axis) -> Axis {
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
                    self.0[second.0].standing = Standing::Joined(first.0);
                }
                self.resolve(kept)
            }
        }
    }

    /// Keeps an axis whole, and with it every axis of its group.
    pub fn fix(&mut self, axis: Axis) {
        if let Axis::Group { group, .. } = self.resolve(axis) {
            self.0[group.0].standing = Standing::Fixed;
        }
    }

    /// The axis as all that has been joined and fixed leaves it.
    pub fn resolve(&self, axis: Axis) -> Axis {
        let Axis::Group { mut group, block } = axis else {
            return Axis::Fixed;
        };
        loop {
            match self.0[group.0].standing {
                Standing::Open => return Axis::Group { group, block },
                Standing::Joined(other) => group = WidthGroup(other),
                Standing::Fixed => return Axis::Fixed,
            }
        }
    }

    /// Every axis that was opened, in the order of opening, with the place of the layer that did.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (&str, Axis)> {
        let axis = |group| Axis::Group {
            group: WidthGroup(group),
            block: 1,
        };
        let opened = self.0.iter().enumerate();
        opened.map(move |(index, opened)| (opened.group.place.as_str(), axis(index)))
    }

    /// Numbers the open groups from 0 in the order of their making. Gives the groups, and the new numbers.
    pub(crate) fn number(&self) -> (Vec<Group>, impl Fn(Axis) -> Axis + '_) {
        let mut groups = Vec::new();
        let mut numbers = vec![0; self.0.len()];
        for (index, Opened { group, standing }) in self.0.iter().enumerate() {
            if let Standing::Open = standing {
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

/// What a layer asks when a model is thinned: how many units are left of the width groups that it opens.
pub struct Thinner {
    /// For each place, of the groups that its layer opens: the units that are left, and all of them; `None` where they
    /// are always whole.
    opened: BTreeMap<String, VecDeque<Option<Share>>>,
    /// Whether a layer whose units are not all left is followed by what makes up for them.
    pub(crate) is_scaled: bool,
}

/// Some of a group's units.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// The units that are left.
    pub(crate) kept: usize,
    /// All units.
    pub(crate) all: usize,
}

impl Thinner {
    /// For groups that layers open, in the order of opening: the layer's place, and what is left where not all must be.
    pub(crate) fn new<'a>(opened: impl Iterator<Item = (&'a str, Option<Share>)>, is_scaled: bool) -> Self {
        let mut by_place: BTreeMap<String, VecDeque<_>> = BTreeMap::new();
        for (place, share) in opened {
            by_place.entry(place.to_string()).or_default().push_back(share);
        }
        Self {
            opened: by_place,
            is_scaled,
        }
    }

    /// Sets `units`, the units of the next group that the layer at `place` opens, to those that are left. Gives the
    /// share that they are of all.
    pub fn keep(&mut self, place: &str, units: &mut usize) -> f32 {
        match self.opened.get_mut(place).and_then(VecDeque::pop_front).flatten() {
            Some(Share { kept, all }) => {
                *units = kept;
                kept as f32 / all as f32
            }
            None => 1.0,
        }
    }

    /// A layer that opened a group of which some units should go, and did not ask.
    pub(crate) fn left_over(&self) -> Option<(&str, Share)> {
        let thinned = |share: &&Share| share.kept < share.all;
        self.opened.iter().find_map(|(place, shares)| {
            let share = shares.iter().flatten().find(thinned)?;
            Some((place.as_str(), *share))
        })
    }
}
