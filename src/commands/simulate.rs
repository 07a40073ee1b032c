//! `selvedge simulate`: a whole federation in this process.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Arc, thread, time::Instant};

use clap::Args;
use crossbeam_channel::bounded;
use selvedge_coordinator::Progress;
use selvedge_data::describe;
use selvedge_simulations::{Simulation, SimulationError};

use super::{
    Failure,
    description::{Changes, base},
    output::Output,
};
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
    /// Threads that train clients, each with a model of its own, no more than there are clients in a
    /// round; the results do not depend on it [default: the number of
    /// processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let description = Arc::new(self.changes.read(self.file.as_deref())?);
        if description.capacities_are_reported() {
            return Err(SimulationError::NoShares.into());
        }
        let layout = description.model.layout()?;
        let split = description.data.load(&base(self.file.as_deref()))?;
        description.check_split(&split)?;
        let dealt = description.deal(&split.train)?;
        let holdings = describe(&split.train, &dealt.all, CLIENTS_SHOWN);

        let mut results = self.output.results(&description)?;
        let mut display = Display::new(description.rounds, self.output.quiet || self.output.json);
        let (end, stop) = bounded(1);
        let interrupt = end.clone();
        ctrlc::set_handler(move || {
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
            workers,
            stop: Some(stop),
        };
        let (state, outcome) = simulation.run(&mut |progress| {
            display.show(&progress);
            if let Progress::Record {
                record, units, fronts, ..
            } = progress
            {
                results.keep_fronts(fronts);
                results.count_units(units);
                if !results.record(record) {
                    let _ = end.try_send(());
                }
            }
        })?;
        display.finish();
        let seconds = started.elapsed().as_secs_f64();
        let folder = results.folder().to_owned();
        let summary = results.finish(outcome, &layout, &state, Some(&holdings), seconds)?;
        self.output.conclude(&summary, &folder)
    }
}
