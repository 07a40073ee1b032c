//! The QUIC server: drives the round engine with what clients say and with real time, and tells clients what it
//! decides.
//!
//! One task for each connection reads and writes; all that is heard goes through one bounded queue to the driver, which
//! alone owns the engine and lends it to a thread of its own for as long as it takes something in. The driver never waits
//! for a client: what it says goes into that client's own bounded queue, and a client that lets it fill up is dropped.

mod advice;
mod broadcasts;
mod door;
mod driver;
mod evaluation;
mod notices;
mod reception;
mod session;
mod standing;
mod thinking;

use std::{sync::Arc, time::SystemTime};

use selvedge_data::Dataset;
use selvedge_models::{ModelError, Weights};
use selvedge_protocols::{
    Description, LocalError, Purpose, Requirements, ServerState,
    description::DescriptionError,
    message::ToClient,
    wire::{Limits, Listener, WireError, codec},
};
use tokio::sync::mpsc;

use self::driver::Driver;
use crate::{Clients, Engine, Observer, Outcome, Roster, TakenUp};

/// Updates that are received at a time, beside the one that is folded next.
const WINDOW: usize = 8;
/// What may wait for the driver, over all clients.
const HEARD: usize = 64;

/// A coordinator that is about to serve a run.
#[derive(Debug)]
pub struct Server {
    /// The run.
    pub description: Arc<Description>,
    /// Tells this run from others: see [`run_id`].
    pub run: String,
    /// When it begins, for the first time or anew: tells this beginning from others of the same run.
    pub began: SystemTime,
    /// The coordinator's test set.
    pub test: Option<Arc<Dataset>>,
    /// The model's first weights; `None` when they are to be drawn from the run's seed.
    pub initial: Option<Weights>,
    /// Where the run was put down, if it is taken up again: then the first weights do not matter.
    pub resume: Option<TakenUp>,
    /// Whether whoever watches is told where the run is after each round.
    pub snapshots: bool,
    /// The open door.
    pub listener: Listener,
}

/// Why a run could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The description is not in order, or does not go with the test examples.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The description is too long to be sent to a client.
    #[error("the description cannot be sent to clients: {0}")]
    TooLong(#[from] codec::CodecError),
    /// The broadcast cannot be offered.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The model cannot be built.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A thread of the coordinator's own ended.
    #[error("a thread of the coordinator's own has ended unexpectedly")]
    ThreadEnded,
}

impl From<ModelError> for ServerError {
    fn from(error: ModelError) -> Self {
        Self::Local(error.into())
    }
}

/// Names a run by its description and the moment it began. A coordinator that is started anew begins at round 1 with
/// fresh weights, even with the same description: what a client kept from the time before must not be used, so it must
/// be another run.
pub fn run_id(description: &Description, began: SystemTime) -> String {
    let since = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut hasher = blake3::Hasher::new_derive_key("selvedge 1 run");
    hasher.update(&since.as_nanos().to_le_bytes());
    hasher.update(description.to_toml().as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

impl Server {
    /// Serves the run from its first weights, and gives the final state and how the run ended. When `stop` is ready the
    /// run ends before its time.
    ///
    /// Folding updates takes the processor's time: run this as the root of a multi-threaded runtime (`block_on`), not
    /// as a task of its own, so that it keeps no connection waiting.
    ///
    /// # Errors
    /// When the model cannot be built. Nothing that a client does is an error.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()>,
        observe: Observer<'_>,
    ) -> Result<(ServerState, Outcome), ServerError> {
        let Self {
            description,
            run,
            began,
            test,
            initial,
            resume,
            snapshots,
            listener,
        } = self;
        description.check()?;
        description.check_initial(initial.as_ref())?;
        if let Some(test) = &test {
            description.check_data(test, "the test examples")?;
        }
        let since = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let welcome = ToClient::Welcome {
            run,
            description: description.to_toml(),
            // It comes round again after 584 years.
            beginning: since.as_nanos() as u64,
        };
        codec::encode(&welcome)?;
        let parts = Arc::new(description.parts()?);
        let reported = description.capacities_are_reported();
        let requirements = reported.then(|| Requirements::of(&parts, &description)).transpose()?;
        let drawn = || Weights::drawn(parts.layout(), &mut description.seed.stream(Purpose::Initialisation));
        let initial = initial.unwrap_or_else(drawn);
        initial.check(parts.layout())?;
        let engine = Engine::new(
            description.clone(),
            parts,
            initial,
            Roster::Joined(Default::default()),
            WINDOW,
        );
        let mut engine = engine;
        let mut put_down = None;
        if let Some(TakenUp {
            snapshot,
            clients,
            resumable,
        }) = resume
        {
            engine = engine.resumed(&snapshot)?;
            // What was known of simulated clients says nothing about those that will come.
            let accepted = match clients {
                Clients::Networked(accepted) => accepted,
                Clients::Simulated(_) => Default::default(),
            };
            put_down = Some((accepted, resumable));
        }
        if snapshots {
            engine = engine.with_snapshots();
        }
        let limits = Limits::from(&description.network);
        let largest_step = description.largest_step();
        let listener = Arc::new(listener);
        let (signals, heard) = mpsc::channel(HEARD);
        let advice = advice::Advice::of(&description)?;
        let mut driver = Driver::new(description, requirements, advice, engine, test, welcome, heard, limits);
        match put_down {
            Some((accepted, resumable)) => driver.taken_up(accepted, resumable),
            None if snapshots => driver.begun(observe),
            None => {}
        }
        let door = door::Door {
            listener: listener.clone(),
            limits,
            store: driver.store(),
            largest_step,
            signals,
        };
        let door = tokio::spawn(door.keep());
        let ended = driver.drive(stop, observe).await;
        door.abort();
        let reason = ended
            .as_ref()
            .map_or("the coordinator has failed", |(_, outcome)| driver.reason(*outcome));
        listener.close(reason).await;
        ended
    }
}
