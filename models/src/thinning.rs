//! Thinning: a model with fewer units in its width groups is a model again.

use crate::{
    description::ModelDescription,
    error::ModelError,
    layers::{Attention, Conv2d, Dense, Embedding, LayerDescription, Residual, Scaler},
    layout::Layout,
    width::{Axis, WidthGroup},
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
    /// With `scaled`, each layer whose outputs are thinned is followed by a [`Scaler`], which makes up for what is missing.
    ///
    /// # Errors
    /// When a group would be empty or larger than it is, or when what is kept is no model: a group norm whose channels
    /// no longer divide into its groups. The error names the layer.
    pub fn thinned(&self, units: &[usize], scaled: bool) -> Result<Self, ModelError> {
        let built = self.build()?;
        let groups = &built.layout.groups;
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
        let thinned = |scaled| {
            let mut opened = built.opened.iter().map(|axis| match axis {
                Axis::Group { group, .. } => Some(*group),
                Axis::Fixed => None,
            });
            let mut thinner = Thinner {
                opened: &mut opened,
                kept: |group: WidthGroup| (units[group.0], groups[group.0].units),
                scaled,
            };
            Self {
                layers: thinner.layers(&self.layers),
                ..self.clone()
            }
        };
        // Without scalers, so that errors name the layers by their places here.
        let bare = thinned(false);
        bare.check()
            .map_err(|error| ModelError::Thinning(format!("what is kept is no model: {error}")))?;
        Ok(if scaled { thinned(true) } else { bare })
    }
}

/// Walks the layers in the order in which they open width groups.
struct Thinner<'a, F> {
    /// The groups that layers open, one after the other; `None` where they are always whole.
    opened: &'a mut dyn Iterator<Item = Option<WidthGroup>>,
    /// The units that a group keeps, and has.
    kept: F,
    scaled: bool,
}

impl<F: Fn(WidthGroup) -> (usize, usize)> Thinner<'_, F> {
    fn layers(&mut self, layers: &[LayerDescription]) -> Vec<LayerDescription> {
        layers.iter().flat_map(|layer| self.layer(layer)).collect()
    }

    /// The layer with what it keeps of its `own` units, and how much of them that is.
    fn units(&mut self, own: usize) -> (usize, f32) {
        match self.opened.next().flatten() {
            Some(group) => {
                let (kept, all) = (self.kept)(group);
                (kept, kept as f32 / all as f32)
            }
            None => (own, 1.0),
        }
    }

    fn layer(&mut self, layer: &LayerDescription) -> Vec<LayerDescription> {
        let (thinned, share) = match layer {
            LayerDescription::Dense(dense) => {
                let (units, share) = self.units(dense.units);
                (LayerDescription::Dense(Dense { units, ..*dense }), share)
            }
            LayerDescription::Conv2d(convolution) => {
                let (channels, share) = self.units(convolution.channels);
                let thinned = Conv2d {
                    channels,
                    ..*convolution
                };
                (LayerDescription::Conv2d(thinned), share)
            }
            LayerDescription::Embedding(embedding) => {
                let (dimension, share) = self.units(embedding.dimension);
                let thinned = Embedding {
                    dimension,
                    ..*embedding
                };
                (LayerDescription::Embedding(thinned), share)
            }
            LayerDescription::Attention(attention) => {
                let (heads, share) = self.units(attention.heads);
                (LayerDescription::Attention(Attention { heads, ..*attention }), share)
            }
            LayerDescription::Residual(Residual { layers, shortcut }) => {
                let residual = Residual {
                    layers: self.layers(layers),
                    shortcut: self.layers(shortcut),
                };
                (LayerDescription::Residual(residual), 1.0)
            }
            LayerDescription::MaxPool2d(_)
            | LayerDescription::AveragePool2d(_)
            | LayerDescription::Relu(_)
            | LayerDescription::Gelu(_)
            | LayerDescription::Tanh(_)
            | LayerDescription::Sigmoid(_)
            | LayerDescription::Flatten(_)
            | LayerDescription::Dropout(_)
            | LayerDescription::GroupNorm(_)
            | LayerDescription::LayerNorm(_)
            | LayerDescription::BatchNorm(_)
            | LayerDescription::Scaler(_)
            | LayerDescription::Module(_) => (layer.clone(), 1.0),
        };
        let scaler = (self.scaled && share < 1.0).then_some(LayerDescription::Scaler(Scaler { share }));
        std::iter::once(thinned).chain(scaler).collect()
    }
}
