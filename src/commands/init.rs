//! `selvedge init`: a commented description to start from.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use selvedge_protocols::description::EXAMPLE;

use super::{Failure, print};

#[derive(Args)]
pub(crate) struct Init {
    /// The file to write
    #[arg(default_value = "selvedge.toml")]
    file: PathBuf,
}

impl Init {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let file = self.file.display();
        // Never over a file that is there: it may be somebody's work.
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.file)
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => format!("{file} exists already, and is left as it is: name another file"),
                _ => format!("{file}: cannot be created: {error}"),
            })
            .map_err(Failure::system)?;
        new.write_all(EXAMPLE.as_bytes())
            .map_err(|error| Failure::system(format!("{file}: cannot be written: {error}")))?;
        print(format_args!("{file} is written; run it with: selvedge simulate {file}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
