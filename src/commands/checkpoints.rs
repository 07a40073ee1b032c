//! Runs that are put down and taken up again.

use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    path::{Path, PathBuf, absolute},
    sync::Arc,
    time::Instant,
};

use clap::Args;
use selvedge_coordinator::{
    Checkpoint, CheckpointError, Checkpoints, Clients, Progress, Results, Snapshot, TakenUp,
    checkpoint::{check_possible, check_same},
    engine::{Fronts, UnitCounts},
};
use selvedge_models::Layout;
use selvedge_protocols::Description;

use super::{
    Failure,
    description::{Changes, base},
    output::Output,
};

/// Whether and where a run is put down and taken up again.
#[derive(Args)]
pub(crate) struct Resumption {
    /// Put the run down after every N rounds, in its folder of results, so that it can be taken up
    /// again with --resume, to the same end as if it had never stopped
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<NonZeroU32>,
    /// Take up the run in this folder of results again; its description need not be given
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Save the model of the best round too, as best.safetensors
    #[arg(long)]
    keep_best: bool,
}

/// What is to be run, and where its data are.
pub(crate) struct Described {
    pub(crate) description: Arc<Description>,
    /// The folder that paths in the description are relative to.
    pub(crate) base: PathBuf,
    taken_up: Option<(Checkpoints, Checkpoint)>,
    every: Option<NonZeroU32>,
    keep_best: bool,
}

/// A run with its folder of results, and with its checkpoints, if there are any.
pub(crate) struct Saved {
    pub(crate) results: Results,
    /// Which run it is.
    pub(crate) run: String,
    /// Where it is taken up again.
    pub(crate) resume: Option<TakenUp>,
    checkpoints: Option<Checkpoints>,
    /// Of all checkpoints of the run, all that does not change.
    description: String,
    base: PathBuf,
    every: u32,
    keep_best: bool,
    /// How long it had run when it was put down.
    before: f64,
    began: Instant,
}

impl Resumption {
    /// What is to be run: what is described, or what was put down.
    pub(crate) fn describe(&self, command: &str, file: Option<&Path>, changes: &Changes) -> Result<Described, Failure> {
        // The run may be taken up from another folder.
        let base = |file| absolute(Path::new(".").join(base(file))).map_err(Failure::system);
        let Some(folder) = &self.resume else {
            let description = changes.read(file)?;
            if self.checkpoint_every.is_some() {
                check_possible(&description, command == "simulate")?;
            }
            return Ok(Described {
                description: Arc::new(description),
                base: base(file)?,
                taken_up: None,
                every: self.checkpoint_every,
                keep_best: self.keep_best,
            });
        };
        let (checkpoints, newest, damaged) = Checkpoints::open(folder)?;
        let none = || CheckpointError::None { folder: folder.clone() };
        let mut checkpoint = newest.ok_or_else(none)?;
        if checkpoint.clients.command() != command {
            return Err(CheckpointError::OtherKind {
                folder: folder.clone(),
                command: checkpoint.clients.command(),
            }
            .into());
        }
        for damaged in damaged {
            writeln!(io::stderr(), "{damaged}; an earlier checkpoint is taken").map_err(Failure::system)?;
        }
        let origin = folder.join("checkpoints").display().to_string();
        let mut description = Description::parse(&checkpoint.description, &origin, &[])?;
        if file.is_some() || changes.are_any() {
            let given = match file {
                Some(_) => changes.read(file)?,
                None => changes.applied_to(&checkpoint.description, &origin)?,
            };
            check_same(&description, &given)?;
            description = given;
        }
        if let Some(every) = self.checkpoint_every {
            checkpoint.every = every.get();
        }
        Ok(Described {
            description: Arc::new(description),
            base: match file {
                Some(_) => base(file)?,
                None => checkpoint.base.clone(),
            },
            every: NonZeroU32::new(checkpoint.every),
            keep_best: self.keep_best || checkpoint.keep_best,
            taken_up: Some((checkpoints, checkpoint)),
        })
    }
}

impl Described {
    /// The folder of results; `run` names a run that is new.
    pub(crate) fn save(self, output: &Output, run: String) -> Result<Saved, Failure> {
        let Self {
            description,
            base,
            taken_up,
            every,
            keep_best,
        } = self;
        let began = Instant::now();
        let (text, every_or_none) = (description.to_toml(), every.map_or(0, NonZeroU32::get));
        Ok(match taken_up {
            None => {
                let results = output.results(&description)?;
                let checkpoints = every.map(|_| Checkpoints::open(results.folder()));
                Saved {
                    checkpoints: checkpoints.transpose()?.map(|(checkpoints, ..)| checkpoints),
                    results,
                    run,
                    resume: None,
                    description: text,
                    base,
                    every: every_or_none,
                    keep_best,
                    before: 0.0,
                    began,
                }
            }
            Some((checkpoints, checkpoint)) => Saved {
                results: Results::resume(&checkpoints.results(), &description, checkpoint.snapshot.round)?,
                run: checkpoint.run,
                resume: Some(TakenUp {
                    snapshot: checkpoint.snapshot,
                    clients: checkpoint.clients,
                    resumable: checkpoints.rounds(),
                }),
                checkpoints: Some(checkpoints),
                description: text,
                base,
                every: every_or_none,
                keep_best,
                before: checkpoint.seconds,
                began,
            },
        })
    }
}

impl Saved {
    /// Whether the run is put down after its rounds.
    pub(crate) fn is_put_down(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// How long the run has taken so far, all its parts together.
    pub(crate) fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Writes down what is to be. Says whether it could be, apart from errors that are known already.
    pub(crate) fn hear(&mut self, progress: Progress<'_>, layout: &Layout) -> Result<bool, Failure> {
        match progress {
            Progress::Record {
                record,
                units,
                fronts,
                state,
            } => {
                self.note(units, fronts);
                let is_recorded = self.results.record(record);
                if self.keep_best && is_recorded {
                    self.results.keep_best(layout, state)?;
                }
                return Ok(is_recorded);
            }
            Progress::Snapshot {
                snapshot,
                clients,
                resumable,
            } => *resumable = self.put_down(snapshot, clients)?,
            Progress::Ended { units, fronts, .. } => self.note(units, fronts),
            Progress::Waiting { .. } | Progress::Round { .. } | Progress::Notice(_) => {}
        }
        Ok(true)
    }

    fn note(&mut self, units: &UnitCounts, fronts: &Fronts) {
        self.results.keep_fronts(fronts);
        self.results.count_units(units);
    }

    /// The run is here now. Gives the rounds after which it can be taken up again.
    fn put_down(&mut self, snapshot: &Arc<Snapshot>, clients: &Clients) -> Result<Vec<u32>, Failure> {
        let seconds = self.seconds();
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(Vec::new());
        };
        // A run that is taken up again needs the records of its rounds.
        self.results.sync()?;
        checkpoints.take(Checkpoint {
            run: self.run.clone(),
            description: self.description.clone(),
            base: self.base.clone(),
            seconds,
            every: self.every,
            keep_best: self.keep_best,
            snapshot: snapshot.clone(),
            clients: clients.clone(),
        })?;
        Ok(checkpoints.rounds())
    }

    /// The run is over, or stopped: what is not written yet is, and of one that can go on it is said how.
    pub(crate) fn finish(&mut self, command: &str) -> Result<Option<String>, Failure> {
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(None);
        };
        checkpoints.finish()?;
        let folder = self.results.folder().display();
        Ok(Some(format!("to go on: selvedge {command} --resume {folder}")))
    }
}
