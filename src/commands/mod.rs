//! The commands, a file each.

mod bench;
mod certs;
mod check;
mod checkpoints;
mod coordinator;
mod cuts;
mod data;
mod description;
mod failure;
mod init;
mod model;
mod output;
mod simulate;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use selvedge_client::ClientCommand;

pub(crate) use failure::Failure;

/// Federated learning: run a federation, simulated or over the network, from one description.
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Selvedge {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a commented description of a run
    Init(init::Init),
    /// Check a description, and show it with every default filled in
    Check(check::Check),
    /// Simulate a federation in this process
    Simulate(simulate::Simulate),
    /// Run a federation over the network
    Coordinator(coordinator::Coordinator),
    /// Take part in a federation: train what a coordinator sends, on examples that stay here
    Client(ClientCommand),
    /// Make the certificates that coordinator and clients know one another by
    Certs(certs::Certs),
    /// Fetch data sets, and show how they are dealt to clients
    Data(data::Data),
    /// Show models
    Model(model::Model),
    /// Measure how fast this machine is, and how much of that a run uses
    Bench(bench::Bench),
}

impl Selvedge {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Init(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Simulate(command) => command.run(),
            Command::Coordinator(command) => command.run(),
            Command::Client(command) => Ok(command.run()?),
            Command::Certs(command) => command.run(),
            Command::Data(command) => command.run(),
            Command::Model(command) => command.run(),
            Command::Bench(command) => command.run(),
        }
    }
}

/// Prints a result. A reader that has gone away (`selvedge … | head`) is no failure.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}
