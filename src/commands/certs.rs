//! `selvedge certs`: an authority of one's own, and what it vouches for.

use std::{path::PathBuf, process::ExitCode, time::SystemTime};

use clap::{Args, Subcommand};
use selvedge_protocols::wire::{
    Existing, Validity,
    certificates::{issue, new_authority},
};

use super::{Failure, print};

#[derive(Args)]
pub(crate) struct Certs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an authority, and the coordinator's certificate
    New {
        /// The folder to write them to
        #[arg(default_value = "certs")]
        folder: PathBuf,
        /// A name or address by which clients reach the coordinator; may be given several times
        #[arg(long = "host", value_name = "NAME", default_values_t = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()])]
        hosts: Vec<String>,
        /// For how many days they are valid
        #[arg(long, default_value_t = 3650)]
        days: u16,
        /// Replace certificates that exist; all that were issued before become worthless
        #[arg(long)]
        force: bool,
    },
    /// Issue certificates for clients
    Issue {
        /// The authority's folder
        folder: PathBuf,
        /// The clients' names, such as `ward-7`
        #[arg(required = true)]
        names: Vec<String>,
        /// For how many days they are valid
        #[arg(long, default_value_t = 365)]
        days: u16,
        /// Replace certificates that exist
        #[arg(long)]
        force: bool,
    },
}

impl Certs {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let now = SystemTime::now();
        let existing = |force| {
            if force { Existing::Replace } else { Existing::Keep }
        };
        match self.command {
            Command::New {
                folder,
                hosts,
                days,
                force,
            } => {
                new_authority(&folder, &hosts, Validity::days(now, days), existing(force))?;
                let folder = folder.display();
                print(format_args!(
                    "{folder}: the authority and the coordinator's certificate for {}",
                    hosts.join(", ")
                ))?;
                print("Keep authority.key where nobody else can read it: it can make clients.")?;
            }
            Command::Issue {
                folder,
                names,
                days,
                force,
            } => {
                for name in names {
                    issue(&folder, &name, Validity::days(now, days), existing(force))?;
                    let folder = folder.display();
                    print(format_args!(
                        "{name}: give the device {folder}/{{authority.pem,{name}.pem,{name}.key}}"
                    ))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
