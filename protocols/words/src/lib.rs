//! What every part of a federation speaks of: [names](ClientName) of clients, [seeds](Seed) of random streams,
//! [reasons](Rejection) why something does not count, and what a description [chooses](choice) by its kind.
//!
//! ```
//! use rand::Rng;
//! use selvedge_words::{ClientName, Purpose, Seed};
//!
//! let client = ClientName::new("ward-3")?;
//! let draw = |round| Seed(7).client_stream(Purpose::Training, round, &client).random::<u64>();
//! // A stream is a function of the seed, of what it is for, of the round and of the client.
//! assert_eq!(draw(1), draw(1));
//! assert_ne!(draw(1), draw(2));
//! # Ok::<(), selvedge_words::InvalidName>(())
//! ```

pub mod choice;

mod client_name;
mod rejection;
mod seed;

pub use choice::{AlreadyKnown, Choice, Registry};
pub use client_name::{ClientName, InvalidName};
pub use rejection::Rejection;
pub use seed::{Purpose, Seed};
