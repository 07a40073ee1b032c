//! `selvedge coordinator`: runs a federation over the network.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::Args;
use selvedge_client::command::interrupted;
use selvedge_coordinator::{Outcome, Progress, Server, Summary, server::run_id};
use selvedge_models::Layout;
use selvedge_protocols::{
    ServerState,
    wire::{Credentials, Limits, Listener, certificates::COORDINATOR},
};
use tokio::{runtime::Runtime, sync::Notify};

use super::{
    Failure,
    checkpoints::{Resumption, Saved},
    description::Changes,
    output::Output,
};
use crate::progress::Display;

fn address(text: &str) -> Result<SocketAddr, String> {
    let message = "write IP:PORT, such as 0.0.0.0:4433 for every interface, or 127.0.0.1:4433 for this machine only";
    text.parse().map_err(|_| message.into())
}

#[derive(Args)]
pub(crate) struct Coordinator {
    /// The description; not needed with --resume
    #[arg(required_unless_present = "resume")]
    file: Option<PathBuf>,
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
    #[command(flatten)]
    resumption: Resumption,
}

impl Coordinator {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let described = self
            .resumption
            .describe("coordinator", self.file.as_deref(), &self.changes)?;
        let description = described.description.clone();
        let layout = description.model.layout()?;
        // The examples to train on stay with the clients; what the coordinator has of its own is the test set.
        let test = description.data.load_test(&described.base)?.map(Arc::new);
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
        let run = run_id(&description, SystemTime::now());
        let mut saved = described.save(&self.output, run)?;
        let mut display = Display::new(description.rounds, self.output.quiet || self.output.json);
        // Even when quiet: with port 0 nobody could know it otherwise.
        writeln!(io::stderr(), "listening on {address}").map_err(Failure::system)?;

        let began = SystemTime::now();
        let server = Server {
            description: description.clone(),
            run: saved.run.clone(),
            began,
            test,
            initial: None,
            resume: saved.resume.take(),
            snapshots: saved.is_put_down(),
            listener,
        };
        let unwritable = Notify::new();
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = unwritable.notified() => {}
            }
        };
        let (mut failed, mut ended) = (None, None);
        let mut saved = Some(saved);
        let served = runtime.block_on(server.serve(stop, &mut |progress| {
            display.show(&progress);
            let Some(writing) = &mut saved else { return };
            let ended_now = match progress {
                Progress::Ended { outcome, state, .. } => Some((outcome, state)),
                _ => None,
            };
            let noted = writing.hear(progress, &layout);
            // Now, and not when all clients have hung up: who asked for the end may not wait that long.
            if let Some((outcome, state)) = ended_now {
                ended = saved.take().map(|saved| finish(saved, outcome, &layout, state));
            }
            if let Ok(false) | Err(_) = noted {
                failed = failed.take().or(noted.err());
                unwritable.notify_one();
            }
        }));
        // An evaluation that is still under way after an interruption is not waited for.
        runtime.shutdown_timeout(Duration::ZERO);
        display.finish();
        served?;
        match (failed, ended) {
            (Some(failure), _) => Err(failure),
            (None, Some(ended)) => {
                let (summary, folder, how_to_go_on) = ended?;
                self.output.conclude(&summary, &folder, how_to_go_on.as_deref())
            }
            (None, None) => Err(Failure::system("the run has ended without a word")),
        }
    }
}

/// Writes what a run leaves: the summary, its folder, and how it can go on.
fn finish(
    mut saved: Saved,
    outcome: Outcome,
    layout: &Layout,
    state: &ServerState,
) -> Result<(Summary, PathBuf, Option<String>), Failure> {
    let how_to_go_on = saved.finish("coordinator")?;
    let seconds = saved.seconds();
    let folder = saved.results.folder().to_owned();
    let summary = saved.results.finish(outcome, layout, state, None, seconds)?;
    Ok((summary, folder, how_to_go_on))
}
