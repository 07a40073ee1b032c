//! Panels of patches: under each of a few places, the pixels that a window sees there.

use pulp::Simd;

use super::{
    patches::Patches,
    tile::{VECTORS, WIDEST, width},
};

/// Zeros before and after the images: a vector may be read that only partly lies in them.
const MARGIN: usize = WIDEST / VECTORS;

/// Images with their padding, and where in them the pixels of a patch lie.
#[derive(Default)]
pub(super) struct Padded {
    values: Vec<f32>,
    /// How far each pixel of a patch lies behind its first.
    window: Vec<usize>,
}

impl Padded {
    /// Takes in a batch of images.
    pub(super) fn fill(&mut self, patches: &Patches, images: &[f32]) {
        self.values.clear();
        self.values.resize(MARGIN, 0.0);
        patches.pad(images, &mut self.values);
        self.values.resize(self.values.len() + MARGIN, 0.0);
        self.window.clear();
        self.window.extend(patches.window());
    }

    /// Writes some of the pixels of the patches at a panel's places: a row of a tile's width for each pixel.
    #[inline(always)]
    pub(super) fn gather<S: Simd>(&self, simd: S, panel: &Panel, pixels: std::ops::Range<usize>, into: &mut [f32]) {
        let window = &self.window[pixels];
        let rows = S::as_mut_simd_f32s(into).0.as_chunks_mut::<VECTORS>().0;
        for vector in 0..VECTORS {
            let rows = rows.iter_mut().zip(window);
            match *panel.pieces(vector) {
                [] => {}
                [one] => {
                    for (row, offset) in rows {
                        row[vector] = load::<S>(&self.values, one.from + offset);
                    }
                }
                [one, other] => {
                    let is_one = simd.mask_between_m32s(0, other.lane).mask();
                    for (row, offset) in rows {
                        let one = load::<S>(&self.values, one.from + offset);
                        let other = load::<S>(&self.values, other.from + offset);
                        row[vector] = simd.select_f32s(is_one, one, other);
                    }
                }
                [first, ref others @ ..] => {
                    for (row, offset) in rows {
                        let mut values = load::<S>(&self.values, first.from + offset);
                        for piece in others {
                            let is_before = simd.mask_between_m32s(0, piece.lane).mask();
                            let piece = load::<S>(&self.values, piece.from + offset);
                            values = simd.select_f32s(is_before, values, piece);
                        }
                        row[vector] = values;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd>(values: &[f32], at: usize) -> S::f32s {
    S::as_simd_f32s(&values[at..at + S::F32_LANES]).0[0]
}

/// Places side by side, as many as a tile is wide: where their patches begin among the padded images.
pub(super) struct Panel {
    pieces: [Piece; WIDEST],
    /// Where each vector's pieces end.
    ends: [usize; VECTORS],
}

/// Places whose patches begin at pixels side by side, up to where the vector's next piece begins.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// The first one's place in its vector.
    lane: u32,
    /// Where the patch of the vector's first place would begin.
    from: usize,
}

impl Panel {
    /// The panel that begins at place `first` of the `places` that all images have; the last may be cut short.
    pub(super) fn new<S: Simd>(patches: &Patches, first: usize, places: usize) -> Self {
        const { assert!(width::<S>() <= WIDEST) };
        let (padded_width, _) = patches.padded();
        let image = patches.padded_image();
        let (mut at, within) = (first / patches.places() * image, first % patches.places());
        let (mut y, mut x) = (within / patches.out_width, within % patches.out_width);
        let mut panel = Self {
            pieces: [Piece::default(); WIDEST],
            ends: [0; VECTORS],
        };
        let (mut count, mut expected, mut left) = (0, usize::MAX, places.saturating_sub(first));
        for end in &mut panel.ends {
            for lane in 0..S::F32_LANES.min(left) {
                let start = MARGIN + at + (y * padded_width + x) * patches.stride;
                if lane == 0 || start != expected {
                    panel.pieces[count] = Piece {
                        lane: lane as u32,
                        from: start - lane,
                    };
                    count += 1;
                }
                expected = start + 1;
                x += 1;
                if x == patches.out_width {
                    (x, y) = (0, y + 1);
                }
                if y == patches.out_height {
                    (y, at) = (0, at + image);
                }
            }
            left = left.saturating_sub(S::F32_LANES);
            *end = count;
        }
        panel
    }

    fn pieces(&self, vector: usize) -> &[Piece] {
        let begin = vector.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.pieces[begin..self.ends[vector]]
    }
}
