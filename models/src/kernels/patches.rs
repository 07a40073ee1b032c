//! The patches of an image that a window looks at.

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

/// Scratch space in which patches are brought back to where they came from.
#[derive(Default)]
pub(crate) struct Columns {
    /// An image with its padding.
    padded: Vec<f32>,
    /// The `patch x places` matrix of its patches.
    columns: Vec<f32>,
}

impl Columns {
    /// Writes `image`: the sum, for each of its pixels, of the values that come from it in the `patch x places` matrix
    /// that `fill` writes.
    pub(crate) fn scatter(&mut self, patches: &Patches, image: &mut [f32], fill: impl FnOnce(&mut [f32])) {
        let (width, height) = patches.padded();
        self.columns.resize(patches.patch() * patches.places(), 0.0);
        fill(&mut self.columns);
        self.padded.clear();
        self.padded.resize(patches.channels * height * width, 0.0);
        let mut rows = self.columns.chunks_exact(patches.out_width);
        for first in patches.window() {
            for (row, from) in rows.by_ref().take(patches.out_height).enumerate() {
                let into = &mut self.padded[first + row * patches.stride * width..];
                for (pixel, value) in into.iter_mut().step_by(patches.stride).zip(from) {
                    *pixel += value;
                }
            }
        }
        for (first, row) in patches.rows().zip(image.chunks_exact_mut(patches.width)) {
            row.copy_from_slice(&self.padded[first..first + patches.width]);
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

    proptest! {
        #[test]
        fn each_value_is_added_to_the_pixel_it_came_from(patches in any(1..4), seed in 1usize..1000) {
            let places = patches.places();
            let columns: Vec<f32> = (0..patches.patch() * places).map(|i| ((i * seed) % 7) as f32 - 3.0).collect();
            let mut expected = vec![0.0; patches.image()];
            for (index, value) in columns.iter().enumerate() {
                if let Some(pixel) = under(&patches, index / places, index % places) {
                    expected[pixel] += value;
                }
            }
            let mut scattered = vec![f32::NAN; patches.image()];
            let mut scratch = Columns::default();
            for _ in 0..2 {
                scratch.scatter(&patches, &mut scattered, |into| into.copy_from_slice(&columns));
                prop_assert_eq!(&scattered, &expected);
            }
        }
    }
}
