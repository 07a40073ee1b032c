//! Layers one after the other with fewer units, and what makes up for those that are gone.

use super::{LayerDescription, Scaler};
use crate::width::Thinner;

/// What a thinner model keeps of layers, the first at place `{prefix}{first}`. Where it is scaled, each whose outputs are
/// thinned is followed by a [`Scaler`].
pub(crate) fn thinned(
    layers: &[LayerDescription],
    prefix: &str,
    first: usize,
    thinner: &mut Thinner,
) -> Vec<LayerDescription> {
    let mut thinned = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        let mut layer = layer.clone();
        let share = layer
            .settings_mut()
            .thin(&format!("{prefix}{}", first + index), thinner);
        thinned.push(layer);
        if thinner.is_scaled && share < 1.0 {
            thinned.push(LayerDescription::Scaler(Scaler { share }));
        }
    }
    thinned
}
