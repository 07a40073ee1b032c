//! Runs rounds: the round engine, evaluation, records, and the QUIC server.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use selvedge_coordinator::{Engine, Event, Roster};
//! use selvedge_models::{OptimiserDescription, Preset, Weights};
//! use selvedge_protocols::{ClientName, Description, Purpose};
//!
//! // The engine has no I/O: whoever drives it tells it what happens, and does what it says.
//! let model = Preset::LogisticRegression.describe(&[2], 2);
//! let description = Arc::new(Description::new(model, OptimiserDescription::sgd(0.1), 3));
//! let parts = Arc::new(description.parts()?);
//! let initial = Weights::initial(&description.model, &mut description.seed.stream(Purpose::Initialisation))?;
//! let roster = Roster::Joined(Default::default());
//! let mut engine = Engine::new(description, parts, initial, roster, 8);
//! let client = ClientName::new("ward-3")?;
//! let joined = Event::Joined { client, width: None };
//! engine.handle(Duration::ZERO, joined);
//! assert!(engine.next_deadline().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod checkpoint;
pub mod engine;
pub mod progress;
pub mod record;
pub mod results;
pub mod server;
mod trial;

pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, Clients, TakenUp};
pub use engine::{Action, Engine, Event, GlobalModel, Outcome, Roster, Snapshot};
pub use progress::{Observer, Progress};
pub use record::{RoundRecord, StitchedRecord};
pub use results::{Results, ResultsError, Summary};
pub use server::{Server, ServerError};
pub use trial::Trial;
