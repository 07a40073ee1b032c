//! How a federation learns, as one: the run's [description](Description) and the [messages](message), on top of what
//! they are about, which is each a crate of its own and found here too.
//!
//! ```
//! use selvedge_protocols::Description;
//!
//! let description = Description::parse(
//!     r#"
//!     rounds = 10
//!     clients = 4
//!     data = { source = "fashion-mnist-small" }
//!     model = { preset = "mlp" }
//!     training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
//!     algorithm = { kind = "fedprox", mu = 0.1 }
//!     server = [{ kind = "yogi" }]
//!     "#,
//!     "run.toml",
//!     &["rounds=20".parse()?],
//! )?;
//! assert_eq!((description.rounds, description.algorithm.kind()), (20, "fedprox"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod description;
pub mod evaluation;
pub mod message;

mod dealing;
mod resources;

pub use dealing::Dealt;
pub use description::Description;
pub use resources::{CannotTrain, Requirements, Resources};
pub use selvedge_learning::{
    ALGORITHM, Algorithm, Broadcast, Context, LocalError, LocalSteps, Memory, Metrics, Occasion, Precision,
    ServerState, Shape, Trained, Update, Vectors, aggregation, algorithm, algorithms, context, filters, local, memory,
    sections, server, staleness, update, vectors,
};
pub use selvedge_parts::{Card, Part, Parts, Ranking, Width, parts, plan, plans};
pub use selvedge_splitting as split;
pub use selvedge_wire as wire;
pub use selvedge_words::{Choice, ClientName, InvalidName, Purpose, Registry, Rejection, Seed, choice};
