//! Networks as lists of stages: layers, kernels, cutting, thinning.
//!
//! A [`ModelDescription`] is data: the shape of one example and a list of layers. From it come the [`Layout`] (where
//! every value lies), [`Weights`] (the values, flat) and a live [`Network`], which runs batches forward and backward.
//! Between two layers a model can be [cut](ModelDescription::cut); along a [`WidthGroup`] it can be [thinned](ModelDescription::thinned).
//! A [`SubModel`] says which of its values are kept. A layer can come from a crate outside, as a [`CustomLayer`] or as a
//! [`CandleModule`].
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//! use selvedge_models::{Mode, Network, Preset, Weights};
//!
//! let model = Preset::Mlp.describe(&[1, 28, 28], 10);
//! let mut network = Network::new(&model, &Device::Cpu)?;
//! network.load(&Weights::initial(&model, &mut ChaCha8Rng::seed_from_u64(7))?)?;
//! let images = Tensor::zeros((2, 1, 28, 28), candle_core::DType::F32, &Device::Cpu)?;
//! assert_eq!(network.forward(&images, &mut Mode::Evaluate)?.dims(), [2, 10]);
//!
//! // After its first layers it can be cut in two: a front for the client, a back for the server.
//! let (front, back) = model.cut(2)?;
//! assert_eq!(front.output()?, back.input);
//! # Ok::<(), selvedge_models::ModelError>(())
//! ```

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
mod network;
mod optimiser;
mod pass;
mod pieces;
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
pub use loss::{BatchTargets, Loss, LossValue, Score};
pub use mode::Mode;
pub use network::Network;
pub use optimiser::{Optimiser, OptimiserDescription};
pub use pieces::{Cut, Pieces};
pub use presets::Preset;
pub use speed::training_speed;
pub use sub_model::{Coordinates, SubModel};
pub use summary::{LayerSummary, ModelSummary, STEP, grouped};
pub use thinning::units_kept;
pub use weights::{Weights, all_finite};
pub use width::{Axis, Group, WidthGroup};
