//! Files that are there whole or not at all.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Files, files::folder_of};

/// Writes a file beside `path`, syncs it, then puts it in the place of `path` and syncs the folder: after a crash at any
/// moment `path` is as it was, or holds all of `contents`; once this returns, it holds them for good.
///
/// # Errors
/// When the file cannot be written; then nothing is left beside `path`.
pub fn replace(files: &dyn Files, path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    let write = || {
        let mut file = files.create(&aside)?;
        file.write(contents)?;
        file.sync()?;
        drop(file);
        files.rename(&aside, path)
    };
    if let Err(error) = write() {
        // What matters is why it could not be written; the file may not even be there.
        let _ = files.remove(&aside);
        return Err(error);
    }
    files.sync_folder(folder_of(path))
}

/// Removes those of these files of one folder that are there, for good.
///
/// # Errors
/// When one cannot be removed, with its path.
pub fn remove_all<'a>(
    files: &dyn Files,
    folder: &Path,
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<(), (PathBuf, io::Error)> {
    let mut is_changed = false;
    for path in paths {
        match files.remove(path) {
            Ok(()) => is_changed = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err((path.into(), error)),
        }
    }
    match is_changed {
        true => files.sync_folder(folder).map_err(|error| (folder.into(), error)),
        false => Ok(()),
    }
}
