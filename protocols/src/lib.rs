//! How a federation learns: the run's description, the messages, the wire, the algorithms, and what happens to an
//! update on its way.

pub mod aggregation;
pub mod algorithm;
pub mod algorithms;
pub mod choice;
pub mod context;
pub mod description;
pub mod evaluation;
pub mod filters;
pub mod local;
pub mod memory;
pub mod message;
pub mod parts;
pub mod plan;
pub mod plans;
pub mod sections;
pub mod server;
pub mod split;
pub mod staleness;
pub mod update;
pub mod vectors;
pub mod wire;

mod broadcast;
mod client_name;
mod dealing;
mod rejection;
mod resources;
mod seed;

pub use algorithm::Algorithm;
pub use broadcast::Broadcast;
pub use choice::{Choice, Registry};
pub use client_name::{ClientName, InvalidName};
pub use context::{Context, Metrics, Occasion};
pub use dealing::Dealt;
pub use description::Description;
pub use local::{LocalError, LocalSteps, Trained, Update};
pub use memory::Memory;
pub use parts::{Part, Parts, Ranking};
pub use plan::{Card, Width};
pub use rejection::Rejection;
pub use resources::{CannotTrain, Requirements, Resources};
pub use seed::{Purpose, Seed};
pub use server::ServerState;
pub use vectors::{Shape, Vectors};
