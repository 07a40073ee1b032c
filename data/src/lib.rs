//! Federated data sets: loaders, and partitions that deal examples to clients.
//!
//! A [`Source`] is loaded into a [`TrainAndTest`] of training and test [`Dataset`]s, held once. A
//! [`PartitionDescription`] deals the training examples to clients; the resulting [`Partition`] is nothing but
//! lists of indices, so a million clients are cheap.
//!
//! ```
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//! use selvedge_data::{Dataset, Inputs, PartitionDescription, Targets};
//!
//! let inputs = Inputs::Floats((0..100).map(|at| at as f32).collect());
//! let labels = (0..100).map(|at| at % 2).collect();
//! let dataset = Dataset::new(inputs, vec![1], Targets::Classes { labels, classes: 2 })?;
//! let dealt = PartitionDescription::Iid {}.deal(&dataset, 4, &mut ChaCha8Rng::seed_from_u64(7))?;
//! assert_eq!((dealt.clients(), dealt.client(0).len()), (4, 25));
//! # Ok::<(), selvedge_data::DataError>(())
//! ```

#[cfg(feature = "built-in")]
mod built_in;
mod categories;
mod compression;
mod csv_source;
mod csv_table;
mod dataset;
mod declared;
mod error;
#[cfg(feature = "fetch")]
mod fetch;
mod idx;
mod npy;
mod numpy_source;
mod partition;
mod show;
mod source;
mod target;
mod well_known;

pub use csv_source::{Categorical, ClassNames, Column, CsvTables, OneOrMore};
pub use dataset::{Dataset, Groups, Inputs, Targets, TrainAndTest};
pub use error::DataError;
#[cfg(feature = "fetch")]
pub use fetch::{FetchProgress, fetch};
pub use numpy_source::{ArrayFile, NumpyArrays};
pub use partition::{Partition, PartitionDescription};
pub use show::{ClientHolding, Holdings, describe};
pub use source::{DataSource, Source};
pub use target::TargetKind;
pub use well_known::WellKnownSet;
