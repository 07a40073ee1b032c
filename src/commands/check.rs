//! `selvedge check`: everything that can be found wrong before a run.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{Failure, print, run::Changes};

#[derive(Args)]
pub(crate) struct Check {
    /// The description [default: the built-in example]
    file: Option<PathBuf>,
    #[command(flatten)]
    changes: Changes,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let description = self.changes.read(self.file.as_deref())?;
        let layout = description.model.layout()?;
        print(description.to_toml());
        print(format_args!(
            "# in order; the model has {} parameters",
            layout.parameter_count()
        ));
        Ok(ExitCode::SUCCESS)
    }
}
