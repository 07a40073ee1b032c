//! A fully connected layer.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Built, Declared, Description, Fault, Layer, at_least_one, bounded, uniform_by_inputs};
use crate::{
    chain::{Sink, Values},
    error::{LayerProblem, ModelError},
    kernels::{
        dots::products_of_rows,
        matrix::{Matrix, MatrixMut, add_rows},
    },
    network::Mode,
    width::{Signal, WidthGroups},
};

/// `y = W x + b` on the features of `[features]`, or of each position of `[sequence, features]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Outputs.
    pub units: usize,
    /// Whether there is a `b`.
    #[serde(default = "super::yes")]
    pub bias: bool,
}

impl Description for Dense {
    fn kind(&self) -> &'static str {
        "dense"
    }

    fn build(&self, _: &str, input: &Signal, groups: &mut WidthGroups) -> Result<Built, Fault> {
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
        let width = groups.open(units);
        let initial = uniform_by_inputs(inputs);
        let mut parameters = vec![Declared::new(
            "weight",
            [(units, width), (inputs, input.width)],
            initial,
        )];
        if self.bias {
            parameters.push(Declared::new("bias", [(units, width)], initial));
        }
        Ok(Built {
            live: Box::new(Live {
                inputs,
                units,
                bias: self.bias,
            }),
            output: Signal { shape, width },
            parameters,
            buffers: vec![],
            operations: size as u64 * (2 * inputs as u64 + u64::from(self.bias)),
        })
    }
}

struct Live {
    inputs: usize,
    units: usize,
    bias: bool,
}

impl Live {
    fn weights(&self) -> usize {
        self.inputs * self.units
    }
}

impl Layer for Live {
    fn plain(
        &self,
        parameters: &[Tensor],
        _: &mut [f32],
        input: &Tensor,
        _: &mut Mode<'_>,
    ) -> candle_core::Result<Tensor> {
        let bias = parameters.get(1).cloned();
        candle_nn::Module::forward(&candle_nn::Linear::new(parameters[0].clone(), bias), input)
    }

    fn forward(
        &mut self,
        values: Values<'_>,
        input: &[f32],
        output: &mut [f32],
        _: &mut Mode<'_>,
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
        sink: Sink<'_>,
        input: &[f32],
        _: &[f32],
        output_gradient: &[f32],
        input_gradient: Option<&mut [f32]>,
    ) -> Result<(), ModelError> {
        let rows = input.len() / self.inputs;
        let above = Matrix::new(output_gradient, rows, self.units);
        if let Some(input_gradient) = input_gradient {
            let weight = &sink.parameters[..self.weights()];
            MatrixMut::new(input_gradient, rows, self.inputs).product(
                0.0,
                1.0,
                above,
                Matrix::new(weight, self.units, self.inputs),
            );
        }
        let (weight, bias) = sink.split_at(self.weights());
        MatrixMut::new(weight.gradient, self.units, self.inputs).product(
            weight.keep,
            1.0,
            above.transposed(),
            Matrix::new(input, rows, self.inputs),
        );
        if self.bias {
            add_rows(bias.begun(), output_gradient);
        }
        Ok(())
    }
}
