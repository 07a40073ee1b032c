//! A state of which the last two generations are kept.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Files, StorageError, remove_all, replace, seal, unseal};

/// The last two generations of a state, each a file `NAME.NUMBER` in a folder. A new one is durable before anything is
/// done to those before: whatever happens, the last or the one that is being written is there, whole.
#[derive(Debug)]
pub struct Generations {
    files: Arc<dyn Files>,
    folder: PathBuf,
    name: String,
    /// Those that are whole, in order.
    whole: Vec<u64>,
}

/// A generation of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub number: u64,
    /// The state.
    pub contents: Vec<u8>,
}

/// What was found of a state.
#[derive(Debug)]
pub struct Recovered {
    /// The newest generation that is whole, if any was ever written.
    pub newest: Option<Generation>,
    /// Those that are not whole, the newest first: where one is newer than `newest`, this is the one before it.
    pub damaged: Vec<StorageError>,
}

impl Generations {
    /// The state `name` in `folder`, and what is there of it. Nothing is changed.
    ///
    /// # Errors
    /// When a file cannot be read, or there are generations and none is whole.
    pub fn open(files: Arc<dyn Files>, folder: &Path, name: &str) -> Result<(Self, Recovered), StorageError> {
        let mut generations = Self {
            files,
            folder: folder.into(),
            name: name.into(),
            whole: Vec::new(),
        };
        let mut recovered = Recovered {
            newest: None,
            damaged: Vec::new(),
        };
        let mut numbers = generations.numbers()?;
        numbers.reverse();
        for number in numbers {
            match generations.read(number) {
                Ok(contents) => {
                    generations.whole.insert(0, number);
                    recovered.newest.get_or_insert(Generation { number, contents });
                }
                Err(damaged @ StorageError::Damaged { .. }) => recovered.damaged.push(damaged),
                Err(error) => return Err(error),
            }
        }
        match (&recovered.newest, recovered.damaged.first()) {
            (None, Some(StorageError::Damaged { path, detail })) => Err(StorageError::NoneWhole {
                path: path.clone(),
                detail: detail.clone(),
            }),
            _ => Ok((generations, recovered)),
        }
    }

    /// The numbers of the generations that are whole, at most two, in order.
    pub fn whole(&self) -> &[u64] {
        &self.whole
    }

    /// One of the generations that are whole.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or is damaged.
    pub fn read(&self, number: u64) -> Result<Vec<u8>, StorageError> {
        let path = self.path(number);
        let bytes = self.files.read(&path).map_err(StorageError::file("read", &path))?;
        let detail = match unseal(&bytes) {
            Ok((sealed, contents)) if sealed == number => return Ok(contents.to_vec()),
            Ok((sealed, _)) => format!("it is generation {sealed}"),
            Err(detail) => detail,
        };
        Err(StorageError::Damaged { path, detail })
    }

    /// Writes the next generation; once this returns it is durable. The one before stays, and nothing else does.
    ///
    /// # Errors
    /// When it is not newer than the last, or cannot be written: what was there before is there still. When what is older
    /// cannot be removed: the new one is there.
    pub fn write(&mut self, number: u64, contents: &[u8]) -> Result<(), StorageError> {
        let last = self.whole.last().copied();
        if let Some(last) = last.filter(|&last| last >= number) {
            let folder = self.folder.clone();
            return Err(StorageError::OutOfOrder { folder, last, number });
        }
        let created = self.files.create_folder(&self.folder);
        created.map_err(StorageError::file("made", &self.folder))?;
        let path = self.path(number);
        replace(&*self.files, &path, &seal(number, contents)).map_err(StorageError::file("written", &path))?;
        self.whole = last.into_iter().chain([number]).collect();
        let old = self.numbers()?.into_iter().filter(|old| !self.whole.contains(old));
        let old: Vec<_> = old.map(|old| self.path(old)).collect();
        let removed = remove_all(&*self.files, &self.folder, old.iter().map(PathBuf::as_path));
        removed.map_err(|(path, error)| StorageError::file("removed", &path)(error))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}.{number}", self.name))
    }

    /// The numbers of the generations that are there, whole or not, in order.
    fn numbers(&self) -> Result<Vec<u64>, StorageError> {
        let listed = self.files.list(&self.folder);
        let listed = listed.map_err(StorageError::file("read", &self.folder))?;
        let number = |path: &Path| {
            let number = path
                .file_name()?
                .to_str()?
                .strip_prefix(&self.name)?
                .strip_prefix('.')?;
            let number: u64 = number.parse().ok()?;
            // Not `+1` or `01`.
            (self.path(number) == path).then_some(number)
        };
        let mut numbers: Vec<u64> = listed.iter().filter_map(|listed| number(&listed.path)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}
