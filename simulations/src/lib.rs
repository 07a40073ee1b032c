//! Whole federations in one process.
//!
//! ```
//! use std::sync::Arc;
//! use selvedge_data::{Dataset, Inputs, Targets};
//! use selvedge_models::{OptimiserDescription, Preset};
//! use selvedge_protocols::Description;
//! use selvedge_simulations::Simulation;
//!
//! let inputs = Inputs::Floats((0..40).map(|at| at as f32 / 20.0 - 1.0).collect());
//! let labels = (0..40).map(|at| u32::from(at >= 20)).collect();
//! let train = Dataset::new(inputs, vec![1], Targets::Classes { labels, classes: 2 })?;
//! let model = Preset::LogisticRegression.describe(&[1], 2);
//! let description = Description::new(model, OptimiserDescription::sgd(0.1), 3);
//! let dealt = description.deal(&train)?;
//! let simulation = Simulation {
//!     description: Arc::new(description),
//!     train: &train,
//!     test: None,
//!     shares: &dealt.shares,
//!     held_out: &dealt.held_out,
//!     initial: None,
//!     resume: None,
//!     snapshots: false,
//!     workers: 2,
//!     stop: None,
//! };
//! let (state, outcome) = simulation.run(&mut |_progress| {})?;
//! println!("{outcome:?}: {} parameters", state.weights.parameters.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod benchmark;
mod driver;
pub mod simulation;
mod timed;
mod trials;
mod worker;

pub use benchmark::Benchmark;
pub use simulation::{Simulation, SimulationError};
