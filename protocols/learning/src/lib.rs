//! How a federation learns: [algorithms](algorithm), [rules of aggregation](aggregation), [server steps](server) and
//! [filters], and an [update] on its way.
//!
//! ```
//! use selvedge_learning::{Algorithm, Vectors, algorithms::FedProx};
//! use selvedge_words::Choice;
//!
//! let chosen: Choice<dyn Algorithm> = Choice::of(FedProx { mu: 0.1 });
//! assert_eq!(chosen.kind(), "fedprox");
//! assert!(!chosen.keeps());
//! ```

pub mod aggregation;
pub mod algorithm;
pub mod algorithms;
pub mod context;
pub mod filters;
pub mod local;
pub mod memory;
pub mod sections;
pub mod server;
pub mod staleness;
pub mod update;
pub mod vectors;

mod broadcast;
mod state;

pub use algorithm::Algorithm;
pub use broadcast::{Broadcast, Precision};
pub use context::{Context, Metrics, Occasion};
pub use local::{LocalError, LocalSteps, Trained, Update};
pub use memory::Memory;
pub use state::{ALGORITHM, ServerState};
pub use vectors::{Shape, Vectors};
