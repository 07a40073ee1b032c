//! Which part of the model a client trains: a [plan] deals [cards](Card), and [`Parts`] says what they stand for.
//!
//! ```
//! use selvedge_parts::{Card, Width, plan::Plan, plans::Static};
//!
//! // Half of the units of a width group of 6, the same ones in every round.
//! let units = Static::default().units(&Card::new(0, 1, Width(0.5), vec![]), &[6]);
//! assert_eq!(units, [[0, 1, 2]]);
//! ```

pub mod parts;
pub mod plan;
pub mod plans;

pub use parts::{Division, Part, Parts, Ranking};
pub use plan::{Card, Width};
