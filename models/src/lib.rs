//! Networks as lists of stages: layers, kernels, cutting, thinning.
//!
//! A [`ModelDescription`] is data: the shape of one example and a list of layers. From it come the [`Layout`] (where
//! every value lies), [`Weights`] (the values, flat) and a live [`Network`], which runs batches forward and backward.
//! Between two layers a model can be [cut](ModelDescription::cut); along a [`WidthGroup`] it can be [thinned](ModelDescription::thinned).
//! A [`SubModel`] says which of its values are kept. A layer can come from a crate outside, as a [`CustomLayer`] or as a
//! [`CandleModule`].

mod assembly;
mod calibration;
mod chain;
mod cuts;
mod definition;
mod description;
mod error;
mod footprint;
mod kernels;
pub mod layer;
mod layers;
mod layout;
mod limits;
mod loss;
mod mode;
mod names;
mod network;
mod optimiser;
mod pass;
mod presets;
mod speed;
mod sub_model;
mod summary;
mod tape;
mod thinning;
mod weights;
mod width;

pub use calibration::Moments;
pub use cuts::CutSummary;
pub use description::ModelDescription;
pub use error::{LayerProblem, ModelError};
pub use kernels::matrix::matrix_product;
pub use layers::*;
pub use layout::{Entry, Initial, Layout};
pub use limits::{LARGEST_MODEL, LARGEST_VALUE};
pub use loss::{Loss, LossValue, Score, Targets};
pub use mode::Mode;
pub use network::Network;
pub use optimiser::{Optimiser, OptimiserDescription};
pub use presets::Preset;
pub use speed::training_speed;
pub use sub_model::{Coordinates, SubModel};
pub use summary::{LayerSummary, STEP, Summary, grouped};
pub use thinning::units_kept;
pub use weights::{Weights, all_finite};
pub use width::{Axis, Group, WidthGroup};
