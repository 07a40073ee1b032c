//! What an algorithm keeps on a client from round to round, in memory or in files.
//!
//! What training leaves is only *proposed* until the coordinator has accepted the round's update: both sides must agree
//! on which updates count. With a folder, both what is kept and what is proposed outlive the client's process.

use std::{
    collections::HashMap,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use selvedge_models::SubModel;
use selvedge_protocols::{
    ClientName, Memory, Shape,
    update::{BUFFERS, PARAMETERS},
};

use crate::Front;

/// The keys of a file's metadata that hold the round, and whose it is.
const ROUND: &str = "round";
const CLIENT: &str = "client";

/// What a client keeps in one run.
#[derive(Debug)]
pub struct Kept {
    files: Option<Files>,
    /// The round that it is from, and what it is.
    kept: (u32, Memory),
    proposed: Option<(u32, Memory)>,
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
    /// A file is damaged.
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

#[derive(Debug)]
struct Files {
    client: ClientName,
    kept: PathBuf,
    proposed: PathBuf,
}

/// What a file can hold.
struct Expected<'a> {
    client: &'a ClientName,
    whole: &'a SubModel,
    front: Option<&'a SubModel>,
}

impl Kept {
    /// What `client` keeps in the run `run`: nothing yet, or what the files in `folder` hold. What has the model's shape is
    /// of the `whole` model; a front that is kept has that of `front`.
    ///
    /// # Errors
    /// When a file in the folder cannot be read or is damaged.
    pub fn open(
        folder: Option<&Path>,
        run: &str,
        client: &ClientName,
        whole: &SubModel,
        front: Option<&SubModel>,
    ) -> Result<Self, KeptError> {
        let expected = Expected { client, whole, front };
        let mut opened = Self {
            files: None,
            kept: (0, Memory::new()),
            proposed: None,
        };
        if let Some(folder) = folder {
            // A run's name comes from the coordinator, so it is not let near a path as it is.
            let run = &blake3::hash(run.as_bytes()).to_hex()[..16];
            let path = |what| folder.join(format!("{client}.{run}.{what}.safetensors"));
            let files = Files {
                client: client.clone(),
                kept: path("kept"),
                proposed: path("proposed"),
            };
            remove_others(folder, client, &files)?;
            opened.kept = read(&files.kept, &expected)?.unwrap_or_default();
            opened.proposed = read(&files.proposed, &expected)?;
            opened.files = Some(files);
        }
        Ok(opened)
    }

    /// What the next training begins with.
    pub fn memory(&self) -> &Memory {
        &self.kept.1
    }

    /// Notes what training in `round` left, until it is known whether its update counts.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn propose(&mut self, round: u32, memory: Memory) -> Result<(), KeptError> {
        if let (Some(files), false) = (&self.files, memory.is_empty()) {
            write(&files.proposed, &files.client, round, &memory)?;
        }
        self.proposed = Some((round, memory));
        Ok(())
    }

    /// The update of `round` counts. Does nothing when that is known already.
    ///
    /// # Errors
    /// When the file cannot be replaced.
    pub fn accept(&mut self, round: u32) -> Result<(), KeptError> {
        match self.proposed.take() {
            Some((proposed, memory)) if proposed == round => {
                if let (Some(files), false) = (&self.files, memory.is_empty()) {
                    match fs::rename(&files.proposed, &files.kept) {
                        Ok(()) => sync_folder(&files.kept).map_err(file("replaced", &files.kept))?,
                        // Somebody has tidied up; what it held is here too.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            write(&files.kept, &files.client, round, &memory)?;
                        }
                        Err(error) => return Err(file("replaced", &files.kept)(error)),
                    }
                }
                self.kept = (round, memory);
            }
            other => self.proposed = other,
        }
        Ok(())
    }

    /// The run is over: nothing of it is needed any more.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn remove(&self) -> Result<(), KeptError> {
        for path in self.files.iter().flat_map(|files| [&files.kept, &files.proposed]) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file("removed", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes what the client kept in other runs: it takes part in one at a time, and those are over.
fn remove_others(folder: &Path, client: &ClientName, files: &Files) -> Result<(), KeptError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(file("read", folder)(error)),
    };
    let prefix = format!("{client}.");
    for entry in entries {
        let path = entry.map_err(file("read", folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_kept = name.ends_with(".kept.safetensors") || name.ends_with(".proposed.safetensors");
        if name.starts_with(&prefix) && is_kept && path != files.kept && path != files.proposed {
            fs::remove_file(&path).map_err(file("removed", &path))?;
        }
    }
    Ok(())
}

fn read(path: &Path, expected: &Expected<'_>) -> Result<Option<(u32, Memory)>, KeptError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file("read", path)(error)),
    };
    decode(&bytes, expected).map(Some).map_err(|detail| KeptError::Damaged {
        path: path.into(),
        detail,
    })
}

fn decode(bytes: &[u8], expected: &Expected<'_>) -> Result<(u32, Memory), String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let said = |key: &str| metadata.metadata().as_ref()?.get(key);
    let round = said(ROUND).and_then(|round| round.parse().ok());
    let round = round.ok_or("it does not say of which round it is")?;
    if said(CLIENT).is_none_or(|client| client != expected.client.as_str()) {
        return Err("it is not this client's".into());
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut memory = Memory::new();
    for (place, tensor) in tensors.iter() {
        let values = tensor.data().as_chunks().0.iter();
        let values: Vec<f32> = values.map(|&value| f32::from_le_bytes(value)).collect();
        let mut parts = place.splitn(3, '/');
        let (Some(component), Some(shape), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("{place} is not the name of anything that is kept"));
        };
        let shape = match shape {
            PARAMETERS => Shape::Parameters,
            BUFFERS => Shape::Buffers,
            FREE => Shape::Free(values.len()),
            _ => return Err(format!("{place} has no shape that is known")),
        };
        let length = shape.length(expected.whole);
        if tensor.dtype() != Dtype::F32 || tensor.shape() != [length] {
            let (dtype, shape) = (tensor.dtype(), tensor.shape());
            return Err(format!("{place} is {dtype:?} of {shape:?}, not {length} × F32"));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(format!("{place} holds a value that is not finite"));
        }
        memory.of_mut(component).insert(name, shape, values);
    }
    match expected.front.is_none_or(|front| Front::is_whole(&memory, front)) {
        true => Ok((round, memory)),
        false => Err("a part of the front is missing".into()),
    }
}

/// How the shapes of vectors are written.
const FREE: &str = "free";

fn write(path: &Path, client: &ClientName, round: u32, memory: &Memory) -> Result<(), KeptError> {
    let vectors = memory.iter().flat_map(|(component, vectors)| {
        vectors.iter().map(move |(name, vector)| {
            let shape = match vector.shape {
                Shape::Parameters => PARAMETERS,
                Shape::Buffers => BUFFERS,
                Shape::Free(_) => FREE,
            };
            let bytes: Vec<u8> = vector.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (format!("{component}/{shape}/{name}"), bytes, vector.values.len())
        })
    });
    let vectors: Vec<_> = vectors.collect();
    let failed = |detail: String| file("written", path)(io::Error::other(detail));
    let views = vectors
        .iter()
        .map(|(name, bytes, length)| TensorView::new(Dtype::F32, vec![*length], bytes).map(|view| (name, view)));
    let views: Vec<_> = views
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string()))?;
    let metadata = HashMap::from([
        (ROUND.to_owned(), round.to_string()),
        (CLIENT.to_owned(), client.to_string()),
    ]);
    let contents = safetensors::serialize(views, Some(metadata)).map_err(|error| failed(error.to_string()))?;
    replace(path, &contents).map_err(file("written", path))
}

/// Writes a file aside, syncs it, and renames it: it is there whole or not at all. Makes its folder if need be.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let mut aside = tempfile::NamedTempFile::new_in(folder)?;
    aside.write_all(contents)?;
    aside.as_file().sync_all()?;
    aside.persist(path)?;
    sync_folder(path)
}

/// A new name lasts once the folder is synced, which only Unix needs and allows.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    move |error| KeptError::File {
        doing,
        path: path.into(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_models::Coordinates;

    fn memory(value: f32) -> Memory {
        let mut memory = Memory::new();
        let kept = memory.of_mut("algorithm");
        kept.insert("control", Shape::Parameters, vec![value, -value]);
        kept.insert("seen", Shape::Free(1), vec![value]);
        memory
    }

    fn model(parameters: usize) -> SubModel {
        SubModel {
            units: vec![],
            parameters: Coordinates::all(parameters),
            buffers: Coordinates::all(0),
        }
    }

    fn open(folder: &Path, run: &str) -> Kept {
        let client = ClientName::numbered(1);
        Kept::open(Some(folder), run, &client, &model(2), None).unwrap()
    }

    #[test]
    fn what_is_proposed_counts_once_accepted_and_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "run");
        kept.propose(3, memory(1.0)).unwrap();
        assert_eq!(*kept.memory(), Memory::new());
        drop(kept);
        let mut kept = open(folder.path(), "run");
        kept.accept(2).unwrap();
        assert_eq!(*kept.memory(), Memory::new());
        kept.accept(3).unwrap();
        kept.accept(3).unwrap();
        assert_eq!(*kept.memory(), memory(1.0));
        kept.propose(4, memory(2.0)).unwrap();
        drop(kept);
        assert_eq!(*open(folder.path(), "run").memory(), memory(1.0));
    }

    #[test]
    fn runs_do_not_share_what_they_keep_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "../run");
        kept.propose(1, memory(1.0)).unwrap();
        kept.accept(1).unwrap();
        kept.propose(2, memory(1.0)).unwrap();
        let other = Kept::open(
            Some(folder.path()),
            "another",
            &ClientName::numbered(10),
            &model(2),
            None,
        )
        .unwrap();
        assert_eq!(*other.memory(), Memory::new());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        // A run of the same client: the one before is over.
        assert_eq!(*open(folder.path(), "another").memory(), Memory::new());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut kept = open(folder.path(), "another");
        kept.propose(1, memory(1.0)).unwrap();
        kept.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "run");
        kept.propose(1, memory(1.0)).unwrap();
        kept.accept(1).unwrap();
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&path).unwrap();
        for cut in [0, 7, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            let error = Kept::open(Some(folder.path()), "run", &ClientName::numbered(1), &model(2), None);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
        // Another client's, under this one's name; and a value that is none.
        let others = String::from_utf8_lossy(&whole).find("client-1").unwrap();
        let value = whole.len() - 4;
        for (at, bytes) in [(others, &b"client-2"[..]), (value, &f32::NAN.to_le_bytes()[..])] {
            let mut changed = whole.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            fs::write(&path, &changed).unwrap();
            let error = Kept::open(Some(folder.path()), "run", &ClientName::numbered(1), &model(2), None);
            assert!(matches!(error, Err(KeptError::Damaged { .. })), "{error:?}");
        }
        fs::write(&path, &whole).unwrap();
        let longer = Kept::open(Some(folder.path()), "run", &ClientName::numbered(1), &model(3), None);
        assert!(matches!(longer, Err(KeptError::Damaged { .. })));
    }
}
