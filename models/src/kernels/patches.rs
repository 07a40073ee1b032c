//! The patches of an image that a window looks at.

/// Which patches of an image a square window visits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Patches {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    /// Zeros on each side of an image, fewer than `kernel`.
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
    pub(crate) fn padded(&self) -> (usize, usize) {
        (self.width + 2 * self.padding, self.height + 2 * self.padding)
    }

    /// Values of one image with its padding.
    pub(super) fn padded_image(&self) -> usize {
        let (width, height) = self.padded();
        self.channels * height * width
    }

    /// Appends images with their padding to `padded`.
    pub(super) fn pad(&self, images: &[f32], padded: &mut Vec<f32>) {
        let (padding, (width, _)) = (self.padding, self.padded());
        let zeros = |padded: &mut Vec<f32>, count| padded.resize(padded.len() + count, 0.0);
        for channel in images.chunks_exact(self.height * self.width) {
            zeros(padded, padding * (width + 1));
            for row in channel.chunks_exact(self.width) {
                padded.extend_from_slice(row);
                // At the end of this row and at the beginning of the next.
                zeros(padded, 2 * padding);
            }
            zeros(padded, padding * (width - 1));
        }
    }

    /// Where the rows of an image begin in the padded one.
    pub(super) fn rows(&self) -> impl Iterator<Item = usize> + use<> {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Windows of all kinds on images of all kinds.
    pub(in crate::kernels) fn any(strides: std::ops::Range<usize>) -> impl Strategy<Value = Patches> {
        let image = (1usize..12, 1usize..14, 1usize..40);
        let window = (1usize..8, strides, 0usize..7);
        (image, window).prop_filter_map("the window fits", |(image, (kernel, stride, padding))| {
            Patches::over(&<[usize; 3]>::from(image), kernel, stride, padding.min(kernel - 1)).ok()
        })
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
