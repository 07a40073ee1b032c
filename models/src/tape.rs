//! A forward recorded by candle, to be differentiated by candle.

use candle_core::{Device, Tensor, Var};

/// What candle needs to differentiate one forward.
pub(crate) struct Tape {
    input: Var,
    parameters: Vec<Var>,
    output: Tensor,
}

/// The tensors of the given shapes that lie one after the other in `values`.
pub(crate) fn tensors<'a>(
    values: &[f32],
    shapes: impl IntoIterator<Item = &'a [usize]>,
    device: &Device,
) -> candle_core::Result<Vec<Tensor>> {
    let mut rest = values;
    let tensor = |shape: &[usize]| {
        let (these, others) = rest.split_at(shape.iter().product());
        rest = others;
        Tensor::from_slice(these, shape, device)
    };
    shapes.into_iter().map(tensor).collect()
}

impl Tape {
    /// Runs `f` on the parameters and the input, remembering how the output came about.
    pub(crate) fn record(
        parameters: Vec<Tensor>,
        input: &Tensor,
        f: impl FnOnce(&[Tensor], &Tensor) -> candle_core::Result<Tensor>,
    ) -> candle_core::Result<Self> {
        let input = Var::from_tensor(input)?;
        let parameters: Vec<Var> = parameters
            .iter()
            .map(Var::from_tensor)
            .collect::<candle_core::Result<_>>()?;
        let tensors: Vec<Tensor> = parameters.iter().map(|var| var.as_tensor().clone()).collect();
        let output = f(&tensors, input.as_tensor())?;
        Ok(Self {
            input,
            parameters,
            output,
        })
    }

    pub(crate) fn output(&self) -> &Tensor {
        &self.output
    }

    /// The vector-Jacobian product: adds the parameters' gradient to `gradient`.
    pub(crate) fn backward(&self, output_gradient: &Tensor, gradient: &mut [f32]) -> candle_core::Result<Reached> {
        // Candle differentiates scalars only; the gradient of <y, v> is the product of v with the Jacobian.
        let gradients = (&self.output * output_gradient)?.sum_all()?.backward()?;
        let mut missed = None;
        let mut rest = gradient;
        for (index, parameter) in self.parameters.iter().enumerate() {
            let (these, others) = rest.split_at_mut(parameter.elem_count());
            rest = others;
            let Some(computed) = gradients.get(parameter) else {
                missed = missed.or(Some(index));
                continue;
            };
            let computed = computed.flatten_all()?.to_vec1::<f32>()?;
            for (sum, value) in these.iter_mut().zip(computed) {
                *sum += value;
            }
        }
        let input = match gradients.get(&self.input) {
            Some(computed) => computed.clone(),
            None => self.input.zeros_like()?,
        };
        Ok(Reached { input, missed })
    }
}

/// What a backward came to, besides the parameters' gradient.
pub(crate) struct Reached {
    /// The gradient at the input; 0 where none came through.
    pub(crate) input: Tensor,
    /// The first parameter to which no gradient came.
    pub(crate) missed: Option<usize>,
}
