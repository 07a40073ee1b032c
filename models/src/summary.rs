//! A model at a glance: its layers, their shapes, parameters and work.

use std::fmt;

use serde::Serialize;

use crate::{
    description::ModelDescription,
    error::ModelError,
    width::{Axis, Group, WidthGroup},
};

/// Floating-point operations of a training step for each of its forward: backward takes twice as many.
pub const STEP: f64 = 3.0;

/// What each layer takes, gives and costs. Displays as a table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModelSummary {
    /// The layers, first to last. The model can be cut after each but the last.
    pub layers: Vec<LayerSummary>,
    /// The width groups.
    pub groups: Vec<Group>,
    /// Values trained.
    pub parameters: usize,
    /// Values kept but not trained.
    pub buffers: usize,
    /// Floating-point operations of one example's forward; a training step takes about [`STEP`] times as many.
    pub operations: u64,
}

/// One layer at a glance.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LayerSummary {
    /// Its place, the start of its parameters' names.
    pub place: String,
    /// Its kind.
    pub kind: &'static str,
    /// Shape of one example before it.
    pub input: Vec<usize>,
    /// Shape of one example after it: what crosses a cut made here.
    pub output: Vec<usize>,
    /// Values trained.
    pub parameters: usize,
    /// Floating-point operations of one example's forward.
    pub operations: u64,
    /// The width group of its output, where that can be thinned.
    pub width: Option<WidthGroup>,
}

impl ModelDescription {
    /// The model at a glance.
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn summary(&self) -> Result<ModelSummary, ModelError> {
        let assembled = self.assemble()?;
        let layers = assembled
            .chain
            .stages()
            .iter()
            .zip(&assembled.widths)
            .map(|(stage, width)| LayerSummary {
                place: stage.place.clone(),
                kind: stage.kind,
                input: stage.input.shape.clone(),
                output: stage.output.shape.clone(),
                parameters: stage.parameters.len(),
                operations: stage.operations,
                width: match width {
                    Axis::Group { group, .. } => Some(*group),
                    Axis::Fixed => None,
                },
            });
        Ok(ModelSummary {
            layers: layers.collect(),
            parameters: assembled.layout.parameter_count(),
            buffers: assembled.layout.buffer_count(),
            operations: assembled.chain.operations(),
            groups: assembled.layout.groups,
        })
    }
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |cells: [&str; 7]| {
            let [place, kind, input, output, parameters, operations, width] = cells;
            let line =
                format!("{place:<5} {kind:<16} {input:<16} {output:<16} {parameters:>12} {operations:>14}  {width}");
            writeln!(f, "{}", line.trim_end())
        };
        row([
            "layer",
            "kind",
            "input",
            "output",
            "parameters",
            "flop/example",
            "width group",
        ])?;
        for layer in &self.layers {
            row([
                &layer.place,
                layer.kind,
                &format!("{:?}", layer.input),
                &format!("{:?}", layer.output),
                &grouped(layer.parameters as u64),
                &grouped(layer.operations),
                &layer.width.map_or(String::new(), |group| {
                    format!("{} ({} units)", group.0, self.groups[group.0].units)
                }),
            ])?;
        }
        row([
            "",
            "total",
            "",
            "",
            &grouped(self.parameters as u64),
            &grouped(self.operations),
            "",
        ])?;
        if self.buffers > 0 {
            writeln!(f, "and {} values of running statistics", grouped(self.buffers as u64))?;
        }
        match self.layers.len() {
            0 | 1 => write!(f, "cannot be cut: it has one layer"),
            2 => write!(f, "can be cut after 1 layer"),
            layers => write!(f, "can be cut after 1 to {} layers", layers - 1),
        }
    }
}

/// A number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
