//! The `selvedge` command: the front door, nothing else.

mod commands;
mod progress;

use std::{io::Write, process::ExitCode};

use clap::Parser;

/// Small allocations are made and freed in every step; this allocator does not give their pages back each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match commands::Selvedge::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to be done when even this cannot be written.
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
