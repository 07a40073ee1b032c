//! Trains on a device: local training, the agent, its kept state, the QUIC client.
//!
//! ```
//! use std::sync::{Arc, atomic::AtomicBool};
//! use selvedge_client::{Examples, Trainer};
//! use selvedge_data::{Dataset, Inputs, Targets};
//! use selvedge_models::{OptimiserDescription, Preset, Weights};
//! use selvedge_protocols::{Broadcast, ClientName, Description, Memory, Purpose};
//!
//! let labels = (0..40).map(|at| at % 2).collect();
//! let inputs = Inputs::Floats((0..40).map(|at| (at % 2) as f32).collect());
//! let dataset = Dataset::new(inputs, vec![1], Targets::Classes { labels, classes: 2 })?;
//! let model = Preset::LogisticRegression.describe(&[1], 2);
//! let description = Description::new(model, OptimiserDescription::sgd(0.1), 3);
//! let initial = Weights::initial(&description.model, &mut description.seed.stream(Purpose::Initialisation))?;
//!
//! let (parts, client) = (description.parts()?, ClientName::new("ward-3")?);
//! let broadcast = Broadcast::bare(initial);
//! let (indices, mut kept): (Vec<u32>, _) = ((0..40).collect(), Memory::default());
//! let examples = Examples { dataset: &dataset, indices: &indices };
//! let mut trainer = Trainer::new(Arc::new(AtomicBool::new(false)));
//! let update = trainer.train(&description, parts.whole(), &client, 1, &broadcast, examples, &mut kept)?;
//! assert_eq!(update.report.examples, 40);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
mod batches;
pub mod command;
pub mod front;
pub mod holding;
pub mod kept;
mod local;
pub mod trainer;

pub use agent::{Agent, AgentError, Ending, Moment};
pub use command::{ClientCommand, ClientError};
pub use front::{Front, Said};
pub use holding::{Holding, Supply};
pub use trainer::{Examples, Trainer};
