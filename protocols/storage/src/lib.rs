//! What must outlive a process: files that are there whole or not at all, and states of which the last two generations
//! are kept.
//!
//! Everything goes through [`Files`], so that a test can stop it before any operation and lose what was not synced
//! ([`MemoryFiles`]). One process at a time writes to a path.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use selvedge_storage::{Generations, Loss, MemoryFiles};
//!
//! let files = Arc::new(MemoryFiles::default());
//! let (mut state, _) = Generations::open(files.clone(), Path::new("run"), "state")?;
//! state.write(1, b"after round 1")?;
//! state.write(2, b"after round 2")?;
//! let (state, recovered) = Generations::open(files, Path::new("run"), "state")?;
//! assert_eq!(state.whole(), [1, 2]);
//! assert_eq!(recovered.newest.map(|newest| newest.contents), Some(b"after round 2".to_vec()));
//! # Ok::<(), selvedge_storage::StorageError>(())
//! ```

mod files;
mod generations;
mod memory_files;
mod replace;
mod sealed;

pub use files::{Files, Listed, NewFile, RealFiles};
pub use generations::{Generation, Generations, Recovered};
pub use memory_files::{Loss, MemoryFiles};
pub use replace::{remove_all, replace};
pub use sealed::{seal, unseal};

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file or folder cannot be read or written.
    #[error("{}: cannot be {doing}: {error}; see that there is room, and that this user may write there", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A generation is damaged.
    #[error("{}: is damaged ({detail}); remove it, or put back a copy of it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// There are generations, but none is whole.
    #[error(
        "{}: no generation is whole (the newest: {detail}); put back a copy, or remove all that are left to begin afresh",
        path.display()
    )]
    NoneWhole {
        /// The newest.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A generation was to be written that is not newer than the last.
    #[error("{}: generation {number} cannot follow generation {last}; number it higher", folder.display())]
    OutOfOrder {
        /// The folder of the generations.
        folder: PathBuf,
        /// The last that is whole.
        last: u64,
        /// The one that was to be written.
        number: u64,
    },
}

impl StorageError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File {
            doing,
            path: path.into(),
            error,
        }
    }
}
