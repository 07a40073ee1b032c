//! Split learning: a client trains the front of the model, the coordinator the back. What the methods are, what both
//! sides say in each step, and the back itself.
//!
//! ```
//! use selvedge_splitting::{SplitMethod, methods::{Parallel, SplitFedV1}};
//! use selvedge_words::Choice;
//!
//! let parallel: Choice<dyn SplitMethod> = Choice::of(Parallel::default());
//! assert!(parallel.keeps_fronts() && !parallel.has_a_back_for_each());
//! let splitfed: Choice<dyn SplitMethod> = Choice::of(SplitFedV1 {});
//! assert!(splitfed.has_a_back_for_each());
//! ```

pub mod alignment;
pub mod back;
pub mod batches;
pub mod encoding;
pub mod leader;
pub mod message;
pub mod method;
pub mod methods;
pub mod prediction;
pub mod targets;

pub use alignment::Alignment;
pub use back::{Arrival, Back};
pub use encoding::StepEncoding;
pub use message::{Exchange, FromClient, FromServer};
pub use method::SplitMethod;
pub use prediction::{Equipment, StepTime};
