//! Where a square window goes on an image: the shapes it takes, and its definition in candle's operations.

use candle_core::Tensor;

use super::settings::at_least_one;
use crate::{error::LayerProblem, kernels::patches::Patches, limits::bounded};

impl Patches {
    /// The patches that a square window visits on an image of shape `[channels, height, width]`.
    pub(crate) fn over(shape: &[usize], kernel: usize, stride: usize, padding: usize) -> Result<Self, LayerProblem> {
        let &[channels, height, width] = shape else {
            return Err(LayerProblem::input("[channels, height, width]", shape));
        };
        at_least_one("kernel", kernel)?;
        at_least_one("stride", stride)?;
        if padding >= kernel {
            let needs = format!("smaller than `kernel` ({kernel})");
            return Err(LayerProblem::setting("padding", padding, needs));
        }
        bounded("its window", &[channels, kernel, kernel])?;
        bounded("its stride", &[stride, width.saturating_add(2 * padding)])?;
        let places = |side: usize| {
            let padded = padding.checked_mul(2)?.checked_add(side)?;
            Some(padded.checked_sub(kernel)? / stride + 1)
        };
        match (places(height), places(width)) {
            (Some(out_height), Some(out_width)) => Ok(Self {
                channels,
                height,
                width,
                kernel,
                stride,
                padding,
                out_height,
                out_width,
            }),
            _ => Err(LayerProblem::Window {
                kernel,
                padding,
                given: shape.to_vec(),
            }),
        }
    }

    /// The `[images, channels, places, window]` pixels under the window; without padding only.
    pub(super) fn windows(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let pixel = |place: usize| {
            let (row, column) = (place / self.out_width, place % self.out_width);
            let rows = (0..self.kernel).map(move |y| (row * self.stride + y) * self.width);
            let columns = move |start| (0..self.kernel).map(move |x| start + column * self.stride + x);
            rows.flat_map(columns).map(|pixel| pixel as u32)
        };
        let pixels: Vec<u32> = (0..self.places()).flat_map(pixel).collect();
        let pixels = Tensor::new(pixels, images.device())?;
        let flat = images.flatten_from(2)?.index_select(&pixels, 2)?;
        flat.reshape(((), self.channels, self.places(), self.kernel * self.kernel))
    }

    /// Images with their padding, without the rows and columns that no window reaches. (Candle cannot differentiate a
    /// convolution that leaves over other numbers of rows than of columns.)
    pub(super) fn extent(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let reach = |places: usize| (places - 1) * self.stride + self.kernel;
        images
            .pad_with_zeros(2, self.padding, self.padding)?
            .pad_with_zeros(3, self.padding, self.padding)?
            .narrow(2, 0, reach(self.out_height))?
            .narrow(3, 0, reach(self.out_width))
    }
}
