//! `selvedge model`: what a model is made of.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use selvedge_models::Preset;

use super::{Failure, description::Changes, print};

#[derive(Args)]
pub(crate) struct Model {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show layers, shapes, parameters, floating-point work, cut points and width groups
    Show {
        /// A description whose model to show [default: the built-in example]
        file: Option<PathBuf>,
        /// Show a preset instead
        #[arg(long, value_name = "NAME", value_parser = preset, conflicts_with = "file")]
        preset: Option<Preset>,
        #[command(flatten)]
        changes: Changes,
    },
}

impl Model {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Command::Show { file, preset, changes } = self.command;
        let model = match preset {
            Some(preset) => preset.describe(&[1, 28, 28], 10),
            None => changes.read(file.as_deref())?.model,
        };
        print(model.summary()?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a preset's name as a description does.
fn preset(name: &str) -> Result<Preset, String> {
    use serde::{
        Deserialize,
        de::value::{Error, StrDeserializer},
    };
    Preset::deserialize(StrDeserializer::<Error>::new(name)).map_err(|error| error.to_string())
}
