//! What the engine hears and what it answers.

use std::sync::Arc;

use selvedge_protocols::{
    Card, ClientName, Rejection, Width,
    evaluation::Tested,
    message::{Evaluation, Task},
    sections::SectionHeader,
    split::{FromClient, FromServer},
    update::TrainingReport,
};
use serde::{Deserialize, Serialize};

use super::{GlobalModel, Inspector, Opened, Snapshot};
use crate::{Trial, record::RoundRecord};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A client connected, for the first time or again.
    Joined {
        /// The client.
        client: ClientName,
        /// The largest width that it can train, by what it has reported.
        width: Option<Width>,
    },
    /// A client's connection ended.
    Left {
        /// The client.
        client: ClientName,
        /// Whether it said that it will not come back.
        for_good: bool,
    },
    /// A client has an update ready.
    Offered {
        /// The client.
        client: ClientName,
        /// The round it says the update is for.
        round: u32,
        /// What it says that it has done.
        task: Task,
        /// What it says about its training.
        report: TrainingReport,
        /// What the update's blob holds.
        sections: Vec<SectionHeader>,
        /// The size of the update's blob.
        bytes: u64,
    },
    /// An update that was to be received is here and was opened by the round's [`Inspector`], or is not to be had.
    Received {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// What it is of.
        task: Task,
        /// The update, or why there is none.
        update: Result<Opened, Rejection>,
    },
    /// A client could not do what it was asked.
    Failed {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// What it was.
        task: Task,
        /// Its reason.
        reason: String,
    },
    /// A client evaluated the model on its own examples.
    Evaluated {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// The result.
        evaluation: Evaluation,
    },
    /// A client whose model is cut says something in the steps of a round.
    Stepped {
        /// The client.
        client: ClientName,
        /// What it says.
        message: FromClient,
        /// What came with it.
        payload: Vec<u8>,
    },
    /// A client said something in the steps of a round that cannot be one of them.
    Misstepped {
        /// The client.
        client: ClientName,
        /// What was wrong.
        reason: Rejection,
    },
    /// The coordinator's own evaluation.
    Tested {
        /// The round.
        round: u32,
        /// What was evaluated.
        trial: Trial,
        /// The result, `None` when there is no test set; or why there is none.
        evaluation: Result<Option<Tested>, String>,
    },
    /// Time passed. Due at [`Engine::next_deadline`](super::Engine::next_deadline).
    Tick,
    /// The operator wants the run to end.
    Stop,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Send a client its task. A client that is asked again for the same round has come back: it may answer with what
    /// it has already done.
    Ask {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// What it is to do.
        task: Task,
        /// With which part of the model.
        card: Card,
        /// The model.
        model: Arc<GlobalModel>,
    },
    /// Tell a client whose model is cut something in the steps of a round.
    Step {
        /// The client.
        client: ClientName,
        /// What it is told.
        message: FromServer,
        /// What goes with it.
        payload: Vec<u8>,
    },
    /// Receive what a client offered, open it with the inspector, and report [`Event::Received`].
    Receive {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// What it is of.
        task: Task,
        /// Checks and opens the update.
        inspector: Arc<Inspector>,
    },
    /// Tell a client what became of its answer. Of an update that is taken in, this comes when the round has moved
    /// the model.
    Answer {
        /// The client.
        client: ClientName,
        /// The round.
        round: u32,
        /// Whether it was taken in.
        verdict: Result<(), Rejection>,
    },
    /// Evaluate the model, or a sub-model, and report [`Event::Tested`].
    Test {
        /// The round.
        round: u32,
        /// What is evaluated.
        trial: Trial,
        /// Which sub-model, `None` for the whole model.
        card: Option<Card>,
        /// The model.
        model: Arc<GlobalModel>,
    },
    /// A round is over.
    Record(Box<RoundRecord>),
    /// Where the run is now, after the round that was recorded: it can be taken up again from here.
    Snapshot(Arc<Snapshot>),
    /// The run is over.
    Finish(Outcome),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All rounds were run.
    Completed,
    /// The operator ended it.
    Stopped,
    /// There were too few clients for too long.
    TooFewClients,
}
