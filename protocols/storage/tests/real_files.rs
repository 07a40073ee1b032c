//! The system's files do what those in memory do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{fs, path::Path, sync::Arc};

use proptest::prelude::*;
use selvedge_storage::{Files, Generations, MemoryFiles, RealFiles, replace, seal, unseal};

#[test]
fn a_file_is_replaced_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.txt");
    for contents in ["first", "second"] {
        replace(&RealFiles, &path, contents.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), contents);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_replaced_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("occupied");
    fs::create_dir_all(path.join("by a folder")).unwrap();
    assert!(replace(&RealFiles, &path, b"text").is_err());
    assert!(path.join("by a folder").is_dir());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn generations_outlive_who_wrote_them_and_their_folder_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("some/where");
    let open = || Generations::open(Arc::new(RealFiles), &folder, "state").unwrap();
    let (mut generations, recovered) = open();
    assert!(recovered.newest.is_none());
    for number in 1..=3 {
        generations.write(number, &[number as u8; 100]).unwrap();
    }
    let (generations, recovered) = open();
    assert_eq!(recovered.newest.unwrap().contents, [3; 100]);
    assert_eq!(generations.whole(), [2, 3]);
    fs::write(folder.join("state.3"), b"damaged").unwrap();
    let (_, recovered) = open();
    assert_eq!(recovered.newest.unwrap().contents, [2; 100]);
    assert_eq!(recovered.damaged.len(), 1);
}

/// What can be done with files.
#[derive(Clone, Debug)]
enum Turn {
    Replace(usize, Vec<u8>),
    Rename(usize, usize),
    Remove(usize),
    Read(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let file = || 0usize..3;
    prop_oneof![
        (file(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(at, contents)| Turn::Replace(at, contents)),
        (file(), file()).prop_map(|(from, to)| Turn::Rename(from, to)),
        file().prop_map(Turn::Remove),
        file().prop_map(Turn::Read),
    ]
}

/// Does it, and says what came of it and which files there are.
fn take(files: &dyn Files, folder: &Path, turn: &Turn) -> (Option<Vec<u8>>, Vec<String>) {
    let path = |at: &usize| folder.join(format!("file {at}"));
    let came_to = match turn {
        Turn::Replace(at, contents) => replace(files, &path(at), contents).map(|()| Vec::new()),
        Turn::Rename(from, to) => files.rename(&path(from), &path(to)).map(|()| Vec::new()),
        Turn::Remove(at) => files.remove(&path(at)).map(|()| Vec::new()),
        Turn::Read(at) => files.read(&path(at)),
    };
    let listed = files.list(folder).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    (came_to.ok(), listed.iter().map(|listed| name(&listed.path)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn files_in_memory_are_like_the_systems(turns in prop::collection::vec(turn(), 0..20)) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("folder");
        let memory = MemoryFiles::new();
        for files in [&memory as &dyn Files, &RealFiles] {
            prop_assert!(files.list(&folder).unwrap().is_empty());
            files.create_folder(&folder).unwrap();
        }
        for turn in &turns {
            prop_assert_eq!(take(&memory, &folder, turn), take(&RealFiles, &folder, turn), "{:?}", turn);
        }
    }
}

proptest! {
    #[test]
    fn what_is_sealed_is_what_is_unsealed_and_any_change_is_noticed(
        number in any::<u64>(),
        contents in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
    ) {
        let mut sealed = seal(number, &contents);
        prop_assert_eq!(unseal(&sealed), Ok((number, &contents[..])));
        let at = at.index(sealed.len());
        prop_assert!(unseal(&sealed[..at]).is_err());
        sealed[at] ^= change;
        prop_assert!(unseal(&sealed).is_err());
    }
}
