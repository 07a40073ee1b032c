//! Whole federations in one process.

pub mod simulation;

pub use simulation::{Simulation, SimulationError};
