//! Files that are there whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Writes a file beside `path`, then puts it in the place of `path`: after a crash at any moment `path` is as it was,
/// or holds all of `contents`.
///
/// # Errors
/// When the file cannot be written; then nothing is left beside `path`.
pub(super) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    let write = || {
        let mut file = File::create(&aside)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    if let Err(error) = write() {
        // What matters is why it could not be written; the file may not even be there.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    match path.parent() {
        // Only Unix lets a folder be opened, and needs it to be synced for a new name to last.
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.txt");
        for contents in ["first", "second"] {
            replace(&path, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_replaced_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("occupied");
        fs::create_dir_all(path.join("by a folder")).unwrap();
        assert!(replace(&path, b"text").is_err());
        assert!(path.join("by a folder").is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
