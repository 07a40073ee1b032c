//! Trains on a device: local training, the agent, its kept state, the QUIC client.

pub mod agent;
pub mod command;
pub mod holding;
pub mod kept;
mod local;
pub mod trainer;

pub use agent::{Agent, AgentError, Ending, Moment};
pub use command::{ClientCommand, ClientError};
pub use holding::{Holding, Supply};
pub use trainer::{Examples, Trainer};
