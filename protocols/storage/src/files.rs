//! The operations on files that storing needs, and those of the system.

use std::{
    fmt::Debug,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// What storing needs of a file system.
pub trait Files: Debug + Send + Sync {
    /// All of a file.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// A new file, empty, in place of what is there.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile + '_>>;

    /// Gives a file another name, in the same folder, in place of what has that name. The new name lasts once the folder
    /// is synced.
    ///
    /// # Errors
    /// When there is no such file, or something is in the way.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder last, and that others were removed.
    ///
    /// # Errors
    /// When it is not there or the disk refuses.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file. That lasts once the folder is synced.
    ///
    /// # Errors
    /// When there is no such file or it cannot be removed.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The files in a folder, in the order of their names; none if there is no such folder.
    ///
    /// # Errors
    /// When it cannot be read.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;

    /// Makes a folder and those above it, where they are not there.
    ///
    /// # Errors
    /// When one cannot be made.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile {
    /// Adds all of this.
    ///
    /// # Errors
    /// When not all could be added.
    fn write(&mut self, contents: &[u8]) -> io::Result<()>;

    /// Makes what was written last.
    ///
    /// # Errors
    /// When the disk refuses.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The file.
    pub path: PathBuf,
    /// When it was written last.
    pub written: SystemTime,
}

/// The system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl NewFile for fs::File {
    fn write(&mut self, contents: &[u8]) -> io::Result<()> {
        self.write_all(contents)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The folder that a path is in; that of a bare name is the one this process is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

impl Files for RealFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile + '_>> {
        Ok(Box::new(fs::File::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        match cfg!(unix) {
            true => fs::File::open(folder)?.sync_all(),
            // Only Unix lets a folder be opened, and needs it to be synced for a new name to last.
            false => Ok(()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => files.push(Listed {
                    path: entry.path(),
                    written: metadata.modified()?,
                }),
                Ok(_) => {}
                // Another process has removed it since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        files.sort();
        Ok(files)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let above = folder_of(folder);
        if above != folder {
            self.create_folder(above)?;
        }
        match fs::create_dir(folder) {
            Ok(()) => self.sync_folder(above),
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
