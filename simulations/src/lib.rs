//! Whole federations in one process.

mod driver;
pub mod simulation;
mod worker;

pub use simulation::{Simulation, SimulationError};
