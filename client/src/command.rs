//! The command line of a client, the same for `selvedge client` and `selvedge-client`.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::Args;
use selvedge_data::{DataError, Source};
use selvedge_models::{ModelError, training_speed};
use selvedge_protocols::{
    Description, Registry,
    description::DescriptionError,
    wire::{Credentials, WireError},
};
use tokio::runtime;

use crate::{Agent, AgentError, Ending, Supply};

/// Take part in a federation: train what a coordinator sends, on examples that stay here.
#[derive(Args, Debug)]
pub struct ClientCommand {
    /// The coordinator
    #[arg(value_name = "HOST:PORT")]
    coordinator: String,
    /// The folder with this client's certificate and key, and the authority's certificate
    #[arg(long, value_name = "FOLDER", default_value = "certs")]
    certs: PathBuf,
    /// This client's name, as in its certificate
    #[arg(long)]
    name: String,
    #[command(flatten)]
    examples: ExamplesFrom,
    /// The folder for what the algorithm keeps here from round to round, if anything, so that it outlives this process and
    /// the run: of this client's last 8 runs
    #[arg(long, value_name = "FOLDER", default_value = "selvedge-state")]
    state: PathBuf,
    /// Write the final model to this file, as safetensors, once the run is over; where clients have layers of their own,
    /// there is no one model
    #[arg(long, value_name = "FILE")]
    keep_model: Option<PathBuf>,
    /// Memory for training, in megabytes, beside what the program and the examples take: where clients report what they
    /// have, this one gets a sub-model that fits
    #[arg(long, value_name = "MB", value_parser = above_zero)]
    memory: Option<f64>,
    /// Speed of training, in billions of floating-point operations a second, or `measure`: where clients report what they
    /// have, this one gets a sub-model that it can train within a round; where models are cut, the coordinator says how
    /// long a step should take
    #[arg(long, value_name = "GFLOPS", value_parser = speed)]
    speed: Option<Speed>,
    /// Give up after so long without a coordinator
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    give_up_after: u64,
    /// Say nothing but errors
    #[arg(long)]
    quiet: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct ExamplesFrom {
    /// A TOML file with the keys of [data], or a description: all its training examples are this client's
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// For trials on one machine: take [data] of this description, and of it the share that a simulation deals to the
    /// client with this name
    #[arg(long, value_name = "DESCRIPTION")]
    deal: Option<PathBuf>,
}

/// How fast a client trains.
#[derive(Clone, Copy, Debug)]
enum Speed {
    /// So many billions of operations a second.
    Given(f64),
    /// To be measured.
    Measured,
}

/// How long a client measures its speed.
const MEASURED: Duration = Duration::from_millis(200);

impl Speed {
    /// In operations a second.
    fn operations(self) -> Result<f64, ModelError> {
        match self {
            Self::Given(billions) => Ok(billions * 1e9),
            Self::Measured => training_speed(MEASURED),
        }
    }
}

/// Why a client's command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A certificate cannot be used.
    #[error(transparent)]
    Credentials(#[from] WireError),
    /// A file with the keys of `[data]` cannot be read or is none.
    #[error("{}: {detail}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The description is none.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The examples cannot be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The runtime cannot be started, or signals cannot be caught.
    #[error("this process cannot be set up: {0}")]
    System(#[from] io::Error),
    /// The speed of this machine cannot be measured.
    #[error("the speed of training cannot be measured: {0}")]
    Speed(#[from] ModelError),
    /// The agent gave up.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl ClientError {
    /// A short, stable name for the kind of error; the book has a line on each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Credentials(error) => error.code(),
            Self::Source { .. } => "E-CLIENT-SOURCE",
            Self::Description(error) => error.code(),
            Self::Data(error) => error.code(),
            Self::System(_) | Self::Speed(_) => "E-SYSTEM",
            Self::Agent(error) => error.code(),
        }
    }
}

impl ClientCommand {
    /// Takes part until the run is over. The exit code is 130 when the client was interrupted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let quiet = self.quiet;
        let say = |line: &dyn std::fmt::Display| {
            if !quiet {
                let _ = writeln!(io::stderr(), "{line}");
            }
        };
        let speed = self.speed.map(Speed::operations).transpose()?;
        if let (Some(Speed::Measured), Some(speed)) = (self.speed, speed) {
            say(&format_args!("this machine trains {:.1} GFLOP/s", speed / 1e9));
        }
        let credentials = Credentials::from_folder(&self.certs, &self.name, SystemTime::now())?;
        let agent = Agent {
            coordinator: self.coordinator,
            credentials,
            supply: self.examples.load()?,
            registry: Registry::new(),
            memory: self.memory.map(|megabytes| (megabytes * 1e6) as u64),
            speed,
            state: Some(self.state),
            keep_model: self.keep_model,
            give_up_after: Duration::from_secs(self.give_up_after),
        };
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let ended = runtime.block_on(async {
            let stop = interrupted()?;
            Ok::<_, ClientError>(agent.run(stop, &mut |moment| say(&moment)).await?)
        });
        // A thread that still trains is not waited for.
        runtime.shutdown_background();
        Ok(match ended? {
            Ending::Finished(reason) => {
                say(&format_args!("the run is over: {reason}"));
                ExitCode::SUCCESS
            }
            Ending::Stopped => {
                say(&"stopped");
                // As a shell reports a command that was interrupted.
                ExitCode::from(130)
            }
        })
    }
}

impl ExamplesFrom {
    fn load(&self) -> Result<Supply, ClientError> {
        let load = |source: Source, file: &Path| {
            let split = source.load(file.parent().unwrap_or(Path::new("")))?;
            Ok::<_, ClientError>(Arc::new(split.train))
        };
        match (&self.data, &self.deal) {
            (Some(file), _) => {
                let source = read_source(file)?;
                source.check_shared()?;
                Ok(Supply::Own(load(source, file)?))
            }
            (None, Some(file)) => {
                let source = Description::read(file, &[])?.data;
                Ok(Supply::Dealt(load(source, file)?))
            }
            (None, None) => Err(ClientError::Source {
                path: PathBuf::new(),
                detail: "say where the examples are, with --data or --deal".into(),
            }),
        }
    }
}

/// Reads a speed.
fn speed(text: &str) -> Result<Speed, String> {
    match text {
        "measure" => Ok(Speed::Measured),
        text => above_zero(text)
            .map(Speed::Given)
            .map_err(|error| format!("{error}, and it is not `measure`")),
    }
}

/// Reads a number above 0.
fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_string())?;
    match number > 0.0 && number.is_finite() {
        true => Ok(number),
        false => Err("it must be above 0".into()),
    }
}

/// Reads a file with the keys of `[data]`, under that header or without it.
fn read_source(file: &Path) -> Result<Source, ClientError> {
    let failed = |detail: String| ClientError::Source {
        path: file.into(),
        detail,
    };
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let mut table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| failed(error.to_string()))?;
    let data = match table.remove("data") {
        Some(data) => data,
        None => table.into(),
    };
    data.try_into()
        .map_err(|error: toml::de::Error| failed(error.to_string()))
}

/// The exit status of a process that was interrupted, as shells report it.
const INTERRUPTED: i32 = 130;

/// Ready when the process is asked to end, by Ctrl-C or the system. Asked a second time, the process ends at once.
///
/// # Errors
/// When signals cannot be caught.
pub fn interrupted() -> io::Result<impl Future<Output = ()> + use<>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut asked = async move || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        Ok(async move {
            asked().await;
            tokio::spawn(async move {
                asked().await;
                std::process::exit(INTERRUPTED)
            });
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}
