//! Convolution forward and backward, for whole batches.
//!
//! The places of all images are taken as one long row and cut into panels as wide as a tile. Under each panel the
//! patches' pixels are gathered, a part of the patch at a time so that they stay in the nearest cache, and multiplied
//! with the filters at once: the matrix of all patches is never written out.

use pulp::{Simd, WithSimd};

use super::{
    dispatch,
    panels::{Padded, Panel},
    patches::Patches,
    sparse::{Sparse, is_sparse},
    tile,
};

/// Values of padded images that are worked on at a time: they stay in a near cache beside the filters.
const IMAGES: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// Values of a panel that are gathered at a time: 24 KB, which leave room in a nearest cache of 32.
const PANEL: usize = 6144;

/// Panels, and pixels of the patch, that are gathered at a time for the filters' gradient: the same 24 KB with vectors
/// of eight values, as eight whole tiles of pixels.
const PANELS: usize = 8;
const PIXELS: usize = 48;

/// Scratch space for convolutions.
#[derive(Default)]
pub(crate) struct Convolution {
    padded: Padded,
    /// The filters in the order in which tiles read them.
    filters: Vec<f32>,
    /// The gathered patches.
    panels: Vec<f32>,
    /// The gradient from above, with channels side by side: `[column, place, channel of the column]`, where a column is
    /// as many channels as a tile is wide.
    above: Vec<f32>,
    sums: Vec<f32>,
    sparse: Sparse,
}

impl Convolution {
    /// Each filter's products with every patch, and its bias (none: 0): `filters` is a `channels x patch` matrix,
    /// `output` becomes `[images, channels, places]`.
    pub(crate) fn forward(
        &mut self,
        patches: &Patches,
        input: &[f32],
        filters: &[f32],
        bias: &[f32],
        output: &mut [f32],
    ) {
        let patch = patches.patch();
        let channels = filters.len() / patch;
        self.order_filters(channels, patch, |channel, pixel| filters[channel * patch + pixel]);
        self.convolve(patches, channels, bias, input, output);
    }

    /// Adds the gradient of the filters to `filter_gradient`, a `channels x patch` matrix, and writes that of the input
    /// where one is wanted. Where most of the gradient from above is 0, both are made place by place.
    pub(crate) fn backward(
        &mut self,
        patches: &Patches,
        input: &[f32],
        filters: &[f32],
        output_gradient: &[f32],
        filter_gradient: &mut [f32],
        input_gradient: Option<&mut [f32]>,
    ) {
        let is_sparse = is_sparse(output_gradient);
        if is_sparse {
            self.sparse
                .filter_gradient(patches, input, output_gradient, filter_gradient);
        } else {
            let channels = filters.len() / patches.patch();
            dispatch(FilterGradient {
                scratch: self,
                patches,
                channels,
                input,
                output_gradient,
                gradient: filter_gradient,
            });
        }
        let Some(input_gradient) = input_gradient else {
            return;
        };
        if is_sparse || patches.stride > 1 {
            self.sparse
                .input_gradient(patches, filters, output_gradient, input_gradient);
        } else {
            self.input_gradient(patches, filters, output_gradient, input_gradient);
        }
    }

    /// Writes the gradient at the input for a stride of 1. It is itself a convolution: of the gradient from above, with
    /// each filter turned around.
    fn input_gradient(
        &mut self,
        patches: &Patches,
        filters: &[f32],
        output_gradient: &[f32],
        input_gradient: &mut [f32],
    ) {
        let (patch, window) = (patches.patch(), patches.kernel * patches.kernel);
        let back = Patches {
            channels: filters.len() / patch,
            height: patches.out_height,
            width: patches.out_width,
            padding: patches.kernel - 1 - patches.padding,
            out_height: patches.height,
            out_width: patches.width,
            ..*patches
        };
        self.order_filters(patches.channels, back.patch(), |below, pixel| {
            let (channel, pixel) = (pixel / window, pixel % window);
            filters[channel * patch + below * window + window - 1 - pixel]
        });
        self.convolve(&back, patches.channels, &[], output_gradient, input_gradient);
    }

    /// Convolves a batch with the filters laid out.
    fn convolve(&mut self, patches: &Patches, channels: usize, bias: &[f32], input: &[f32], output: &mut [f32]) {
        let images = images_at_a_time(patches);
        let inputs = input.chunks(images * patches.image());
        for (input, output) in inputs.zip(output.chunks_mut(images * channels * patches.places())) {
            self.padded.fill(patches, input);
            dispatch(Convolve {
                scratch: self,
                patches,
                channels,
                bias,
                output,
            });
        }
    }

    /// Lays filters out as tiles read them: for each tile of channels, the pixels one after the other.
    fn order_filters(&mut self, channels: usize, patch: usize, filter: impl Fn(usize, usize) -> f32) {
        self.filters.clear();
        for rows in tile::tiles(channels) {
            for pixel in 0..patch {
                let values = (rows.first..rows.first + rows.count).map(|channel| filter(channel, pixel));
                self.filters.extend(values);
            }
        }
    }
}

/// How many images are worked on at a time.
fn images_at_a_time(patches: &Patches) -> usize {
    (IMAGES / patches.padded_image()).max(1)
}

/// Places of one image, side by side in a panel.
struct Span {
    image: usize,
    /// The first one's place in its image.
    place: usize,
    /// The first one's place in the panel.
    into: usize,
    length: usize,
}

/// The spans of the places `first..end`, where each image has `places`.
#[inline(always)]
fn spans(first: usize, end: usize, places: usize) -> impl Iterator<Item = Span> {
    let images = first / places..end.div_ceil(places);
    images.map(move |image| {
        let begin = first.max(image * places);
        Span {
            image,
            place: begin - image * places,
            into: begin - first,
            length: end.min((image + 1) * places) - begin,
        }
    })
}

struct Convolve<'a> {
    scratch: &'a mut Convolution,
    patches: &'a Patches,
    channels: usize,
    bias: &'a [f32],
    output: &'a mut [f32],
}

impl WithSimd for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            scratch,
            patches,
            channels,
            bias,
            output,
        } = self;
        let Convolution {
            padded,
            filters,
            panels,
            sums,
            ..
        } = scratch;
        let (patch, places) = (patches.patch(), patches.places());
        let width = tile::width::<S>();
        // Parts as equal as can be, none above what a panel may hold.
        let pixels = patch.div_ceil(patch.div_ceil(PANEL / width));
        panels.resize(pixels * width, 0.0);
        sums.resize(channels * width, 0.0);
        let all = output.len() / channels;
        for first in (0..all).step_by(width) {
            let panel = Panel::new::<S>(patches, first, all);
            if bias.is_empty() {
                sums.fill(0.0);
            }
            for (sums, bias) in sums.chunks_exact_mut(width).zip(bias) {
                sums.fill(*bias);
            }
            for pixel in (0..patch).step_by(pixels) {
                let count = pixels.min(patch - pixel);
                padded.gather(simd, &panel, pixel..pixel + count, panels);
                for rows in tile::tiles(channels) {
                    let filters = &filters[rows.first * patch + pixel * rows.count..][..count * rows.count];
                    let sums = &mut sums[rows.first * width..][..rows.count * width];
                    tile::add_product(simd, rows.count, filters, &panels[..count * width], sums);
                }
            }
            for span in spans(first, all.min(first + width), places) {
                let output = &mut output[span.image * channels * places..][..channels * places];
                for (output, sums) in output.chunks_exact_mut(places).zip(sums.chunks_exact(width)) {
                    let output = &mut output[span.place..span.place + span.length];
                    let sums = &sums[span.into..span.into + span.length];
                    if sums.len() == width {
                        S::as_mut_simd_f32s(output).0.copy_from_slice(S::as_simd_f32s(sums).0);
                    } else {
                        output.copy_from_slice(sums);
                    }
                }
            }
        }
    }
}

/// Rows that are turned together.
const TOGETHER: usize = 8;

/// Lays the rows of `from`, as many as `into` is wide at most, side by side, each value `width` behind the one before.
/// Rows begin `stride` values apart; the first `length` values of each are wanted.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn turn(from: &[f32], stride: usize, length: usize, into: &mut [f32], width: usize) {
    let count = from.len().div_ceil(stride);
    let whole = count / TOGETHER * TOGETHER;
    for first in (0..whole).step_by(TOGETHER) {
        let mut rows = [&[][..]; TOGETHER];
        for row in 0..TOGETHER {
            rows[row] = &from[(first + row) * stride..][..length];
        }
        for place in 0..length {
            let into = &mut into[place * width + first..][..TOGETHER];
            for row in 0..TOGETHER {
                into[row] = rows[row][place];
            }
        }
    }
    for row in whole..count {
        let from = &from[row * stride..][..length];
        for (into, from) in into[row..].iter_mut().step_by(width).zip(from) {
            *into = *from;
        }
    }
}

struct FilterGradient<'a> {
    scratch: &'a mut Convolution,
    patches: &'a Patches,
    channels: usize,
    input: &'a [f32],
    output_gradient: &'a [f32],
    gradient: &'a mut [f32],
}

impl WithSimd for FilterGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            scratch,
            patches,
            channels,
            input,
            output_gradient,
            gradient,
        } = self;
        let (patch, width) = (patches.patch(), tile::width::<S>());
        let columns = channels.div_ceil(width);
        scratch.panels.resize(PANELS * PIXELS * width, 0.0);
        // What lies beside the last channel is multiplied, but never read.
        scratch.above.resize(columns * PANELS * width * width, 0.0);
        scratch.sums.clear();
        scratch.sums.resize(columns * patch * width, 0.0);
        let images = images_at_a_time(patches);
        let inputs = input.chunks(images * patches.image());
        for (input, above) in inputs.zip(output_gradient.chunks(images * channels * patches.places())) {
            scratch.padded.fill(patches, input);
            scratch.add_filter_gradient(simd, patches, channels, above);
        }
        for (channel, gradient) in gradient.chunks_exact_mut(patch).enumerate() {
            let sums = &scratch.sums[channel / width * patch * width..][..patch * width];
            let sums = sums[channel % width..].iter().step_by(width);
            for (gradient, sum) in gradient.iter_mut().zip(sums) {
                *gradient += sum;
            }
        }
    }
}

impl Convolution {
    /// Adds the filters' gradient of the images at hand to `sums`: for each column of channels, `patch x width`.
    #[inline(always)]
    fn add_filter_gradient<S: Simd>(&mut self, simd: S, patches: &Patches, channels: usize, output_gradient: &[f32]) {
        let Self {
            padded,
            panels,
            above,
            sums,
            ..
        } = self;
        let (patch, places) = (patches.patch(), patches.places());
        let width = tile::width::<S>();
        let (columns, block) = (channels.div_ceil(width), PANELS * width);
        let all = output_gradient.len() / channels;
        for first in (0..all).step_by(block) {
            let end = all.min(first + block);
            for span in spans(first, end, places) {
                let from = &output_gradient[span.image * channels * places..][..channels * places];
                for (column, from) in from.chunks(width * places).enumerate() {
                    let into = &mut above[(column * block + span.into) * width..];
                    turn(&from[span.place..], places, span.length, into, width);
                }
            }
            let these: [_; PANELS] = std::array::from_fn(|panel| Panel::new::<S>(patches, first + panel * width, all));
            let these = &these[..(end - first).div_ceil(width)];
            for pixel in (0..patch).step_by(PIXELS) {
                let count = PIXELS.min(patch - pixel);
                let stride = count * width;
                for (panel, into) in these.iter().zip(panels.chunks_exact_mut(stride)) {
                    padded.gather(simd, panel, pixel..pixel + count, into);
                }
                for column in 0..columns {
                    let above = &above[column * block * width..][..(end - first) * width];
                    for rows in tile::tiles(count) {
                        let left = &panels[rows.first * width..these.len() * stride];
                        let sums = &mut sums[(column * patch + pixel + rows.first) * width..][..rows.count * width];
                        tile::add_product_of_panels(simd, rows.count, left, stride, above, sums);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{
        patches::tests::{any, under},
        with_lanes,
    };
    use proptest::prelude::*;

    fn whole(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * seed) % 7) as f32 - 3.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Small whole numbers, so that sums are exact in any order.
        #[test]
        fn forward_and_both_gradients_are_the_sums_they_are_defined_as(
            patches in any(1..3),
            (images, channels) in (1usize..4, 1usize..40),
            lanes in prop_oneof![Just(0usize), Just(1), Just(4), Just(16)],
            seed in 1usize..1000,
            zeros in 0usize..5,
        ) {
            let (patch, places, image) = (patches.patch(), patches.places(), patches.image());
            let input = whole(images * image, seed);
            let filters = whole(channels * patch, seed + 1);
            let bias = whole(channels, seed + 2);
            let mut above = whole(images * channels * places, seed + 3);
            above.iter_mut().enumerate().filter(|(index, _)| index % 5 < zeros).for_each(|(_, value)| *value = 0.0);
            let mut output: Vec<f32> = (0..above.len()).map(|index| bias[index / places % channels]).collect();
            let mut filter_gradient = vec![0.0; filters.len()];
            let mut input_gradient = vec![0.0; input.len()];
            for at in 0..above.len() {
                let (row, place) = (at / places, at % places);
                let (image_start, channel) = (row / channels * image, row % channels);
                for pixel in 0..patch {
                    if let Some(under) = under(&patches, pixel, place) {
                        let (filter, under) = (channel * patch + pixel, image_start + under);
                        output[at] += filters[filter] * input[under];
                        filter_gradient[filter] += above[at] * input[under];
                        input_gradient[under] += above[at] * filters[filter];
                    }
                }
            }
            with_lanes(lanes, || {
                let mut scratch = Convolution::default();
                for _ in 0..2 {
                    let mut computed = vec![f32::NAN; above.len()];
                    scratch.forward(&patches, &input, &filters, &bias, &mut computed);
                    assert_eq!(computed, output);
                    let (mut of_filters, mut of_input) = (vec![0.0; filters.len()], vec![f32::NAN; input.len()]);
                    scratch.backward(&patches, &input, &filters, &above, &mut of_filters, Some(&mut of_input));
                    assert_eq!(of_filters, filter_gradient);
                    assert_eq!(of_input, input_gradient);
                    scratch.backward(&patches, &input, &filters, &above, &mut of_filters, None);
                    let twice: Vec<f32> = filter_gradient.iter().map(|value| 2.0 * value).collect();
                    assert_eq!(of_filters, twice);
                }
            });
        }
    }
}
