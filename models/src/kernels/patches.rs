//! The patches of an image that a window looks at.

use std::ops::Range;

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

    /// Width and height of an image with its padding.
    pub(super) fn padded(&self) -> (usize, usize) {
        (self.width + 2 * self.padding, self.height + 2 * self.padding)
    }

    /// Where the rows of an image begin in the padded one.
    fn rows(&self) -> impl Iterator<Item = usize> + use<> {
        let (padding, height) = (self.padding, self.height);
        let (padded_width, padded_height) = self.padded();
        let row = move |row| {
            let (channel, y) = (row / height, row % height);
            (channel * padded_height + y + padding) * padded_width + padding
        };
        (0..self.channels * height).map(row)
    }

    /// The first pixels, in a padded image, under each of the window's pixels.
    pub(super) fn window(&self) -> impl Iterator<Item = usize> + use<> {
        let (width, height) = self.padded();
        let kernel = self.kernel;
        let channels = (0..self.channels).map(move |channel| channel * height * width);
        let rows = move |first| (0..kernel).map(move |y| first + y * width);
        channels
            .flat_map(rows)
            .flat_map(move |first| (0..kernel).map(move |x| first + x))
    }
}

impl Patches {
    /// Makes `padded` an image of zeros with its padding.
    pub(super) fn clear(&self, padded: &mut Vec<f32>) {
        let (width, height) = self.padded();
        padded.clear();
        padded.resize(self.channels * height * width, 0.0);
    }

    /// Makes `padded` the image with its padding.
    pub(super) fn pad(&self, image: &[f32], padded: &mut Vec<f32>) {
        self.clear(padded);
        for (first, row) in self.rows().zip(image.chunks_exact(self.width)) {
            padded[first..first + self.width].copy_from_slice(row);
        }
    }

    /// Takes an image out of its padding.
    pub(super) fn unpad(&self, padded: &[f32], image: &mut [f32]) {
        for (first, row) in self.rows().zip(image.chunks_exact_mut(self.width)) {
            row.copy_from_slice(&padded[first..first + self.width]);
        }
    }

    /// Copies the patches at some places of a padded image into rows of `stride` values.
    #[inline(always)]
    pub(super) fn lay_out(&self, padded: &[f32], places: Range<usize>, stride: usize, rows: &mut [f32]) {
        match self.kernel {
            1 => self.copy::<1>(padded, places, stride, rows),
            3 => self.copy::<3>(padded, places, stride, rows),
            5 => self.copy::<5>(padded, places, stride, rows),
            _ => self.each_run(places, stride, |in_row, in_image| {
                rows[in_row..in_row + self.kernel].copy_from_slice(&padded[in_image..in_image + self.kernel]);
            }),
        }
    }

    #[inline(always)]
    fn copy<const K: usize>(&self, padded: &[f32], places: Range<usize>, stride: usize, rows: &mut [f32]) {
        self.each_run(places, stride, |in_row, in_image| {
            if let (Some(row), Some(image)) = (rows[in_row..].first_chunk_mut(), padded[in_image..].first_chunk::<K>())
            {
                *row = *image;
            }
        });
    }

    /// Adds rows of `stride` values to where the patches at some places lie in a padded image.
    #[inline(always)]
    pub(super) fn bring_back(&self, rows: &[f32], places: Range<usize>, stride: usize, padded: &mut [f32]) {
        match self.kernel {
            1 => self.add::<1>(rows, places, stride, padded),
            3 => self.add::<3>(rows, places, stride, padded),
            5 => self.add::<5>(rows, places, stride, padded),
            _ => self.each_run(places, stride, |in_row, in_image| {
                let row = &rows[in_row..in_row + self.kernel];
                for (pixel, value) in padded[in_image..].iter_mut().zip(row) {
                    *pixel += value;
                }
            }),
        }
    }

    #[inline(always)]
    fn add<const K: usize>(&self, rows: &[f32], places: Range<usize>, stride: usize, padded: &mut [f32]) {
        self.each_run(places, stride, |in_row, in_image| {
            if let (Some(row), Some(image)) = (
                rows[in_row..].first_chunk::<K>(),
                padded[in_image..].first_chunk_mut::<K>(),
            ) {
                // All are read before any is written: that fills vectors.
                let mut sums = *image;
                for pixel in 0..K {
                    sums[pixel] += row[pixel];
                }
                *image = sums;
            }
        });
    }

    /// Visits the pixels of patches that lie side by side: where they begin in rows of `stride` values, a row for each
    /// place, and in a padded image.
    #[inline(always)]
    fn each_run(&self, places: Range<usize>, stride: usize, mut visit: impl FnMut(usize, usize)) {
        let (width, height) = self.padded();
        for (row, place) in places.enumerate() {
            let (y, x) = (place / self.out_width, place % self.out_width);
            let mut in_row = row * stride;
            for channel in 0..self.channels {
                let mut in_image = (channel * height + y * self.stride) * width + x * self.stride;
                for _ in 0..self.kernel {
                    visit(in_row, in_image);
                    in_row += self.kernel;
                    in_image += width;
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Windows of all kinds on images of all kinds.
    pub(in crate::kernels) fn any(strides: std::ops::Range<usize>) -> impl Strategy<Value = Patches> {
        let image = (1usize..4, 1usize..40, 1usize..40);
        let window = (1usize..6, strides, 0usize..5);
        (image, window).prop_filter_map(
            "the window fits",
            |((channels, height, width), (kernel, stride, padding))| {
                let padding = padding.min(kernel - 1);
                let places = |side: usize| Some((side + 2 * padding).checked_sub(kernel)? / stride + 1);
                Some(Patches {
                    channels,
                    height,
                    width,
                    kernel,
                    stride,
                    padding,
                    out_height: places(height)?,
                    out_width: places(width)?,
                })
            },
        )
    }

    /// Which value of the image lies under a pixel of the patch at a place, if not the padding.
    pub(in crate::kernels) fn under(patches: &Patches, pixel: usize, place: usize) -> Option<usize> {
        let kernel = patches.kernel;
        let (channel, within) = (pixel / (kernel * kernel), pixel % (kernel * kernel));
        let y = (place / patches.out_width * patches.stride + within / kernel).checked_sub(patches.padding)?;
        let x = (place % patches.out_width * patches.stride + within % kernel).checked_sub(patches.padding)?;
        (y < patches.height && x < patches.width).then_some((channel * patches.height + y) * patches.width + x)
    }
}
