//! Checkpoints: a run put down in its folder of results, from which it can be taken up again.
//!
//! | file | holds |
//! |---|---|
//! | `checkpoints/run.N` | a [`Checkpoint`] after round N; the last two are kept |

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use selvedge_protocols::{ClientName, Description, Memory, wire::codec};
use selvedge_storage::{Files, Generations, RealFiles, StorageError};
use serde::{Deserialize, Serialize};

use crate::engine::Snapshot;

/// The folder of checkpoints in a folder of results.
pub(crate) const FOLDER: &str = "checkpoints";
const NAME: &str = "run";

/// All that is needed to take a run up again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which run it is, so that clients know what they have kept for it.
    pub run: String,
    /// Its description.
    pub description: String,
    /// The folder that paths in the description are relative to.
    pub base: PathBuf,
    /// How long it has run.
    pub seconds: f64,
    /// Rounds from one checkpoint to the next.
    pub every: u32,
    /// Whether the model of the best round is saved too.
    pub keep_best: bool,
    /// Where it is.
    pub snapshot: Arc<Snapshot>,
    /// Beside the engine, what there is to be known of its clients.
    pub clients: Clients,
}

/// What is known of a run's clients between two rounds, beside the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Clients {
    /// Of a simulation: what they keep.
    Simulated(BTreeMap<ClientName, Arc<Memory>>),
    /// Of a run over the network: the last round in which each one's update was taken in.
    Networked(BTreeMap<ClientName, u32>),
}

impl Clients {
    /// The command that such a run is taken up with.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Simulated(_) => "simulate",
            Self::Networked(_) => "coordinator",
        }
    }
}

/// Where a run is taken up again.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenUp {
    /// The run.
    pub snapshot: Arc<Snapshot>,
    /// Its clients.
    pub clients: Clients,
    /// The rounds after which it could be taken up: that of the snapshot, and what else is written down.
    pub resumable: Vec<u32>,
}

/// Why a run cannot be taken up again.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no checkpoint.
    #[error("{}: there is no checkpoint of a run in this folder; give the folder of results of a run with --checkpoint-every", folder.display())]
    None {
        /// The folder.
        folder: PathBuf,
    },
    /// The file is whole, but of another version of Selvedge.
    #[error("{}: the checkpoint cannot be read ({detail}); take the run up with the version of Selvedge that made it", folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A simulation is to be taken up over the network, or the other way round.
    #[error("{}: this run was put down by another command; take it up with `selvedge {command} --resume`", folder.display())]
    OtherKind {
        /// The folder.
        folder: PathBuf,
        /// The command.
        command: &'static str,
    },
    /// The run cannot be put down.
    #[error(
        "a run with {} cannot be put down and taken up again: leave --checkpoint-every out",
        what
    )]
    NotPossible {
        /// What it has.
        what: &'static str,
    },
    /// The run was begun with another description.
    #[error("the description is not that of the run that was put down; `-` is its, `+` is yours:\n{difference}")]
    Differs {
        /// The lines that differ.
        difference: String,
    },
}

impl CheckpointError {
    /// A short, stable name for the kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Storage(_) => "E-CHECKPOINT-FILE",
            Self::None { .. } => "E-CHECKPOINT-NONE",
            Self::OtherKind { .. } => "E-CHECKPOINT-KIND",
            Self::NotPossible { .. } => "E-CHECKPOINT-NOT-POSSIBLE",
            Self::Unreadable { .. } => "E-CHECKPOINT-VERSION",
            Self::Differs { .. } => "E-CHECKPOINT-DIFFERS",
        }
    }
}

/// The checkpoints of a run, in its folder of results.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    generations: Generations,
    /// The last that is not written yet.
    pending: Option<Checkpoint>,
}

impl Checkpoints {
    /// The checkpoints in a folder of results, and the last of them that is whole, if any; what is said of damaged ones is for
    /// a person.
    ///
    /// # Errors
    /// When the folder cannot be read, or none of the checkpoints in it is whole.
    pub fn open(folder: &Path) -> Result<(Self, Option<Checkpoint>, Vec<String>), CheckpointError> {
        Self::open_with(Arc::new(RealFiles), folder)
    }

    /// [`open`](Self::open) with other files than those of the system.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(
        files: Arc<dyn Files>,
        folder: &Path,
    ) -> Result<(Self, Option<Checkpoint>, Vec<String>), CheckpointError> {
        let (generations, recovered) = Generations::open(files, &folder.join(FOLDER), NAME)?;
        let read = |contents: &[u8]| {
            codec::decode_kept(contents).map_err(|error| CheckpointError::Unreadable {
                folder: folder.into(),
                detail: error.to_string(),
            })
        };
        let newest = recovered.newest.map(|newest| read(&newest.contents)).transpose()?;
        let damaged = recovered.damaged.iter().map(ToString::to_string).collect();
        let checkpoints = Self {
            folder: folder.into(),
            generations,
            pending: None,
        };
        Ok((checkpoints, newest, damaged))
    }

    /// Takes in where the run is; writes it down when that is due.
    ///
    /// # Errors
    /// When it cannot be written: the last that was is there still.
    pub fn take(&mut self, checkpoint: Checkpoint) -> Result<(), CheckpointError> {
        let is_due = checkpoint.snapshot.round.is_multiple_of(checkpoint.every.max(1));
        self.pending = Some(checkpoint);
        match is_due {
            true => self.finish(),
            false => Ok(()),
        }
    }

    /// Writes down where the run was last, if that is not written yet.
    ///
    /// # Errors
    /// When it cannot be written: the last that was is there still.
    pub fn finish(&mut self) -> Result<(), CheckpointError> {
        let Some(checkpoint) = self.pending.take() else {
            return Ok(());
        };
        let contents = codec::encode_kept(&checkpoint).map_err(|error| CheckpointError::Unreadable {
            folder: FOLDER.into(),
            detail: error.to_string(),
        })?;
        Ok(self.generations.write(checkpoint.snapshot.round.into(), &contents)?)
    }

    /// The folder of results that they are in.
    pub fn results(&self) -> PathBuf {
        self.folder.clone()
    }

    /// The rounds after which the run may be taken up again: those that are written, and the one that will be, if it ends now.
    pub fn rounds(&self) -> Vec<u32> {
        let numbers = self.generations.whole().iter();
        let written = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
        let pending = self.pending.as_ref().map(|pending| pending.snapshot.round);
        written.chain(pending).collect()
    }
}

/// Whether a run can be put down after a round: one in which clients are under way between rounds, or in virtual time, cannot.
///
/// # Errors
/// When it cannot.
pub fn check_possible(description: &Description, is_simulated: bool) -> Result<(), CheckpointError> {
    let what = match description {
        Description { buffer: Some(_), .. } => "buffered rounds",
        Description { devices: Some(_), .. } if is_simulated => "devices in virtual time",
        _ => return Ok(()),
    };
    Err(CheckpointError::NotPossible { what })
}

/// Whether `given` describes the run that was put down: but for its name and what matters over the network only.
///
/// # Errors
/// When it does not; the error shows the lines that differ.
pub fn check_same(put_down: &Description, given: &Description) -> Result<(), CheckpointError> {
    let mut given = given.clone();
    given.name.clone_from(&put_down.name);
    given.network.clone_from(&put_down.network);
    if given == *put_down {
        return Ok(());
    }
    let (theirs, yours) = (put_down.to_toml(), given.to_toml());
    let only_in = |one: &str, other: &str, sign: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("  {sign} {line}\n")).collect::<String>()
    };
    let difference = only_in(&theirs, &yours, "-") + &only_in(&yours, &theirs, "+");
    Err(CheckpointError::Differs { difference })
}
