//! The patches a convolution looks at, gathered into the columns of a matrix, and scattered back.

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

/// Values copied at a time; buffers have room for one copy beyond their end.
const COPY: usize = 16;

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
    fn is_image(&self) -> bool {
        self.kernel == 1 && self.stride == 1 && self.padding == 0
    }

    /// Width and height of an image with its padding.
    fn padded(&self) -> (usize, usize) {
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
    fn window(&self) -> impl Iterator<Item = usize> + use<> {
        let (width, height) = self.padded();
        let kernel = self.kernel;
        let channels = (0..self.channels).map(move |channel| channel * height * width);
        let rows = move |first| (0..kernel).map(move |y| first + y * width);
        channels
            .flat_map(rows)
            .flat_map(move |first| (0..kernel).map(move |x| first + x))
    }
}

/// Scratch space in which the patches of one image after another are laid out.
#[derive(Default)]
pub(crate) struct Columns {
    /// An image with its padding.
    padded: Vec<f32>,
    /// The `patch x places` matrix, and room for one copy.
    columns: Vec<f32>,
}

impl Columns {
    /// The `patch x places` matrix of an image's patches; what lies in the padding is 0.
    pub(crate) fn gather<'a>(&'a mut self, patches: &Patches, image: &'a [f32]) -> &'a [f32] {
        if patches.is_image() {
            return image;
        }
        self.prepare(patches);
        let rows = patches.rows().zip(image.chunks_exact(patches.width));
        for (first, row) in rows {
            self.padded[first..first + patches.width].copy_from_slice(row);
        }
        let (row_stride, out_width) = (patches.stride * patches.padded().0, patches.out_width);
        let mut at = 0;
        for first in patches.window() {
            for row in 0..patches.out_height {
                let from = &self.padded[first + row * row_stride..];
                let into = &mut self.columns[at..];
                if patches.stride == 1 {
                    copy(from, into, out_width);
                } else {
                    let from = from.iter().step_by(patches.stride);
                    for (value, pixel) in into[..out_width].iter_mut().zip(from) {
                        *value = *pixel;
                    }
                }
                at += out_width;
            }
        }
        &self.columns[..at]
    }

    /// Adds each value of the `patch x places` matrix that `fill` writes to the pixel it came from: the transpose of
    /// [`gather`](Self::gather). Writes the whole of `image`.
    pub(crate) fn scatter(&mut self, patches: &Patches, image: &mut [f32], fill: impl FnOnce(&mut [f32])) {
        if patches.is_image() {
            return fill(image);
        }
        self.prepare(patches);
        let size = patches.patch() * patches.places();
        fill(&mut self.columns[..size]);
        self.padded.fill(0.0);
        let (row_stride, out_width) = (patches.stride * patches.padded().0, patches.out_width);
        let mut rows = self.columns[..size].chunks_exact(out_width);
        for first in patches.window() {
            for (row, from) in rows.by_ref().take(patches.out_height).enumerate() {
                let into = &mut self.padded[first + row * row_stride..];
                if patches.stride == 1 {
                    for (pixel, value) in into[..out_width].iter_mut().zip(from) {
                        *pixel += value;
                    }
                } else {
                    for (pixel, value) in into.iter_mut().step_by(patches.stride).zip(from) {
                        *pixel += value;
                    }
                }
            }
        }
        for (first, row) in patches.rows().zip(image.chunks_exact_mut(patches.width)) {
            row.copy_from_slice(&self.padded[first..first + patches.width]);
        }
        self.padded.fill(0.0);
    }

    /// Makes the buffers as large as needed, the padding 0.
    fn prepare(&mut self, patches: &Patches) {
        let (width, height) = patches.padded();
        self.padded.resize(patches.channels * height * width + COPY, 0.0);
        self.columns.resize(patches.patch() * patches.places() + COPY, 0.0);
    }
}

/// Copies `count` values, and up to `COPY - 1` more that come to lie where the next copy goes.
fn copy(from: &[f32], into: &mut [f32], count: usize) {
    for start in (0..count).step_by(COPY) {
        let block = into[start..].first_chunk_mut::<COPY>();
        if let (Some(into), Some(from)) = (block, from[start..].first_chunk()) {
            *into = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// <gather(image), columns> = <image, scatter(columns)>, for every window.
        #[test]
        fn scattering_is_the_transpose_of_gathering(
            (channels, height, width) in (1usize..3, 1usize..40, 1usize..40),
            (kernel, stride, padding) in (1usize..6, 1usize..4, 0usize..5),
            seed in 1usize..1000,
        ) {
            let padding = padding.min(kernel - 1);
            prop_assume!(height + 2 * padding >= kernel && width + 2 * padding >= kernel);
            let out = |side: usize| (side + 2 * padding - kernel) / stride + 1;
            let (out_height, out_width) = (out(height), out(width));
            let patches = Patches { channels, height, width, kernel, stride, padding, out_height, out_width };
            let whole = |index: usize| ((index * seed) % 7) as f32 - 3.0;
            let image: Vec<f32> = (0..patches.image()).map(whole).collect();
            let weights: Vec<f32> = (0..patches.patch() * patches.places()).map(|i| whole(i + 1)).collect();
            let mut scratch = Columns::default();
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let mut scattered = vec![f32::NAN; image.len()];
            scratch.scatter(&patches, &mut scattered, |columns| columns.copy_from_slice(&weights));
            let gathered = scratch.gather(&patches, &image);
            prop_assert_eq!(dot(gathered, &weights), dot(&image, &scattered));
            // The pixel under the middle of the window.
            let (middle, place) = (patches.patch() / 2, patches.places() / 2);
            let (channel, within) = (middle / (kernel * kernel), middle % (kernel * kernel));
            let y = (place / out_width * stride + within / kernel).checked_sub(padding);
            let x = (place % out_width * stride + within % kernel).checked_sub(padding);
            let pixel = match (y, x) {
                (Some(y), Some(x)) if y < height && x < width => image[(channel * height + y) * width + x],
                _ => 0.0,
            };
            prop_assert_eq!(gathered[middle * patches.places() + place], pixel);
        }
    }
}
