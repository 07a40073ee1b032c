//! `selvedge coordinator`: runs a federation over the network.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use selvedge_client::command::interrupted;
use selvedge_coordinator::{Progress, Server, server::run_id};
use selvedge_protocols::wire::{Credentials, Limits, Listener, certificates::COORDINATOR};
use tokio::{runtime::Runtime, sync::Notify};

use super::{
    Failure,
    description::{Changes, base},
    output::Output,
};
use crate::progress::Display;

fn address(text: &str) -> Result<SocketAddr, String> {
    let message = "write IP:PORT, such as 0.0.0.0:4433 for every interface, or 127.0.0.1:4433 for this machine only";
    text.parse().map_err(|_| message.into())
}

#[derive(Args)]
pub(crate) struct Coordinator {
    /// The description
    file: PathBuf,
    /// The folder of certificates, as `selvedge certs new` makes it
    #[arg(long, value_name = "FOLDER", default_value = "certs")]
    certs: PathBuf,
    /// The address to listen on; port 0 takes any free one
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:4433", value_parser = address)]
    listen: SocketAddr,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    output: Output,
}

impl Coordinator {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let description = Arc::new(self.changes.read(Some(&self.file))?);
        let base = base(Some(&self.file));
        let layout = description.model.layout()?;
        // The examples to train on stay with the clients; what the coordinator has of its own is the test set.
        let test = description.data.load_test(&base)?.map(Arc::new);
        if let Some(test) = &test {
            description.check_data(test, "the test examples")?;
        }
        let credentials = Credentials::from_folder(&self.certs, COORDINATOR, SystemTime::now())?;

        let runtime = Runtime::new().map_err(Failure::system)?;
        let entered = runtime.enter();
        let limits = Limits::from(&description.network);
        let listener = Listener::bind(self.listen, &credentials, limits)?;
        let address = listener.local_address()?;
        let stop = interrupted().map_err(Failure::system)?;
        drop(entered);
        let mut results = self.output.results(&description)?;
        let mut display = Display::new(description.rounds, self.output.quiet || self.output.json);
        // Even when quiet: with port 0 nobody could know it otherwise.
        writeln!(io::stderr(), "listening on {address}").map_err(Failure::system)?;

        let began = SystemTime::now();
        let server = Server {
            description: description.clone(),
            run: run_id(&description, began),
            began,
            test,
            listener,
        };
        let unwritable = Notify::new();
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = unwritable.notified() => {}
            }
        };
        let served = runtime.block_on(server.serve(stop, &mut |progress| {
            display.show(&progress);
            if let Progress::Record {
                record, units, fronts, ..
            } = progress
            {
                results.keep_fronts(fronts);
                results.count_units(units);
                if !results.record(record) {
                    unwritable.notify_one();
                }
            }
        }));
        // An evaluation that is still under way after an interruption is not waited for.
        runtime.shutdown_timeout(Duration::ZERO);
        display.finish();
        let (state, outcome) = served?;
        let seconds = started.elapsed().as_secs_f64();
        let folder = results.folder().to_owned();
        let summary = results.finish(outcome, &layout, &state, None, seconds)?;
        self.output.conclude(&summary, &folder)
    }
}
