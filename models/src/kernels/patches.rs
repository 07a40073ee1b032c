//! The patches a convolution looks at, gathered into the columns of a matrix, and scattered back.

use candle_core::Tensor;

/// Which patches of an image a square window visits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Patches {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) out_height: usize,
    pub(crate) out_width: usize,
}

impl Patches {
    /// Values of one image.
    pub(crate) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Places the window visits.
    pub(crate) fn places(&self) -> usize {
        self.out_height * self.out_width
    }

    /// Values in one patch.
    pub(crate) fn patch(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }

    /// Whether the matrix of patches is the image itself.
    pub(crate) fn is_image(&self) -> bool {
        self.kernel == 1 && self.stride == 1 && self.padding == 0
    }

    /// Writes the `patch x places` matrix of an image's patches; what lies in the padding is 0.
    pub(crate) fn gather(&self, image: &[f32], columns: &mut [f32]) {
        self.each_row(|row, image_row, visit| {
            let row = &mut columns[row];
            let Some(image_row) = image_row else {
                return row.fill(0.0);
            };
            let image_row = &image[image_row];
            row[..visit.first].fill(0.0);
            row[visit.first + visit.count..].fill(0.0);
            let row = &mut row[visit.first..visit.first + visit.count];
            if self.stride == 1 {
                row.copy_from_slice(&image_row[visit.start..visit.start + visit.count]);
            } else {
                for (value, source) in row
                    .iter_mut()
                    .zip(image_row[visit.start..].iter().step_by(self.stride))
                {
                    *value = *source;
                }
            }
        });
    }

    /// Adds each value of a `patch x places` matrix to the pixel it came from: the transpose of [`gather`](Self::gather).
    pub(crate) fn scatter(&self, columns: &[f32], image: &mut [f32]) {
        self.each_row(|row, image_row, visit| {
            let Some(image_row) = image_row else { return };
            let image_row = &mut image[image_row];
            let row = &columns[row][visit.first..visit.first + visit.count];
            if self.stride == 1 {
                for (pixel, value) in image_row[visit.start..visit.start + visit.count]
                    .iter_mut()
                    .zip(row)
                {
                    *pixel += value;
                }
            } else {
                for (pixel, value) in image_row[visit.start..]
                    .iter_mut()
                    .step_by(self.stride)
                    .zip(row)
                {
                    *pixel += value;
                }
            }
        });
    }

    /// In candle's operations: the `[images, channels, places, window]` pixels under the window; without padding only.
    pub(crate) fn windows(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let place = |place| (place / self.out_width, place % self.out_width);
        let pixel = |(row, column)| {
            let rows = (0..self.kernel).map(move |y| (row * self.stride + y) * self.width);
            let columns =
                move |start| (0..self.kernel).map(move |x| start + column * self.stride + x);
            rows.flat_map(columns).map(|pixel| pixel as u32)
        };
        let pixels: Vec<u32> = (0..self.places()).map(place).flat_map(pixel).collect();
        let pixels = Tensor::new(pixels, images.device())?;
        let flat = images.flatten_from(2)?.index_select(&pixels, 2)?;
        flat.reshape(((), self.channels, self.places(), self.kernel * self.kernel))
    }

    /// In candle's operations: images with their padding, without the rows and columns that no window reaches. (Candle
    /// cannot differentiate a convolution that leaves over other numbers of rows than of columns.)
    pub(crate) fn extent(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let reach = |places: usize| (places - 1) * self.stride + self.kernel;
        images
            .pad_with_zeros(2, self.padding, self.padding)?
            .pad_with_zeros(3, self.padding, self.padding)?
            .narrow(2, 0, reach(self.out_height))?
            .narrow(3, 0, reach(self.out_width))
    }

    /// Visits every stretch of the matrix of patches that lies in one image row: its place in the matrix, the image
    /// row (none in the padding) and which of its pixels.
    fn each_row(
        &self,
        mut f: impl FnMut(std::ops::Range<usize>, Option<std::ops::Range<usize>>, Visit),
    ) {
        let mut at = 0;
        for channel in 0..self.channels {
            for ky in 0..self.kernel {
                for kx in 0..self.kernel {
                    let visit = self.visit(kx);
                    for oy in 0..self.out_height {
                        let row = at..at + self.out_width;
                        at = row.end;
                        let y = (oy * self.stride + ky).wrapping_sub(self.padding);
                        let image_row = (y < self.height && visit.count > 0).then(|| {
                            let start = (channel * self.height + y) * self.width;
                            start..start + self.width
                        });
                        f(row, image_row, visit);
                    }
                }
            }
        }
    }

    /// The places at which the window's column `kx` lies inside the image.
    fn visit(&self, kx: usize) -> Visit {
        let first = self
            .padding
            .saturating_sub(kx)
            .div_ceil(self.stride)
            .min(self.out_width);
        let start = first * self.stride + kx - self.padding.min(first * self.stride + kx);
        let count = self
            .width
            .saturating_sub(start)
            .div_ceil(self.stride)
            .min(self.out_width - first);
        Visit {
            first,
            start,
            count,
        }
    }
}

/// `count` places from `first` on, the first of them at pixel `start`.
#[derive(Clone, Copy)]
struct Visit {
    first: usize,
    start: usize,
    count: usize,
}
