//! Which description a command is about.

use std::path::{Path, PathBuf};

use clap::Args;
use selvedge_protocols::{
    Description, Seed,
    description::{DescriptionError, EXAMPLE, Override},
};

/// Changes to a description.
#[derive(Args)]
pub(crate) struct Changes {
    /// Set one key, such as `cohort.size=5`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// The run's seed, instead of the description's: 0 to 2^63 - 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=Seed::LARGEST))]
    seed: Option<u64>,
}

impl Changes {
    /// Reads `file`, or the built-in example when there is none, with the changes made.
    pub(crate) fn read(&self, file: Option<&Path>) -> Result<Description, DescriptionError> {
        let mut description = match file {
            Some(file) => Description::read(file, &self.set)?,
            None => Description::parse(EXAMPLE, "the built-in example", &self.set)?,
        };
        if let Some(seed) = self.seed {
            description.seed = Seed(seed);
        }
        Ok(description)
    }
}

impl Changes {
    /// Whether anything is to be changed.
    pub(crate) fn are_any(&self) -> bool {
        !self.set.is_empty() || self.seed.is_some()
    }

    /// A description's text with the changes made.
    pub(crate) fn applied_to(&self, text: &str, origin: &str) -> Result<Description, DescriptionError> {
        let mut description = Description::parse(text, origin, &self.set)?;
        if let Some(seed) = self.seed {
            description.seed = Seed(seed);
        }
        Ok(description)
    }
}

/// The folder that paths in a description are relative to: the one that the description is in.
pub(crate) fn base(file: Option<&Path>) -> PathBuf {
    file.and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
}
