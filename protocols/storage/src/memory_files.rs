//! Files in memory that fail as a test says.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{Files, Listed, NewFile, files::folder_of};

/// Files in memory, for tests. They count what changes them, can be told to stop there, and say what would be found
/// afterwards: see [`after`](Self::after).
///
/// A folder that was made lasts; a name lasts once its folder is synced, a file's contents once the file is.
#[derive(Debug, Default)]
pub struct MemoryFiles(Mutex<State>);

/// What a crash costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the process ended, and the system went on.
    Nothing,
    /// What was not synced, in part: the power failed.
    Unsynced {
        /// Which of the changes of names that were not synced last all the same, a bit for each from the first on.
        names: u64,
        /// How many bytes of contents that were not synced last; `None` if these files are as they were last synced.
        bytes: Option<usize>,
    },
}

impl Loss {
    /// All that was not synced.
    pub const ALL: Self = Self::Unsynced { names: 0, bytes: None };
}

#[derive(Clone, Debug, Default)]
struct State {
    contents: Vec<Contents>,
    folders: Vec<PathBuf>,
    /// The names as they are, and as they were last synced; what they name is a place in `contents`.
    names: BTreeMap<PathBuf, usize>,
    synced: BTreeMap<PathBuf, usize>,
    /// What has changed since.
    changes: Vec<Change>,
    operations: usize,
    /// The operations of all time, as a clock.
    clock: u64,
    stop: Option<Stop>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    written: Vec<u8>,
    synced: Vec<u8>,
    is_synced: bool,
    /// When it was written last.
    last: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Created(PathBuf, usize),
    Renamed(PathBuf, PathBuf, usize),
    Removed(PathBuf),
}

/// Before which operation everything stops; of a write, after how many bytes.
#[derive(Clone, Copy, Debug)]
struct Stop {
    before: usize,
    bytes: usize,
    /// Only this one fails.
    is_once: bool,
}

impl Change {
    fn folder(&self) -> &Path {
        let (Self::Created(path, _) | Self::Renamed(_, path, _) | Self::Removed(path)) = self;
        folder_of(path)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Created(path, place) => drop(names.insert(path.clone(), *place)),
            Self::Renamed(from, to, place) => {
                names.remove(from);
                names.insert(to.clone(), *place);
            }
            Self::Removed(path) => drop(names.remove(path)),
        }
    }
}

impl State {
    /// Counts an operation that is about to be done.
    fn operate(&mut self) -> io::Result<()> {
        match self.stop {
            Some(stop) if self.operations >= stop.before => {
                self.stop = self.stop.filter(|stop| !stop.is_once);
                Err(refused())
            }
            _ => {
                self.clock += 1;
                self.operations += 1;
                Ok(())
            }
        }
    }

    fn named(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| missing(path))
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn is_folder(&self, folder: &Path) -> io::Result<()> {
        match folder == Path::new(".") || self.folders.iter().any(|made| made == folder) {
            true => Ok(()),
            false => Err(missing(folder)),
        }
    }
}

impl MemoryFiles {
    /// None, and no folders.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations have changed them.
    pub fn operations(&self) -> usize {
        self.state().operations
    }

    /// How many changes of names are not synced.
    pub fn unsynced_names(&self) -> usize {
        self.state().changes.len()
    }

    /// From the operation with this number on (the first is 0) all fail and change nothing. If it is a write, its first
    /// `bytes` bytes are written.
    pub fn stop_before(&self, operation: usize, bytes: usize) {
        self.state().stop = Some(Stop {
            before: operation,
            bytes,
            is_once: false,
        });
    }

    /// The operation with this number fails and changes nothing, and those after it are done.
    pub fn refuse(&self, operation: usize) {
        self.state().stop = Some(Stop {
            before: operation,
            bytes: 0,
            is_once: true,
        });
    }

    /// What is found after a crash at this moment.
    #[must_use]
    pub fn after(&self, loss: Loss) -> Self {
        let mut state = self.state().clone();
        (state.operations, state.stop) = (0, None);
        if let Loss::Unsynced { names, bytes } = loss {
            for (at, change) in state.changes.iter().enumerate() {
                if names.checked_shr(at as u32).unwrap_or_default() & 1 == 1 {
                    change.apply(&mut state.synced);
                }
            }
            state.names = state.synced;
            for contents in state.contents.iter_mut().filter(|contents| !contents.is_synced) {
                match bytes {
                    Some(bytes) => contents.written.truncate(bytes),
                    None => contents.written.clone_from(&contents.synced),
                }
            }
        }
        // What is found is what is on the disk.
        state.synced = state.names.clone();
        state.changes.clear();
        for contents in &mut state.contents {
            contents.synced.clone_from(&contents.written);
            contents.is_synced = true;
        }
        Self(Mutex::new(state))
    }

    /// Puts a file there, synced, without counting.
    pub fn put(&self, path: &Path, contents: &[u8]) {
        let mut state = self.state();
        let place = state.contents.len();
        let last = state.clock;
        state.contents.push(Contents {
            written: contents.into(),
            synced: contents.into(),
            is_synced: true,
            last,
        });
        state.folders.push(folder_of(path).into());
        state.names.insert(path.into(), place);
        state.synced.insert(path.into(), place);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused() -> io::Error {
    io::Error::other("the test refuses this")
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {}", path.display()))
}

struct NewMemoryFile<'a> {
    files: &'a MemoryFiles,
    place: usize,
}

impl NewFile for NewMemoryFile<'_> {
    fn write(&mut self, contents: &[u8]) -> io::Result<()> {
        let mut state = self.files.state();
        let stop = state.stop.filter(|stop| stop.before == state.operations);
        let done = state.operate();
        let last = state.clock;
        let length = match (&done, stop) {
            (Ok(()), _) => contents.len(),
            (Err(_), Some(stop)) => stop.bytes.min(contents.len()),
            (Err(_), None) => 0,
        };
        if let Some(file) = state.contents.get_mut(self.place).filter(|_| length > 0) {
            file.written.extend(&contents[..length]);
            (file.is_synced, file.last) = (false, last);
        }
        if let Some(stop) = &mut state.stop {
            // It writes so much once.
            stop.bytes = stop.bytes.saturating_sub(length);
        }
        done
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.files.state();
        state.operate()?;
        if let Some(file) = state.contents.get_mut(self.place) {
            file.synced.clone_from(&file.written);
            file.is_synced = true;
        }
        Ok(())
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let place = state.named(path)?;
        state
            .contents
            .get(place)
            .map(|file| file.written.clone())
            .ok_or_else(|| missing(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile + '_>> {
        let mut state = self.state();
        state.is_folder(folder_of(path))?;
        state.operate()?;
        let last = state.clock;
        let place = match state.names.get(path) {
            Some(&place) => place,
            None => {
                let place = state.contents.len();
                state.contents.push(Contents::default());
                state.change(Change::Created(path.into(), place));
                place
            }
        };
        if let Some(file) = state.contents.get_mut(place) {
            file.written.clear();
            (file.is_synced, file.last) = (false, last);
        }
        Ok(Box::new(NewMemoryFile { files: self, place }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let place = state.named(from)?;
        state.operate()?;
        state.change(Change::Renamed(from.into(), to.into(), place));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.is_folder(folder)?;
        state.operate()?;
        let changes = std::mem::take(&mut state.changes);
        let (here, elsewhere) = changes.into_iter().partition(|change| change.folder() == folder);
        state.changes = elsewhere;
        let here: Vec<Change> = here;
        for change in here {
            change.apply(&mut state.synced);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.named(path)?;
        state.operate()?;
        state.change(Change::Removed(path.into()));
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let state = self.state();
        let here = state.names.iter().filter(|(path, _)| folder_of(path) == folder);
        let listed = here.map(|(path, &place)| {
            let last = state.contents.get(place).map_or(0, |file| file.last);
            Listed {
                path: path.clone(),
                written: SystemTime::UNIX_EPOCH + Duration::from_secs(last),
            }
        });
        Ok(listed.collect())
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.is_folder(folder).is_err() {
            state.operate()?;
            state.folders.push(folder.into());
        }
        Ok(())
    }
}
