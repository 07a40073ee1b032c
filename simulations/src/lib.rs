//! Whole federations in one process.

pub mod benchmark;
mod driver;
pub mod simulation;
mod timed;
mod trials;
mod worker;

pub use benchmark::Benchmark;
pub use simulation::{Simulation, SimulationError};
