//! Multi-head self-attention.

use candle_core::{D, Tensor};
use serde::{Deserialize, Serialize};

use super::settings::at_least_one;
use crate::{
    error::{LayerProblem, ModelError},
    kernels::{
        dots::products_of_rows,
        matrix::{Matrix, MatrixMut, add_rows},
    },
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer},
    layout::Initial,
    limits::bounded,
    mode::Mode,
    pass::{Backward, Forward},
    width::{Axis, Signal, Thinner, WidthGroups},
};

/// Lets every position of `[sequence, features]` look at every other by `heads` heads (Vaswani et al. 2017, 3.2.2), and
/// gives the shape that it takes. It is thinned by whole heads; its output counts the units that its input does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Heads.
    pub heads: usize,
    /// Features of a head's queries, keys and values; usually `heads` times this is the input's features.
    pub head_size: usize,
    /// Whether a position sees only itself and those before it. Default false.
    #[serde(default)]
    pub causal: bool,
}

/// The projections of the input, in the order of their parameters.
const PROJECTIONS: [&str; 3] = ["query", "key", "value"];

impl LayerSettings for Attention {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let [sequence, features] = input.shape[..] else {
            return Err(LayerProblem::input("[sequence, features]", &input.shape).into());
        };
        let Self {
            heads,
            head_size,
            causal,
        } = *self;
        at_least_one("heads", heads)?;
        at_least_one("head_size", head_size)?;
        let inner = bounded("its heads", &[heads, head_size])?;
        bounded("its projections", &[sequence, inner])?;
        bounded("its attention", &[heads, sequence, sequence])?;
        let by_head = match groups.open_heads(place, heads) {
            Axis::Group { group, block } => Axis::Group {
                group,
                block: block * head_size,
            },
            Axis::Fixed => Axis::Fixed,
        };
        let initial = Initial::uniform_by_inputs(features);
        let mut parameters = Vec::new();
        for name in PROJECTIONS {
            let weight = [(inner, by_head), (features, input.width)];
            parameters.push(DeclaredTensor::new(&format!("{name}.weight"), weight, initial));
            parameters.push(DeclaredTensor::new(
                &format!("{name}.bias"),
                [(inner, by_head)],
                initial,
            ));
        }
        let initial = Initial::uniform_by_inputs(inner);
        let weight = [(features, input.width), (inner, by_head)];
        parameters.push(DeclaredTensor::new("output.weight", weight, initial));
        parameters.push(DeclaredTensor::new("output.bias", [(features, input.width)], initial));
        let (sequence_work, inner_work) = (sequence as u64, inner as u64);
        let operations = sequence_work * inner_work * (8 * features as u64 + 4 * sequence_work);
        Ok(PlacedLayer {
            live: Box::new(Live {
                heads,
                head_size,
                causal,
                sequence,
                features,
                projected: Default::default(),
                attention: vec![],
                context: vec![],
            }),
            output: input.clone(),
            parameters,
            buffers: vec![],
            inside: (4 * sequence * inner + heads * sequence * sequence) as u64,
            operations,
        })
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        thinner.keep(place, &mut self.heads)
    }
}

struct Live {
    heads: usize,
    head_size: usize,
    causal: bool,
    sequence: usize,
    features: usize,
    /// Queries, keys and values of the last forward: a row for each position, the heads' side by side.
    projected: [Vec<f32>; 3],
    /// How much each position looked at each, of each example and head.
    attention: Vec<f32>,
    /// What the heads gave.
    context: Vec<f32>,
}

impl Live {
    /// Features of all heads.
    fn inner(&self) -> usize {
        self.heads * self.head_size
    }

    /// Values of a projection's weight and bias.
    fn projection(&self) -> usize {
        self.inner() * (self.features + 1)
    }

    /// One over the root of the head's size.
    fn scale(&self) -> f32 {
        1.0 / (self.head_size as f32).sqrt()
    }

    /// The rows of one example and the columns of one head.
    fn head<'a>(&self, values: &'a [f32], example: usize, head: usize) -> Matrix<'a> {
        let size = self.sequence * self.inner();
        let rows = &values[example * size..][..size];
        Matrix::new(rows, self.sequence, self.inner()).columns(head * self.head_size, self.head_size)
    }

    /// [`head`](Self::head), to write into.
    fn head_mut<'a>(&self, values: &'a mut [f32], example: usize, head: usize) -> MatrixMut<'a> {
        let size = self.sequence * self.inner();
        let rows = &mut values[example * size..][..size];
        MatrixMut::new(rows, self.sequence, self.inner()).columns(head * self.head_size, self.head_size)
    }

    /// Makes rows of scores the shares of attention: their softmax, of what a position may see.
    fn attend(&self, scores: &mut [f32]) {
        for (position, row) in scores.chunks_exact_mut(self.sequence).enumerate() {
            let (seen, hidden) = row.split_at_mut(if self.causal { position + 1 } else { self.sequence });
            hidden.fill(0.0);
            let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            for score in seen.iter_mut() {
                *score = (*score - largest).exp();
                total += *score;
            }
            seen.iter_mut().for_each(|score| *score /= total);
        }
    }
}

/// `rows` times a weight, plus a bias.
fn project(rows: &[f32], weight: &[f32], bias: &[f32], inputs: usize, out: &mut [f32]) {
    products_of_rows(rows, weight, inputs, out);
    for row in out.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
    }
}

/// Adds a projection's gradients to those of its weight and bias.
fn project_back(rows: &[f32], above: &[f32], inputs: usize, weight: &mut [f32], bias: &mut [f32]) {
    let (count, outputs) = (rows.len() / inputs, bias.len());
    add_rows(bias, above);
    let above = Matrix::new(above, count, outputs).transposed();
    MatrixMut::new(weight, outputs, inputs).product(1.0, 1.0, above, Matrix::new(rows, count, inputs));
}

impl Layer for Live {
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let (examples, sequence, _) = input.dims3()?;
        let linear = |of: &Tensor, at: usize| {
            let linear = candle_nn::Linear::new(parameters[at].clone(), Some(parameters[at + 1].clone()));
            candle_nn::Module::forward(&linear, of)
        };
        let heads = |of: Tensor| {
            let heads = of.reshape((examples, sequence, self.heads, self.head_size))?;
            heads.transpose(1, 2)?.contiguous()
        };
        let [query, key, value] = [0, 2, 4].map(|at| linear(input, at).and_then(heads));
        let mut scores = (query?.matmul(&key?.t()?.contiguous()?)? * f64::from(self.scale()))?;
        if self.causal {
            let hide = |at: usize| {
                if at % sequence > at / sequence {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            };
            let mask: Vec<f32> = (0..sequence * sequence).map(hide).collect();
            scores = scores.broadcast_add(&Tensor::from_vec(mask, (sequence, sequence), input.device())?)?;
        }
        let context = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&value?)?;
        let context = context.transpose(1, 2)?.reshape((examples, sequence, self.inner()))?;
        linear(&context, 6)
    }

    fn forward(
        &mut self,
        Forward {
            values, input, output, ..
        }: Forward<'_>,
    ) -> Result<(), ModelError> {
        let (inner, features, sequence) = (self.inner(), self.features, self.sequence);
        let positions = input.len() / features;
        let mut parameters = values.parameters;
        let mut take = |count| {
            let taken;
            (taken, parameters) = parameters.split_at(count);
            taken
        };
        for projected in &mut self.projected {
            let (weight, bias) = (take(inner * features), take(inner));
            projected.resize(positions * inner, 0.0);
            project(input, weight, bias, features, projected);
        }
        let mut attention = std::mem::take(&mut self.attention);
        let mut context = std::mem::take(&mut self.context);
        attention.resize(positions * self.heads * sequence, 0.0);
        context.resize(positions * inner, 0.0);
        for (index, shares) in attention.chunks_exact_mut(sequence * sequence).enumerate() {
            let (example, head) = (index / self.heads, index % self.heads);
            let [query, key, value] = [0, 1, 2].map(|at| self.head(&self.projected[at], example, head));
            MatrixMut::new(shares, sequence, sequence).product(0.0, self.scale(), query, key.transposed());
            self.attend(shares);
            let shares = Matrix::new(shares, sequence, sequence);
            self.head_mut(&mut context, example, head)
                .product(0.0, 1.0, shares, value);
        }
        (self.attention, self.context) = (attention, context);
        let (weight, bias) = (take(features * inner), take(features));
        project(&self.context, weight, bias, inner, output);
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
        let (inner, features, sequence) = (self.inner(), self.features, self.sequence);
        let positions = input.len() / features;
        let parameters = sink.parameters;
        let (projections, of_output) = sink.begun().split_at_mut(3 * self.projection());
        let (weight_gradient, bias_gradient) = of_output.split_at_mut(features * inner);
        project_back(&self.context, output_gradient, inner, weight_gradient, bias_gradient);

        let weight = &parameters[3 * self.projection()..][..features * inner];
        let mut at_context = vec![0.0; positions * inner];
        let above = Matrix::new(output_gradient, positions, features);
        MatrixMut::new(&mut at_context, positions, inner).product(
            0.0,
            1.0,
            above,
            Matrix::new(weight, features, inner),
        );

        let mut at_projected: [Vec<f32>; 3] = std::array::from_fn(|_| vec![0.0; positions * inner]);
        let mut at_shares = vec![0.0; sequence * sequence];
        for (index, shares) in self.attention.chunks_exact(sequence * sequence).enumerate() {
            let (example, head) = (index / self.heads, index % self.heads);
            let [query, key, value] = [0, 1, 2].map(|at| self.head(&self.projected[at], example, head));
            let above = self.head(&at_context, example, head);
            MatrixMut::new(&mut at_shares, sequence, sequence).product(0.0, 1.0, above, value.transposed());
            let [at_query, at_key, at_value] = &mut at_projected;
            let weights = Matrix::new(shares, sequence, sequence);
            self.head_mut(at_value, example, head)
                .product(0.0, 1.0, weights.transposed(), above);
            // Through the softmax: each score by its share of the difference to the row's mean.
            for (row, shares) in at_shares.chunks_exact_mut(sequence).zip(shares.chunks_exact(sequence)) {
                let mean: f32 = row.iter().zip(shares).map(|(above, share)| above * share).sum();
                row.iter_mut()
                    .zip(shares)
                    .for_each(|(above, share)| *above = share * (*above - mean));
            }
            let at_scores = Matrix::new(&at_shares, sequence, sequence);
            self.head_mut(at_query, example, head)
                .product(0.0, self.scale(), at_scores, key);
            self.head_mut(at_key, example, head)
                .product(0.0, self.scale(), at_scores.transposed(), query);
        }

        let projection = self.projection();
        for (gradient, above) in projections.chunks_exact_mut(projection).zip(&at_projected) {
            let (weight, bias) = gradient.split_at_mut(inner * features);
            project_back(input, above, features, weight, bias);
        }
        if let Some(input_gradient) = input_gradient {
            let weights = parameters.chunks_exact(projection);
            for (at, (parameters, above)) in weights.zip(&at_projected).enumerate() {
                let keep = if at == 0 { 0.0 } else { 1.0 };
                let weight = Matrix::new(&parameters[..inner * features], inner, features);
                let above = Matrix::new(above, positions, inner);
                MatrixMut::new(&mut *input_gradient, positions, features).product(keep, 1.0, above, weight);
            }
        }
        Ok(())
    }
}
