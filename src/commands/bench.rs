//! `selvedge bench`: how fast this machine is, and how much of that a run uses.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    process::ExitCode,
    thread,
};

use clap::Args;
use selvedge_simulations::Benchmark;

use super::{Failure, print};

#[derive(Args)]
pub(crate) struct Bench {
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// How often everything is measured, some ten seconds each; the best counts
    #[arg(long, value_name = "N", default_value = "5")]
    turns: NonZeroUsize,
    /// Threads of the rounds with more than one worker, at most 256 [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let asked = self.workers.and_then(|workers| NonZeroUsize::new(workers.into()));
        let workers = asked.or_else(|| thread::available_parallelism().ok());
        let workers = workers.unwrap_or(NonZeroUsize::MIN);
        let benchmark = Benchmark::run(self.turns, workers, &mut |turn| {
            // Nothing is lost when it cannot be shown.
            let _ = writeln!(io::stderr(), "turn {turn} of {}", self.turns);
        })
        .map_err(Failure::system)?;
        match self.json {
            true => print(serde_json::to_string(&benchmark).map_err(Failure::system)?)?,
            false => print(benchmark)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
