//! Federated learning from a program of one's own: the one thing to import.
//!
//! A [`Description`] says everything about a run, from a file or built in code; a [`Federation`] runs it in this process
//! on data of the program's own; [`Server`] and [`Agent`] run it over the network, with what a [`Registry`] adds to the
//! algorithms, rules, filters and plans that come with Selvedge.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use selvedge::{Dataset, Description, Federation, Inputs, OptimiserDescription, Preset, Targets};
//!
//! // Two classes on a line.
//! let inputs = (0..200).map(|at| at as f32 / 100.0 - 1.0).collect();
//! let labels = (0..200).map(|at| u32::from(at >= 100)).collect();
//! let train = Dataset::new(Inputs::Floats(inputs), vec![1], Targets::Classes { labels, classes: 2 })?;
//!
//! let model = Preset::LogisticRegression.describe(&[1], 2);
//! let description = Description::new(model, OptimiserDescription::sgd(0.5), 20);
//! let finished = Federation::new(description, train.clone()).tested_on(train).run(|record| {
//!     match record.test_accuracy {
//!         Some(accuracy) if accuracy > 0.95 => ControlFlow::Break(()),
//!         _ => ControlFlow::Continue(()),
//!     }
//! })?;
//! assert!(finished.records.last().is_some_and(|last| last.test_accuracy > Some(0.95)));
//! # Ok::<(), selvedge::Error>(())
//! ```

mod federation;

/// The code in the book runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Book;

pub use federation::{Error, Federation, Finished};

pub use selvedge_client::{self as client, Agent, AgentError, Ending, Moment, Supply};
pub use selvedge_coordinator::{self as coordinator, Observer, Outcome, Progress, RoundRecord, Server};
pub use selvedge_data::{self as data, Dataset, Inputs, Partition, PartitionDescription, Targets};
pub use selvedge_models::{
    self as models, CandleModule, LayerDescription, ModelDescription, OptimiserDescription, Preset, Weights,
};
pub use selvedge_protocols::{self as protocols, Algorithm, Choice, Context, Description, Registry, Shape, Vectors};
pub use selvedge_simulations::{self as simulations, Simulation, SimulationError};
