//! `selvedge check`: everything that can be found wrong before a run.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use selvedge_data::describe;

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
        let mut empty = 0;
        if !self.without_data {
            let split = description.data.load(&base(self.file.as_deref()))?;
            description.check_sets(&split)?;
            let holdings = describe(&split.train, &description.deal(&split.train)?.shares, 0);
            empty = holdings.empty_clients;
        }
        print(description.to_toml())?;
        print(format_args!("# in order; the model has {parameters} parameters"))?;
        if empty > 0 {
            let clients = description.clients;
            print(format_args!(
                "# {empty} of the {clients} clients hold no example: they can be selected, and do nothing"
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
