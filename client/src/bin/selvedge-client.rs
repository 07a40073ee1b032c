//! `selvedge-client`: the small binary for devices. It carries no examples and fetches none.

use std::{io::Write as _, process::ExitCode};

use clap::Parser;
use selvedge_client::ClientCommand;

#[derive(Parser)]
#[command(name = "selvedge-client", version)]
struct Client {
    #[command(flatten)]
    command: ClientCommand,
}

fn main() -> ExitCode {
    match Client::parse().command.run() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error [{}]: {error}", error.code());
            ExitCode::FAILURE
        }
    }
}
