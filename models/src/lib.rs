//! Networks as lists of stages: layers, kernels, cutting, thinning.
//!
//! A [`ModelDescription`] is data: the shape of one example and a list of layers. From it come the [`Layout`] (where
//! every value lies), [`Weights`] (the values, flat) and a live [`Network`], which runs batches forward and backward.
//! Between two layers a model can be [cut](ModelDescription::cut); along a [`WidthGroup`] it can be [thinned](ModelDescription::thinned).
//! A [`SubModel`] says which of its values are kept.

mod calibration;
mod candle_module;
mod chain;
mod cuts;
mod description;
mod error;
mod footprint;
mod kernels;
mod layers;
mod layout;
mod loss;
mod network;
mod optimiser;
mod presets;
mod speed;
mod sub_model;
mod summary;
mod tape;
mod thinning;
mod weights;
mod width;

pub use calibration::Moments;
pub use candle_module::CandleModule;
pub use cuts::CutSummary;
pub use description::ModelDescription;
pub use error::{LayerProblem, ModelError};
pub use kernels::matrix::matrix_product;
pub use layers::{
    Attention, AveragePool2d, BatchNorm, Conv2d, Dense, Dropout, Embedding, Flatten, Gelu, GroupNorm, LayerDescription,
    LayerNorm, MaxPool2d, Relu, Residual, Scaler, Sigmoid, Tanh,
};
pub use layout::{Entry, Initial, Layout};
pub use loss::{Loss, LossValue, Score, Targets};
pub use network::{Mode, Network};
pub use optimiser::{Optimiser, OptimiserDescription};
pub use presets::Preset;
pub use speed::training_speed;
pub use sub_model::{Coordinates, SubModel};
pub use summary::{LayerSummary, STEP, Summary, grouped};
pub use thinning::units_kept;
pub use weights::Weights;
pub use width::{Axis, Group, WidthGroup};

/// The most values a model may have as parameters, and as buffers.
pub const LARGEST_MODEL: usize = 1 << 31;

/// The most values one example may hold between two layers.
pub const LARGEST_VALUE: usize = 1 << 28;
