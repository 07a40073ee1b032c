//! `selvedge model`: what a model is made of.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use selvedge_models::Preset;

use super::{Failure, cuts::Cuts, description::Changes, print};

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
        #[arg(long, value_name = "NAME", value_parser = preset, conflicts_with_all = ["file", "set"])]
        preset: Option<Preset>,
        /// Show the model with only this share of the units of each width group, above 0 and at most 1
        #[arg(long, value_name = "SHARE", default_value = "1", value_parser = width)]
        width: f64,
        #[command(flatten)]
        changes: Changes,
        #[command(flatten)]
        cuts: Cuts,
    },
}

/// For how many examples at a time the memory is shown, unless said otherwise.
pub(super) const BATCH: u64 = 10;

impl Model {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Command::Show {
            file,
            preset,
            width,
            changes,
            cuts,
        } = self.command;
        let description = changes.read(file.as_deref())?;
        let model = match preset {
            Some(preset) => preset.describe(&[1, 28, 28], 10),
            None => description.model.clone(),
        };
        let units = model.layout()?.units_at(width);
        let model = model.thinned(&units, false)?;
        if cuts.are_wanted() {
            print(cuts.table(&model, &description)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let megabytes = model.training_memory(0, 2 * BATCH)? as f64 / 1e6;
        let summary = model.summary()?;
        print(format_args!(
            "{summary}\ntraining in batches of {BATCH} with plain SGD takes about {megabytes:.1} MB beside the examples and the \
             program"
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a width.
fn width(text: &str) -> Result<f64, String> {
    let width = text.parse().map_err(|_| "it is not a number".to_string())?;
    match width > 0.0 && width <= 1.0 {
        true => Ok(width),
        false => Err("it must be above 0 and at most 1".into()),
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
