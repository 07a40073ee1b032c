//! Trains on a device: local training, the agent, its kept state, the QUIC client.

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
