//! The files of what a client keeps: `CLIENT.RUN.ROUND.kept` for each round that counts, and `CLIENT.RUN.proposed`. The run
//! is in the name as a hash: its own name comes from the coordinator, and is not let near a path as it is.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use selvedge_protocols::{ClientName, Memory};
use selvedge_storage::{Files, remove_all, replace};

use super::{
    KeptError,
    encoding::{Expected, decode, encode},
};

/// Of how many runs a client's files stay in a folder: of those that were written last.
pub(super) const RUNS: usize = 8;

/// How many hexadecimal digits name a run.
const DIGITS: usize = 16;

/// The files of one client in one run.
#[derive(Debug)]
pub(super) struct Folder {
    files: Arc<dyn Files>,
    folder: PathBuf,
    client: ClientName,
    /// What the names of its files begin with.
    prefix: String,
    damaged: Vec<PathBuf>,
    /// Whether the files of other runs are known to be few enough.
    is_bounded: bool,
}

/// What was found.
pub(super) struct Found {
    pub(super) counting: BTreeMap<u32, Memory>,
    pub(super) proposed: Option<(u32, Memory)>,
    /// What is damaged, and in what way.
    pub(super) damaged: Vec<(PathBuf, String)>,
}

impl Folder {
    pub(super) fn new(files: Arc<dyn Files>, folder: &Path, run: &str, client: &ClientName) -> Self {
        let run = &blake3::hash(run.as_bytes()).to_hex()[..DIGITS];
        Self {
            files,
            folder: folder.into(),
            client: client.clone(),
            prefix: format!("{client}.{run}."),
            damaged: Vec::new(),
            is_bounded: false,
        }
    }

    fn proposed(&self) -> PathBuf {
        self.folder.join(format!("{}proposed", self.prefix))
    }

    fn kept(&self, round: u32) -> PathBuf {
        self.folder.join(format!("{}{round}.kept", self.prefix))
    }

    /// All that is there of this run.
    pub(super) fn read(&mut self, expected: &Expected<'_>) -> Result<Found, KeptError> {
        let mut found = Found {
            counting: BTreeMap::new(),
            proposed: None,
            damaged: Vec::new(),
        };
        let listed = self.files.list(&self.folder).map_err(file("read", &self.folder))?;
        for path in listed.into_iter().map(|listed| listed.path) {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(|name| name.strip_prefix(&self.prefix)) else {
                continue;
            };
            let named: Option<u32> = name.strip_suffix(".kept").and_then(|round| round.parse().ok());
            if named.is_none() && name != "proposed" {
                continue;
            }
            let bytes = self.files.read(&path).map_err(file("read", &path))?;
            match (decode(&bytes, expected), named) {
                (Ok((round, memory)), Some(named)) if round == named => {
                    found.counting.insert(round, memory);
                }
                (Ok((round, _)), Some(_)) => found.damaged.push((path, format!("it is of round {round}"))),
                (Ok(proposed), None) => found.proposed = Some(proposed),
                (Err(detail), _) => found.damaged.push((path, detail)),
            }
        }
        self.damaged = found.damaged.iter().map(|(path, _)| path.clone()).collect();
        Ok(found)
    }

    /// Writes what is proposed, in place of what was before.
    pub(super) fn propose(&mut self, round: u32, memory: &Memory) -> Result<(), KeptError> {
        self.write(self.proposed(), round, memory)?;
        if !self.is_bounded {
            self.forget_other_runs()?;
            self.is_bounded = true;
        }
        Ok(())
    }

    /// What was proposed for this round counts.
    pub(super) fn accept(&mut self, round: u32, memory: &Memory) -> Result<(), KeptError> {
        let (proposed, kept) = (self.proposed(), self.kept(round));
        match self.files.rename(&proposed, &kept) {
            Ok(()) => {
                self.damaged.retain(|damaged| *damaged != kept);
                self.files.sync_folder(&self.folder).map_err(file("replaced", &kept))
            }
            // Somebody has tidied up; what it held is here too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.write(kept, round, memory),
            Err(error) => Err(file("replaced", &kept)(error)),
        }
    }

    pub(super) fn forget(&self, rounds: &[u32]) -> Result<(), KeptError> {
        self.remove(rounds.iter().map(|&round| self.kept(round)).collect())
    }

    pub(super) fn forget_proposed(&self) -> Result<(), KeptError> {
        self.remove(vec![self.proposed()])
    }

    pub(super) fn forget_damaged(&mut self) -> Result<(), KeptError> {
        let damaged = std::mem::take(&mut self.damaged);
        self.remove(damaged)
    }

    /// Removes what the client keeps of other runs, but for those that were written last.
    fn forget_other_runs(&self) -> Result<(), KeptError> {
        let listed = self.files.list(&self.folder).map_err(file("read", &self.folder))?;
        let mut runs: BTreeMap<String, (SystemTime, Vec<PathBuf>)> = BTreeMap::new();
        for listed in listed {
            let Some(run) = self.run_of(&listed.path).filter(|run| *run != self.prefix) else {
                continue;
            };
            let (written, paths) = runs.entry(run).or_insert((listed.written, Vec::new()));
            *written = listed.written.max(*written);
            paths.push(listed.path);
        }
        let mut runs: Vec<_> = runs.into_values().collect();
        runs.sort();
        let old = runs.into_iter().rev().skip(RUNS - 1);
        self.remove(old.flat_map(|(_, paths)| paths).collect())
    }

    /// What the names of the files of a run of this client begin with, if this is one of them.
    fn run_of(&self, path: &Path) -> Option<String> {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(self.client.as_str())?.strip_prefix('.')?;
        let (run, what) = rest.split_once('.')?;
        let is_run = run.len() == DIGITS && run.bytes().all(|digit| digit.is_ascii_hexdigit());
        let what = what.strip_suffix(".part").unwrap_or(what);
        let is_round = |round: &str| round.parse::<u32>().is_ok();
        let is_its = what == "proposed" || what.strip_suffix(".kept").is_some_and(is_round);
        (is_run && is_its).then(|| format!("{}.{run}.", self.client))
    }

    fn write(&mut self, path: PathBuf, round: u32, memory: &Memory) -> Result<(), KeptError> {
        let contents = encode(&self.client, round, memory).map_err(io::Error::other);
        let written = contents.and_then(|contents| {
            self.files.create_folder(&self.folder)?;
            replace(&*self.files, &path, &contents)
        });
        written.map_err(file("written", &path))?;
        self.damaged.retain(|damaged| *damaged != path);
        Ok(())
    }

    fn remove(&self, paths: Vec<PathBuf>) -> Result<(), KeptError> {
        let removed = remove_all(&*self.files, &self.folder, paths.iter().map(PathBuf::as_path));
        removed.map_err(|(path, error)| file("removed", &path)(error))
    }
}

fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    move |error| KeptError::File {
        doing,
        path: path.into(),
        error,
    }
}
