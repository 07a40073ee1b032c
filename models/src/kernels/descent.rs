//! Plain gradient descent.

use pulp::{Simd, WithSimd};

use super::{dispatch, multiply_add};

/// Takes `rate` times the gradient off the parameters; each is rounded once, where the processor can.
pub(crate) fn descend(parameters: &mut [f32], gradient: &[f32], rate: f32) {
    dispatch(Descend {
        parameters,
        gradient,
        rate,
    });
}

struct Descend<'a> {
    parameters: &'a mut [f32],
    gradient: &'a [f32],
    rate: f32,
}

impl WithSimd for Descend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rate = simd.splat_f32s(-self.rate);
        let (parameters, rest) = S::as_mut_simd_f32s(self.parameters);
        let (gradient, gradient_rest) = S::as_simd_f32s(self.gradient);
        for (parameters, gradient) in parameters.iter_mut().zip(gradient) {
            *parameters = multiply_add(simd, rate, *gradient, *parameters);
        }
        for (parameter, gradient) in rest.iter_mut().zip(gradient_rest) {
            *parameter = f32::mul_add(-self.rate, *gradient, *parameter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::with_lanes;

    #[test]
    fn each_parameter_moves_by_its_gradient_whatever_the_width_of_vectors() {
        for length in [0, 1, 7, 16, 37] {
            let gradient: Vec<f32> = (0..length).map(|index| index as f32 - 3.0).collect();
            for lanes in [0, 1, 4, 16] {
                let mut parameters = vec![1.0; length];
                with_lanes(lanes, || descend(&mut parameters, &gradient, 0.5));
                let expected: Vec<f32> = gradient.iter().map(|gradient| 1.0 - 0.5 * gradient).collect();
                assert_eq!(parameters, expected);
            }
        }
    }
}
