//! What a forward is for.

use rand_chacha::ChaCha8Rng;

/// What a forward is for.
pub enum Mode<'a> {
    /// Nothing is drawn and no statistics change.
    Evaluate,
    /// Dropout draws from the generator, each layer from a stream of its own at the generator's
    /// [position](ChaCha8Rng::set_word_pos), which the caller moves from step to step; batch norm uses and follows the
    /// batch's statistics.
    Train(&'a ChaCha8Rng),
    /// As [`Evaluate`](Self::Evaluate), but batch norm uses the batch's statistics and leaves them, unsmoothed, in the
    /// buffers: what [`Moments`](crate::Moments) are taken from.
    Calibrate,
}
