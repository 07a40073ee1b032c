//! `selvedge check`: everything that can be found wrong before a run.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    Failure,
    description::{Changes, base},
    print,
};

#[derive(Args)]
pub(crate) struct Check {
    /// The description [default: the built-in example]
    file: Option<PathBuf>,
    #[command(flatten)]
    changes: Changes,
    /// Do not look at the examples: they are on other machines
    #[arg(long)]
    without_data: bool,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let description = self.changes.read(self.file.as_deref())?;
        let parameters = description.model.layout()?.parameter_count();
        if !self.without_data {
            let split = description.data.load(&base(self.file.as_deref()))?;
            description.check_split(&split)?;
            description.deal(&split.train)?;
        }
        print(description.to_toml());
        print(format_args!("# in order; the model has {parameters} parameters"));
        Ok(ExitCode::SUCCESS)
    }
}
