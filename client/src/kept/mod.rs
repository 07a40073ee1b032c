//! What an algorithm keeps on a client from round to round, in memory or in files.
//!
//! What training leaves is only *proposed* until the coordinator has accepted the round's update: both sides must agree
//! on which updates count. What counts is kept by its round: a coordinator that begins anew goes back to a round, and the
//! client goes back with it. With a folder, both what is kept and what is proposed outlive the client's process, and the
//! run: a model or layers of a client's own are nowhere else.

mod encoding;
mod folder;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use selvedge_models::SubModel;
use selvedge_protocols::{ClientName, Memory};
use selvedge_storage::{Files, RealFiles};

use self::{encoding::Expected, folder::Folder};

/// What a client keeps in one run.
#[derive(Debug)]
pub struct Kept {
    folder: Option<Folder>,
    /// What counts, by the round that it is of: the newest, and what a coordinator that begins anew may go back to.
    counting: BTreeMap<u32, Memory>,
    proposed: Option<(u32, Memory)>,
    /// What is kept before anything counts.
    nothing: Memory,
    damaged: Vec<Damaged>,
}

/// A file of what is kept that is damaged, where an older one is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub detail: String,
    /// The round of the newest that is whole.
    pub newest: u32,
}

/// Why what is kept cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// A file or folder cannot be read or written.
    #[error("{}: cannot be {doing}: {error}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file is damaged, and no other is whole.
    #[error(
        "{}: is not what this client keeps in this run ({detail}); if you remove it, the client begins afresh",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

impl Kept {
    /// What `client` keeps in the run `run`: nothing yet, or what the files in `folder` hold. What has the model's shape is
    /// of the `whole` model; a front that is kept has that of `front`.
    ///
    /// # Errors
    /// When a file in the folder cannot be read, or is damaged and no other is whole.
    pub fn open(
        folder: Option<&Path>,
        run: &str,
        client: &ClientName,
        whole: &SubModel,
        front: Option<&SubModel>,
    ) -> Result<Self, KeptError> {
        Self::open_among(Arc::new(RealFiles), folder, run, client, whole, front)
    }

    fn open_among(
        files: Arc<dyn Files>,
        folder: Option<&Path>,
        run: &str,
        client: &ClientName,
        whole: &SubModel,
        front: Option<&SubModel>,
    ) -> Result<Self, KeptError> {
        let mut opened = Self {
            folder: folder.map(|folder| Folder::new(files, folder, run, client)),
            counting: BTreeMap::new(),
            proposed: None,
            nothing: Memory::new(),
            damaged: Vec::new(),
        };
        let Some(folder) = &mut opened.folder else {
            return Ok(opened);
        };
        let found = folder.read(&Expected { client, whole, front })?;
        (opened.counting, opened.proposed) = (found.counting, found.proposed);
        for (path, detail) in found.damaged {
            match opened.newest() {
                Some(newest) => opened.damaged.push(Damaged { path, detail, newest }),
                None => return Err(KeptError::Damaged { path, detail }),
            }
        }
        Ok(opened)
    }

    /// What training in `round` begins with: the newest of what counts that is of an earlier round, or nothing.
    pub fn memory_for(&self, round: u32) -> &Memory {
        self.before(round).map_or(&self.nothing, |(_, memory)| memory)
    }

    /// The round that [`memory_for`](Self::memory_for) is of, 0 for nothing.
    pub fn round_for(&self, round: u32) -> u32 {
        self.before(round).map_or(0, |(round, _)| round)
    }

    /// The files that were found damaged. They are removed once something newer counts.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Notes what training in `round` left, until it is known whether its update counts. What counts of this round or a
    /// later one is of a time that did not come to pass, and is dropped.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn propose(&mut self, round: u32, memory: Memory) -> Result<(), KeptError> {
        self.drop_from(round)?;
        if let Some(folder) = &mut self.folder {
            match is_written(&memory, &self.counting) {
                true => folder.propose(round, &memory)?,
                false => folder.forget_proposed()?,
            }
        }
        self.proposed = Some((round, memory));
        Ok(())
    }

    /// The update of `round` is the last of this client that counts, which may be known already. `resumable` are the rounds
    /// after which the coordinator may begin anew: for each of them the newest that is not newer than it is kept too, and
    /// nothing else is.
    ///
    /// # Errors
    /// When a file cannot be replaced or removed.
    pub fn accept(&mut self, round: u32, resumable: &[u32]) -> Result<(), KeptError> {
        if let Some(later) = round.checked_add(1) {
            // First, so that it can never be taken for what follows this round.
            self.drop_from(later)?;
        }
        if let Some((_, memory)) = self.proposed.take_if(|(proposed, _)| *proposed == round) {
            if let Some(folder) = self.folder.as_mut().filter(|_| is_written(&memory, &self.counting)) {
                folder.accept(round, &memory)?;
            }
            self.counting.insert(round, memory);
        }
        let not_newer = |round: &u32| self.counting.range(..=round).next_back().map(|(&round, _)| round);
        let mut wanted: BTreeSet<u32> = resumable.iter().filter_map(not_newer).collect();
        wanted.extend(self.newest());
        self.retain(|round| wanted.contains(&round))?;
        if let Some(folder) = self.folder.as_mut().filter(|_| !wanted.is_empty()) {
            folder.forget_damaged()?;
        }
        Ok(())
    }

    fn newest(&self) -> Option<u32> {
        self.counting.last_key_value().map(|(&round, _)| round)
    }

    fn before(&self, round: u32) -> Option<(u32, &Memory)> {
        let (&round, memory) = self.counting.range(..round).next_back()?;
        Some((round, memory))
    }

    /// Drops what is of this round or a later one.
    fn drop_from(&mut self, first: u32) -> Result<(), KeptError> {
        self.retain(|round| round < first)
    }

    fn retain(&mut self, is_kept: impl Fn(u32) -> bool) -> Result<(), KeptError> {
        let dropped: Vec<u32> = self.counting.keys().copied().filter(|&round| !is_kept(round)).collect();
        if let Some(folder) = self.folder.as_ref().filter(|_| !dropped.is_empty()) {
            folder.forget(&dropped)?;
        }
        self.counting.retain(|&round, _| is_kept(round));
        Ok(())
    }
}

/// An algorithm that keeps nothing leaves no files; one that no longer does must say so.
fn is_written(memory: &Memory, counting: &BTreeMap<u32, Memory>) -> bool {
    !(memory.is_empty() && counting.values().all(Memory::is_empty))
}

#[cfg(test)]
mod tests;
