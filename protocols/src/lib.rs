//! How a federation learns: descriptions, messages, the wire, algorithms.

pub mod wire;
