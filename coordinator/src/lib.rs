//! Runs rounds: the round engine, evaluation, records, and the QUIC server.

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
