//! Putting a model together: its layers chained, and where its values lie.

use crate::{
    chain::{Chain, Chained, NamedLayer},
    error::ModelError,
    layer::DeclaredTensor,
    layout::{Entry, Layout},
    limits::bounded,
    width::{Axis, Signal, WidthGroups},
};

/// A model put together from its description: checked, but without values.
pub(crate) struct AssembledModel {
    pub(crate) chain: Chain,
    pub(crate) layout: Layout,
    pub(crate) output: Signal,
    /// How each layer's output can be thinned.
    pub(crate) widths: Vec<Axis>,
    /// The axes that layers opened, in the order of the layers, with the place of each one's layer.
    pub(crate) opened: Vec<(String, Axis)>,
}

impl AssembledModel {
    pub(crate) fn new<'a>(
        input: &[usize],
        layers: impl IntoIterator<Item = NamedLayer<'a>>,
        first_layer: usize,
    ) -> Result<Self, ModelError> {
        let wrong = |text: String| Err(ModelError::Description(text));
        if input.is_empty() || input.contains(&0) {
            return wrong(format!(
                "`input` is {input:?}; it needs at least one side, none of them 0"
            ));
        }
        if bounded("", input).is_err() {
            return wrong(format!("`input` is {input:?}; that is too large"));
        }
        let mut groups = WidthGroups::default();
        let signal = Signal {
            shape: input.to_vec(),
            width: Axis::Fixed,
        };
        let Chained {
            chain,
            parameters,
            buffers,
        } = Chain::build(layers, "", first_layer, &signal, &mut groups)?;
        let Some(last) = chain.stages().last() else {
            return wrong("it has no layers".to_string());
        };
        let output = last.output.clone();
        groups.fix(output.width);
        let (numbered, number) = groups.number();
        let opened = groups.opened();
        let opened = opened.map(|(place, axis)| (place.to_string(), number(axis))).collect();
        let stages = chain.stages().iter();
        let widths = stages.map(|stage| number(stage.output.width)).collect();
        let entries = |declared: Vec<DeclaredTensor>| {
            let mut offset = 0;
            let entry = |tensor: DeclaredTensor| {
                let axes = tensor.axes.iter().map(|axis| number(*axis)).collect();
                let DeclaredTensor {
                    name, shape, initial, ..
                } = tensor;
                let entry = Entry {
                    name,
                    shape,
                    offset,
                    axes,
                    initial,
                };
                offset += entry.size();
                entry
            };
            declared.into_iter().map(entry).collect()
        };
        let layout = Layout {
            parameters: entries(parameters),
            buffers: entries(buffers),
            groups: numbered,
        };
        Ok(Self {
            chain,
            layout,
            output,
            widths,
            opened,
        })
    }
}
