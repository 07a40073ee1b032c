//! Trains on a device: local training, the agent, its kept state, the QUIC client.

pub mod trainer;

pub use trainer::{Examples, Trainer};
