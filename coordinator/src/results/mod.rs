//! The folder in which a run leaves its results:
//!
//! | file | holds |
//! |---|---|
//! | `description.toml` | the run's description, with every default written out |
//! | `rounds.jsonl` | a [`RoundRecord`] a line, each written when its round is over |
//! | `model.safetensors` | the final model, each tensor under its layer's name |
//! | `best.safetensors` | where that is asked for, the model of the best round by test accuracy (or loss) |
//! | `checkpoints/` | where that is asked for, from what the run can be taken up again |
//! | `back.safetensors`, `fronts/CLIENT.safetensors` | instead of the model, where clients keep their fronts: the server's layers, and the layers of each client whose front was evaluated last |
//! | `summary.json` | the [`Summary`] |
//! | `units.json` | of a run with sub-models, how often each unit was trained: for each width group the place of its first layer, and a count for each unit |
//! | `report.html` | all of it for a person, in one page that needs nothing else |

mod peak_memory;
mod report;
mod summary;

pub use summary::Summary;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use selvedge_data::Holdings;
use selvedge_models::{Cut, Layout, ModelError, Pieces, SubModel};
use selvedge_protocols::{Description, ServerState};
use selvedge_storage::{RealFiles, replace};

use self::report::{LabelHistogram, Report};
use crate::{
    Outcome, RoundRecord, checkpoint,
    engine::{Fronts, UnitCounts},
};

const DESCRIPTION: &str = "description.toml";
const ROUNDS: &str = "rounds.jsonl";
const MODEL: &str = "model.safetensors";
const BEST: &str = "best.safetensors";
const BACK: &str = "back.safetensors";
const FRONTS: &str = "fronts";
const SUMMARY: &str = "summary.json";
const UNITS: &str = "units.json";
const REPORT: &str = "report.html";

/// The folder in which a run leaves its results, while the run goes on.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    description: Description,
    rounds: File,
    records: Vec<RoundRecord>,
    units: UnitCounts,
    fronts: Fronts,
    /// Why a round could not be recorded.
    failed: Option<ResultsError>,
}

/// Why results could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The folder holds a run already.
    #[error("{} already holds the results of a run: choose another folder with --out", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or folder cannot be written.
    #[error("{}: cannot be written: {error}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file of a run that is taken up again cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Another process goes on with the run.
    #[error("{}: another process is at this run: let it end, or end it, first", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// Records of a run that is taken up again are missing.
    #[error("{}: the records do not reach round {round}, after which the run was put down; put back the file", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The round.
        round: u32,
    },
    /// The final model cannot be saved.
    #[error("the final model cannot be saved: {0}")]
    Model(#[from] Box<ModelError>),
}

impl ResultsError {
    /// A short, stable name for the kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Occupied { .. } => "E-RESULTS-OCCUPIED",
            Self::Unwritable { .. } | Self::Unreadable { .. } => "E-RESULTS-FILE",
            Self::Incomplete { .. } => "E-RESULTS-RECORDS",
            Self::InUse { .. } => "E-RESULTS-IN-USE",
            Self::Model(_) => "E-RESULTS-MODEL",
        }
    }

    fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Unwritable {
            path: path.into(),
            error,
        }
    }
}

impl Results {
    /// Makes the folder, with `description.toml` and an empty `rounds.jsonl` in it.
    ///
    /// # Errors
    /// When a file of a run is there already, or the folder cannot be written.
    pub fn create(folder: &Path, description: &Description) -> Result<Self, ResultsError> {
        let occupied = || ResultsError::Occupied { folder: folder.into() };
        let files = [
            DESCRIPTION,
            ROUNDS,
            MODEL,
            BEST,
            BACK,
            FRONTS,
            SUMMARY,
            UNITS,
            REPORT,
            checkpoint::FOLDER,
        ];
        if files.iter().any(|name| is_taken(&folder.join(name))) {
            return Err(occupied());
        }
        fs::create_dir_all(folder).map_err(ResultsError::unwritable(folder))?;
        // Of two runs that begin at once in one folder, this lets only one through.
        let path = folder.join(ROUNDS);
        let rounds = OpenOptions::new().append(true).create_new(true).open(&path);
        let rounds = rounds.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => occupied(),
            _ => ResultsError::Unwritable { path, error },
        })?;
        lock(&rounds, folder)?;
        let results = Self {
            folder: folder.into(),
            description: description.clone(),
            rounds,
            records: Vec::new(),
            units: UnitCounts::default(),
            fronts: Fronts::new(),
            failed: None,
        };
        results.write(DESCRIPTION, &description.to_toml())?;
        Ok(results)
    }

    /// The folder of a run that was put down after `round`, to go on with: what was recorded later did not come to pass.
    ///
    /// # Errors
    /// When the folder or its records cannot be read or written, or a round is not among the records.
    pub fn resume(folder: &Path, description: &Description, round: u32) -> Result<Self, ResultsError> {
        let path = folder.join(ROUNDS);
        let unreadable = |error| ResultsError::Unreadable {
            path: path.clone(),
            error,
        };
        // Whoever goes on with the run holds its records.
        let held = File::open(&path).map_err(unreadable)?;
        lock(&held, folder)?;
        let text = fs::read(&path).map_err(unreadable)?;
        // The last line may be half a line.
        let records = text
            .split(|byte| *byte == b'\n')
            .map_while(|line| serde_json::from_slice(line).ok());
        let records: Vec<RoundRecord> = records.take(round as usize).collect();
        let has_all = records.iter().map(|record| record.round).eq(1..=round);
        if !has_all {
            return Err(ResultsError::Incomplete { path, round });
        }
        let lines = records
            .iter()
            .map(|record| serde_json::to_string(record).map(|line| line + "\n"));
        let lines: String = lines
            .collect::<Result<_, _>>()
            .map_err(io::Error::from)
            .map_err(ResultsError::unwritable(&path))?;
        replace(&RealFiles, &path, lines.as_bytes()).map_err(ResultsError::unwritable(&path))?;
        let rounds = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(ResultsError::unwritable(&path))?;
        lock(&rounds, folder)?;
        let results = Self {
            folder: folder.into(),
            description: description.clone(),
            rounds,
            records,
            units: UnitCounts::default(),
            fronts: Fronts::new(),
            failed: None,
        };
        results.write(DESCRIPTION, &description.to_toml())?;
        Ok(results)
    }

    /// Sees to it that what was recorded so far outlives the machine.
    ///
    /// # Errors
    /// When the system cannot.
    pub fn sync(&self) -> Result<(), ResultsError> {
        self.rounds
            .sync_all()
            .map_err(ResultsError::unwritable(&self.folder.join(ROUNDS)))
    }

    /// Saves the model beside the last one, if its round's accuracy (or its loss, where there is no accuracy) is better than
    /// in any round before it. Where clients keep their fronts there is no one model, and nothing is done.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep_best(&self, layout: &Layout, state: &ServerState) -> Result<(), ResultsError> {
        let merit = |record: &RoundRecord| record.test_accuracy.or(record.test_loss.map(|loss| -loss));
        let Some((last, before)) = self.records.split_last() else {
            return Ok(());
        };
        let best = before.iter().filter_map(merit).fold(f64::NEG_INFINITY, f64::max);
        if self.description.keeps_fronts() || merit(last).is_none_or(|merit| merit <= best) {
            return Ok(());
        }
        let aside = self.folder.join(format!("{BEST}.aside"));
        let saved = state.weights.save(layout, &aside);
        saved.map_err(|error| ResultsError::Model(Box::new(error)))?;
        let path = self.folder.join(BEST);
        fs::rename(&aside, &path).map_err(ResultsError::unwritable(&path))
    }

    /// [`create`](Self::create) for a run that was given no folder: `results/NAME`, or `results/NAME-2`, …, the first
    /// that is free. What cannot stand in a folder's name everywhere becomes a hyphen.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn create_free(description: &Description) -> Result<Self, ResultsError> {
        let parent = Path::new("results");
        loop {
            match Self::create(&free_folder(parent, &description.name), description) {
                // Another run was quicker.
                Err(ResultsError::Occupied { .. }) => {}
                created => return created,
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends a line to `rounds.jsonl`. Says whether that was possible; if not, [`finish`](Self::finish) says why.
    pub fn record(&mut self, record: &RoundRecord) -> bool {
        self.records.push(record.clone());
        if self.failed.is_none() {
            let path = self.folder.join(ROUNDS);
            self.failed = self.append(record).map_err(ResultsError::unwritable(&path)).err();
        }
        self.failed.is_none()
    }

    /// Takes note of how often each unit has been trained by now.
    pub fn count_units(&mut self, units: &UnitCounts) {
        if self.description.sub_models.is_some() {
            self.units.clone_from(units);
        }
    }

    /// Takes note of the fronts that clients keep, as they are by now.
    pub fn keep_fronts(&mut self, fronts: &Fronts) {
        if !fronts.is_empty() {
            self.fronts.clone_from(fronts);
        }
    }

    /// Writes the model; where clients keep their fronts, the back and the fronts that were evaluated last.
    fn save(&self, layout: &Layout, state: &ServerState) -> Result<(), ResultsError> {
        let failed = |error: ModelError| ResultsError::Model(Box::new(error));
        let Some(split) = self
            .description
            .split
            .as_ref()
            .filter(|split| split.method.keeps_fronts())
        else {
            return state.weights.save(layout, &self.folder.join(MODEL)).map_err(failed);
        };
        // The back begins where the first of the models is cut.
        let front = split.fronts().first().copied().unwrap_or(1);
        let cut = Cut {
            front,
            head: split.head(),
        };
        let pieces = Pieces::of(&self.description.model, cut).map_err(failed)?;
        let back = pieces.of_server(&SubModel::whole(layout)).extract(&state.weights);
        let layout = pieces.back.layout().map_err(failed)?;
        back.save(&layout, &self.folder.join(BACK)).map_err(failed)?;
        let folder = self.folder.join(FRONTS);
        fs::create_dir_all(&folder).map_err(ResultsError::unwritable(&folder))?;
        for (client, (part, front)) in &self.fronts {
            if let Some(pieces) = &part.pieces {
                let layout = pieces.client_layout().map_err(failed)?;
                let path = folder.join(format!("{client}.safetensors"));
                front.save(&layout, &path).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, record: &RoundRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let whole = self.rounds.metadata()?.len();
        self.rounds.write_all(&line).inspect_err(|_| {
            // Half a line is worse than none; if it cannot be cut off either, there is nothing left to try.
            let _ = self.rounds.set_len(whole);
        })
    }

    /// Writes the model, the summary and the report of a run that is over, however it ended and after however many
    /// rounds. `holdings` says what the clients hold, where that is known; `seconds` is how long the run took.
    ///
    /// # Errors
    /// When a file could not be written, or a round not recorded before. The other files are there all the same.
    pub fn finish(
        mut self,
        outcome: Outcome,
        layout: &Layout,
        state: &ServerState,
        holdings: Option<&Holdings>,
        seconds: f64,
    ) -> Result<Summary, ResultsError> {
        let summary = Summary::new(&self.records, outcome, &state.weights, seconds);
        let json = serde_json::to_string_pretty(&summary).map_err(io::Error::from);
        let json = json.map_err(ResultsError::unwritable(&self.folder.join(SUMMARY)))?;
        let units = self.description.sub_models.as_ref().map(|_| (&self.units, layout));
        let report = Report {
            description: &self.description,
            parameters: state.weights.parameters.len(),
            summary: &summary,
            records: &self.records,
            histogram: holdings.and_then(LabelHistogram::new),
            units,
        };
        let written = [
            self.save(layout, state),
            self.write(SUMMARY, &(json + "\n")),
            units.map_or(Ok(()), |(units, layout)| {
                self.write(UNITS, &units_by_layer(units, layout))
            }),
            self.write(REPORT, &report.to_html()),
        ];
        match self.failed.take().or(written.into_iter().find_map(Result::err)) {
            Some(error) => Err(error),
            None => Ok(summary),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ResultsError> {
        let path = self.folder.join(name);
        replace(&RealFiles, &path, text.as_bytes()).map_err(ResultsError::unwritable(&path))
    }
}

/// Holds the records of a run, as long as they are open: two processes cannot go on with it at a time.
fn lock(rounds: &File, folder: &Path) -> Result<(), ResultsError> {
    match rounds.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(ResultsError::InUse { folder: folder.into() }),
        // A system without locks does not keep anybody from running.
        Err(fs::TryLockError::Error(_)) | Ok(()) => Ok(()),
    }
}

/// The counts as JSON.
fn units_by_layer(units: &UnitCounts, layout: &Layout) -> String {
    let groups = layout.groups.iter().zip(&units.0);
    let groups = groups.map(|(group, counts)| serde_json::json!({ "layer": group.place, "trained": counts }));
    serde_json::Value::from_iter(groups).to_string() + "\n"
}

/// Whether something is there, be it a link that leads nowhere.
fn is_taken(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn free_folder(parent: &Path, name: &str) -> PathBuf {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().take(64).collect();
    let name = name.replace(|c| !allowed(c), "-");
    let name = match name.trim_matches(['.', '-']) {
        "" => "run",
        name => name,
    };
    let numbered = (2u64..).map(|number| parent.join(format!("{name}-{number}")));
    let mut folders = std::iter::once(parent.join(name)).chain(numbered);
    folders
        .find(|folder| !is_taken(folder))
        .unwrap_or_else(|| parent.join(name))
}

#[cfg(test)]
mod tests;
