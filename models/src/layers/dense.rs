//! A fully connected layer.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::settings::{at_least_one, yes};
use crate::{
    error::{LayerProblem, ModelError},
    kernels::{
        FEW,
        descent::descend,
        dots::products_of_rows,
        matrix::{Matrix, MatrixMut, add_rows},
        thin::{Then, thin_product},
    },
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    limits::bounded,
    mode::Mode,
    pass::{Backward, Descend, Forward},
    width::{Signal, Thinner, WidthGroups},
};

/// `y = W x + b` on the features of `[features]`, or of each position of `[sequence, features]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Outputs.
    pub units: usize,
    /// Whether there is a `b`.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl LayerSettings for Dense {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let (leading, inputs) = match input.shape[..] {
            [features] => (vec![], features),
            [sequence, features] => (vec![sequence], features),
            _ => {
                let needs = "[features] or [sequence, features] (is a `flatten` missing before it?)";
                return Err(LayerProblem::input(needs, &input.shape).into());
            }
        };
        let units = self.units;
        at_least_one("units", units)?;
        let shape = [leading, vec![units]].concat();
        let size = bounded("its output", &shape)?;
        let width = groups.open(place, units);
        let initial = Initial::uniform_by_inputs(inputs);
        let mut parameters = vec![DeclaredTensor::new(
            "weight",
            [(units, width), (inputs, input.width)],
            initial,
        )];
        if self.bias {
            parameters.push(DeclaredTensor::new("bias", [(units, width)], initial));
        }
        Ok(PlacedLayer {
            live: Box::new(Live {
                inputs,
                units,
                bias: self.bias,
            }),
            output: Signal { shape, width },
            parameters,
            buffers: vec![],
            inside: 0,
            operations: size as u64 * (2 * inputs as u64 + u64::from(self.bias)),
        })
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        thinner.keep(place, &mut self.units)
    }
}

/// Units whose weights are worked on together.
const UNITS: usize = 12;

struct Live {
    inputs: usize,
    units: usize,
    bias: bool,
}

impl Layer for Live {
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let bias = parameters.get(1).cloned();
        candle_nn::Module::forward(&candle_nn::Linear::new(parameters[0].clone(), bias), input)
    }

    fn forward(
        &mut self,
        Forward {
            values, input, output, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let (weight, bias) = values.parameters.split_at(self.weights());
        products_of_rows(input, weight, self.inputs, output);
        for row in output.chunks_exact_mut(self.units) {
            for (output, bias) in row.iter_mut().zip(bias) {
                *output += bias;
            }
        }
        Ok(())
    }

    fn backward(
        &mut self,
        Backward {
            sink,
            input,
            output_gradient,
            input_gradient,
            ..
        }: Backward<'_>,
    ) -> Result<(), ModelError> {
        self.input_gradient(sink.parameters, output_gradient, input_gradient);
        let (weight, bias) = sink.split_at(self.weights());
        self.weight_gradient(input, output_gradient, weight.is_begun, weight.gradient);
        if self.bias {
            add_rows(bias.begun(), output_gradient);
        }
        Ok(())
    }

    fn descend(
        &mut self,
        Descend {
            descent,
            input,
            output_gradient,
            input_gradient,
            ..
        }: Descend<'_>,
    ) -> Result<(), ModelError> {
        self.input_gradient(descent.parameters, output_gradient, input_gradient);
        let (weight, bias) = descent.parameters.split_at_mut(self.weights());
        let (weight_gradient, bias_gradient) = descent.gradient.split_at_mut(self.weights());
        if self.is_few(input) {
            // The weights' gradient is written nowhere: that would take as long as computing it.
            let above = self.above(output_gradient).transposed();
            thin_product(above, input, self.inputs, Then::Descend(descent.rate), weight);
        } else {
            self.weight_gradient(input, output_gradient, false, weight_gradient);
            descend(weight, weight_gradient, descent.rate);
        }
        if self.bias {
            bias_gradient.fill(0.0);
            add_rows(bias_gradient, output_gradient);
            descend(bias, bias_gradient, descent.rate);
        }
        Ok(())
    }
}

impl Live {
    fn weights(&self) -> usize {
        self.inputs * self.units
    }

    fn above<'a>(&self, output_gradient: &'a [f32]) -> Matrix<'a> {
        Matrix::new(output_gradient, output_gradient.len() / self.units, self.units)
    }

    /// Whether the sums over a batch have few terms.
    fn is_few(&self, input: &[f32]) -> bool {
        input.len() / self.inputs <= FEW
    }

    fn input_gradient(&self, parameters: &[f32], output_gradient: &[f32], input_gradient: Option<&mut [f32]>) {
        if let Some(input_gradient) = input_gradient {
            let (weight, above) = (&parameters[..self.weights()], self.above(output_gradient));
            if self.is_few(input_gradient) {
                // A few units at a time, so that their weights come from a near cache for all rows but the first.
                for (unit, weight) in (0..).step_by(UNITS).zip(weight.chunks(UNITS * self.inputs)) {
                    let above = above.columns(unit, weight.len() / self.inputs);
                    let then = if unit == 0 { Then::Replace } else { Then::Add };
                    thin_product(above, weight, self.inputs, then, input_gradient);
                }
            } else {
                let rows = input_gradient.len() / self.inputs;
                let weight = Matrix::new(weight, self.units, self.inputs);
                MatrixMut::new(input_gradient, rows, self.inputs).product(0.0, 1.0, above, weight);
            }
        }
    }

    fn weight_gradient(&self, input: &[f32], output_gradient: &[f32], add: bool, gradient: &mut [f32]) {
        let above = self.above(output_gradient).transposed();
        if self.is_few(input) {
            let then = if add { Then::Add } else { Then::Replace };
            thin_product(above, input, self.inputs, then, gradient);
        } else {
            let input = Matrix::new(input, input.len() / self.inputs, self.inputs);
            MatrixMut::new(gradient, self.units, self.inputs).product(if add { 1.0 } else { 0.0 }, 1.0, above, input);
        }
    }
}
