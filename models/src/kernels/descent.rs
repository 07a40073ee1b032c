//! Plain gradient descent.

use pulp::{Arch, Simd, WithSimd};

/// Takes `rate` times the gradient off the parameters, each rounded once.
pub(crate) fn descend(parameters: &mut [f32], gradient: &[f32], rate: f32) {
    Arch::new().dispatch(Descend {
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
            *parameters = simd.mul_add_f32s(rate, *gradient, *parameters);
        }
        for (parameter, gradient) in rest.iter_mut().zip(gradient_rest) {
            *parameter = f32::mul_add(-self.rate, *gradient, *parameter);
        }
    }
}
