//! `selvedge simulate`: a whole federation in this process.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, thread, time::SystemTime};

use clap::Args;
use crossbeam_channel::bounded;
use selvedge_coordinator::server::run_id;
use selvedge_data::describe;
use selvedge_simulations::{Simulation, SimulationError};

use super::{Failure, checkpoints::Resumption, description::Changes, output::Output};
use crate::progress::Display;

/// Clients whose holdings the report shows: more would be too narrow to see.
const CLIENTS_SHOWN: usize = 100;

#[derive(Args)]
pub(crate) struct Simulate {
    /// The description [default: the built-in example]
    file: Option<PathBuf>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    resumption: Resumption,
    /// Threads that train clients, each with a model of its own, no more than there are clients in a
    /// round; the results do not depend on it [default: the number of
    /// processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let described = self
            .resumption
            .describe("simulate", self.file.as_deref(), &self.changes)?;
        let description = described.description.clone();
        if description.capacities_are_reported() {
            return Err(SimulationError::NoShares.into());
        }
        let layout = description.model.layout()?;
        let split = description.data.load(&described.base)?;
        description.check_sets(&split)?;
        let dealt = description.deal(&split.train)?;
        let holdings = describe(&split.train, &dealt.all, CLIENTS_SHOWN);

        let run = run_id(&description, SystemTime::now());
        let mut saved = described.save(&self.output, run)?;
        let mut display = Display::new(description.rounds, self.output.quiet || self.output.json);
        let (end, stop) = bounded(1);
        let interrupt = end.clone();
        let mut asked = false;
        ctrlc::set_handler(move || {
            // Whoever asks twice does not want to wait.
            if std::mem::replace(&mut asked, true) {
                std::process::exit(130);
            }
            // Full means that the end was asked for already.
            let _ = interrupt.try_send(());
        })
        .map_err(Failure::system)?;
        let workers = self
            .workers
            .or_else(|| thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get);
        let simulation = Simulation {
            description: description.clone(),
            train: &split.train,
            test: split.test.as_ref(),
            shares: &dealt.shares,
            held_out: &dealt.held_out,
            initial: None,
            resume: saved.resume.take(),
            snapshots: saved.is_put_down(),
            workers,
            stop: Some(stop),
        };
        let mut failed = None;
        let (state, outcome) = simulation.run(&mut |progress| {
            display.show(&progress);
            let noted = saved.hear(progress, &layout);
            if let Ok(false) | Err(_) = noted {
                failed = failed.take().or(noted.err());
                let _ = end.try_send(());
            }
        })?;
        display.finish();
        if let Some(failure) = failed {
            return Err(failure);
        }
        let how_to_go_on = saved.finish("simulate")?;
        let seconds = saved.seconds();
        let folder = saved.results.folder().to_owned();
        let summary = saved
            .results
            .finish(outcome, &layout, &state, Some(&holdings), seconds)?;
        self.output.conclude(&summary, &folder, how_to_go_on.as_deref())
    }
}
