//! `selvedge data`: fetch data sets, and see how they are dealt.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use selvedge_data::{WellKnownSet, describe, fetch};

use super::{
    Failure,
    description::{Changes, base},
    print,
};
use crate::progress::Bytes;

/// Clients that are listed.
const ROWS: usize = 100;

#[derive(Args)]
pub(crate) struct Data {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch a data set from its public home, and check it
    Fetch {
        /// The data set
        set: Set,
        /// A folder or URL to fetch it from instead
        #[arg(long, value_name = "FOLDER-OR-URL")]
        from: Option<String>,
        /// The folder to put it in [default: datasets/SET]
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
    /// Show what each client of a description would hold
    Show {
        /// The description [default: the built-in example]
        file: Option<PathBuf>,
        #[command(flatten)]
        changes: Changes,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Set {
    Mnist,
    FashionMnist,
}

impl Data {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Fetch { set, from, into } => {
                let set = match set {
                    Set::Mnist => WellKnownSet::Mnist,
                    Set::FashionMnist => WellKnownSet::FashionMnist,
                };
                let into = into.unwrap_or_else(|| set.default_folder());
                let bar = Bytes::new();
                fetch(set, from.as_deref(), &into, &mut |so_far| {
                    bar.show(so_far.file, so_far.bytes, so_far.of);
                })?;
                bar.finish();
                print(format_args!("{}: fetched and checked", into.display()))?;
            }
            Command::Show { file, changes } => {
                let description = changes.read(file.as_deref())?;
                let split = description.data.load(&base(file.as_deref()))?;
                let dealt = description.deal(&split.train)?;
                print(describe(&split.train, &dealt.all, ROWS))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
