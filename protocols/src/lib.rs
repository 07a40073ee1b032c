//! How a federation learns: the run's description, the messages, the wire, the algorithms, and what happens to an
//! update on its way.

pub mod aggregation;
pub mod algorithm;
pub mod algorithms;
pub mod description;
pub mod evaluation;
pub mod filters;
pub mod message;
pub mod parts;
pub mod plan;
pub mod plans;
pub mod sections;
pub mod split;
pub mod update;
pub mod wire;

mod broadcast;
mod client_name;
mod dealing;
mod rejection;
mod resources;
mod seed;

pub use algorithm::{Algorithm, Federation, LocalError, LocalSteps, ServerState, Trained, Update, Vectors};
pub use broadcast::Broadcast;
pub use client_name::{ClientName, InvalidName};
pub use dealing::Dealt;
pub use description::Description;
pub use parts::{Part, Parts, Ranking};
pub use plan::{Card, Width};
pub use rejection::Rejection;
pub use resources::{CannotTrain, Requirements, Resources};
pub use seed::{Purpose, Seed};
