//! Where a run's results go, and what is said meanwhile.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use selvedge_coordinator::{
    Outcome,
    results::{Results, ResultsError, Summary},
};
use selvedge_protocols::Description;

use super::{Failure, print};

/// Where results go, and what is said meanwhile.
#[derive(Args)]
pub(crate) struct Output {
    /// The folder of results [default: results/NAME]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print the summary as JSON, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Output {
    /// The folder of results for a run that begins.
    pub(crate) fn results(&self, description: &Description) -> Result<Results, ResultsError> {
        match &self.out {
            Some(folder) => Results::create(folder, description),
            None => Results::create_free(description),
        }
    }

    /// Tells how a run ended; the exit code says it too.
    pub(crate) fn conclude(
        &self,
        summary: &Summary,
        folder: &Path,
        how_to_go_on: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        if self.json {
            print(serde_json::to_string(summary).map_err(Failure::system)?)?;
        } else if !self.quiet {
            let (ended, measured) = match summary.outcome {
                Outcome::Completed => ("done", "test accuracy"),
                Outcome::Stopped => ("stopped", "last test accuracy"),
                Outcome::TooFewClients => ("ended for want of clients", "last test accuracy"),
            };
            let accuracy = summary
                .test_accuracy
                .map(|accuracy| format!(", {measured} {accuracy:.4}"));
            let (rounds, accuracy, seconds) = (summary.rounds, accuracy.unwrap_or_default(), summary.seconds);
            print(format_args!(
                "{ended} after {rounds} rounds and {seconds:.1} s{accuracy}"
            ))?;
            let report = folder.join("report.html");
            print(format_args!(
                "the trained weights, rounds and report are saved: {}",
                report.display()
            ))?;
            if let Some(how_to_go_on) = how_to_go_on.filter(|_| summary.outcome != Outcome::Completed) {
                print(how_to_go_on)?;
            }
        }
        match summary.outcome {
            Outcome::Completed if summary.applied == 0 => Err(Failure::nothing_applied()),
            Outcome::Completed => Ok(ExitCode::SUCCESS),
            Outcome::TooFewClients => Err(Failure::too_few_clients()),
            // As a shell reports a command that was interrupted.
            Outcome::Stopped => Ok(ExitCode::from(130)),
        }
    }
}
