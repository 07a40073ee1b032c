//! Split learning: a client trains the front of the model, the coordinator the back. What the methods are, what both
//! sides say in each step, and the back itself.

pub mod alignment;
pub mod back;
pub mod batches;
pub mod encoding;
pub mod leader;
pub mod message;
pub mod method;
pub mod methods;
pub mod pieces;
pub mod prediction;
pub mod targets;

pub use alignment::Alignment;
pub use back::{Arrival, Back};
pub use encoding::StepEncoding;
pub use message::{Exchange, FromClient, FromServer};
pub use method::SplitMethod;
pub use pieces::{Cut, Pieces};
pub use prediction::{Devices, StepTime};
