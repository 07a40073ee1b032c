//! Thinning: a model with fewer units in its width groups is a model again.

use crate::{
    description::ModelDescription,
    error::ModelError,
    layers::{LayerDescription, thinned},
    layout::Layout,
    width::{Axis, Share, Thinner},
};

/// How many of a width group's units a model of width `width`, in (0, 1], keeps: the share of them, rounded up (Diao et
/// al. 2021). A width as it can be written, such as 0.3333333, is the share that it is meant to be.
pub fn units_kept(units: usize, width: f64) -> usize {
    ((units as f64 * width - 1e-4).ceil() as usize).clamp(1, units)
}

impl Layout {
    /// [`units_kept`] of each width group.
    pub fn units_at(&self, width: f64) -> Vec<usize> {
        self.groups.iter().map(|group| units_kept(group.units, width)).collect()
    }
}

impl ModelDescription {
    /// The model with `units[g]` units in width group `g`: dense, small, an ordinary model. Its parameters are the
    /// kept ones of this model, in the same order.
    ///
    /// With `scaled`, each layer whose outputs are thinned is followed by a [`Scaler`](crate::Scaler), which makes up for what is missing.
    ///
    /// # Errors
    /// When a group would be empty or larger than it is, or when what is kept is no model: a group norm whose channels
    /// no longer divide into its groups. The error names the layer.
    pub fn thinned(&self, units: &[usize], scaled: bool) -> Result<Self, ModelError> {
        let assembled = self.assemble()?;
        let groups = &assembled.layout.groups;
        if units.len() != groups.len() {
            let (has, given) = (groups.len(), units.len());
            return Err(ModelError::Thinning(format!(
                "units of {given} width groups are given, but it has {has}"
            )));
        }
        for (group, &kept) in groups.iter().zip(units) {
            if kept == 0 || kept > group.units {
                let (place, units) = (&group.place, group.units);
                return Err(ModelError::Thinning(format!(
                    "layer {place} cannot keep {kept} of its {units} units; it can keep 1 to {units}"
                )));
            }
        }
        let thinner = |scaled| {
            let opened = assembled.opened.iter().map(|(place, axis)| {
                let share = match axis {
                    Axis::Group { group, .. } => Some(Share {
                        kept: units[group.0],
                        all: groups[group.0].units,
                    }),
                    Axis::Fixed => None,
                };
                (place.as_str(), share)
            });
            Thinner::new(opened, scaled)
        };
        let thinned = |thinner: &mut Thinner| Self {
            layers: thinned(&self.layers, "", self.first_layer, thinner),
            ..self.clone()
        };
        // Without scalers, so that errors name the layers by their places here.
        let mut thinner_of_bare = thinner(false);
        let bare = thinned(&mut thinner_of_bare);
        if let Some((place, Share { kept, all })) = thinner_of_bare.left_over() {
            return Err(ModelError::Thinning(format!(
                "layer {place} cannot be thinned: it has all of its {all} units, where {kept} should be kept"
            )));
        }
        let layout = bare
            .layout()
            .map_err(|error| ModelError::Thinning(format!("what is kept is no model: {error}")))?;
        for (index, (group, kept)) in layout.groups.iter().zip(units).enumerate() {
            let place = &groups[index].place;
            if group.units != *kept {
                let has = group.units;
                return Err(ModelError::Thinning(format!(
                    "layer {place} cannot be thinned: it has {has} units left, where {kept} should be kept"
                )));
            }
        }
        Ok(match scaled {
            true => thinned(&mut thinner(true)),
            false => bare,
        })
    }

    /// After how many layers of `thinned`, which this model became when it was [thinned](Self::thinned), the first
    /// `layers` layers of this one have come, with the scalers that follow them.
    pub fn layers_once_thinned(&self, layers: usize, thinned: &Self) -> usize {
        let mut own = self.layers.iter().take(layers).peekable();
        let mut last = 0;
        for (at, layer) in thinned.layers.iter().enumerate() {
            match own.peek() {
                Some(next) if next.kind() == layer.kind() => drop(own.next()),
                None if !matches!(layer, LayerDescription::Scaler(_)) => return last,
                _ => {}
            }
            last = at + 1;
        }
        last
    }
}
