//! Whatever interrupts writing, at whatever operation and byte: what is found afterwards is the last good state or the new
//! one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{path::Path, sync::Arc};

use proptest::prelude::*;
use selvedge_storage::{Files, Generations, Loss, MemoryFiles, StorageError, replace};

const FOLDER: &str = "folder";

/// Files with the folder in them.
fn folder() -> MemoryFiles {
    let files = MemoryFiles::new();
    files.create_folder(Path::new(FOLDER)).unwrap();
    files.after(Loss::Nothing)
}

/// All that can be left of these files by a crash at this moment, when writes have at most so many bytes.
fn crashes(files: &MemoryFiles, longest: usize) -> Vec<MemoryFiles> {
    let mut left = vec![files.after(Loss::Nothing)];
    for names in 0..1 << files.unsynced_names() {
        left.push(files.after(Loss::Unsynced { names, bytes: None }));
        for bytes in 0..=longest {
            let bytes = Some(bytes);
            left.push(files.after(Loss::Unsynced { names, bytes }));
        }
    }
    left
}

/// Does something with copies of these files that are stopped before each operation and after each byte, and looks at
/// all that can be left. Says how many operations there are.
fn interrupt(
    files: &MemoryFiles,
    longest: usize,
    act: impl Fn(MemoryFiles) -> MemoryFiles,
    look: impl Fn(MemoryFiles, bool),
) -> usize {
    let operations = act(files.after(Loss::Nothing)).operations();
    for operation in 0..=operations {
        for bytes in 0..=longest {
            let stopped = files.after(Loss::Nothing);
            stopped.stop_before(operation, bytes);
            let stopped = act(stopped);
            for left in crashes(&stopped, longest) {
                look(left, operation == operations);
            }
        }
    }
    operations
}

#[test]
fn a_file_that_is_replaced_is_as_it_was_or_as_it_was_to_be_and_as_it_was_to_be_once_that_is_said() {
    let path = Path::new("folder/file");
    for (before, after) in [
        (None, "new"),
        (Some("old"), "new"),
        (Some("older"), ""),
        (Some(""), "newer"),
    ] {
        let files = folder();
        if let Some(before) = before {
            replace(&files, path, before.as_bytes()).unwrap();
        }
        let act = |files: MemoryFiles| {
            let _ = replace(&files, path, after.as_bytes());
            files
        };
        let operations = interrupt(&files, after.len(), act, |left, is_done| {
            let found = left.read(path).ok();
            let is_before = found.as_deref() == before.map(str::as_bytes);
            let is_after = found.as_deref() == Some(after.as_bytes());
            assert!(is_after || is_before && !is_done, "{found:?}");
            // What a crash left beside it is in nobody's way.
            replace(&left, path, b"next").unwrap();
            assert_eq!(left.read(path).unwrap(), b"next");
            assert_eq!(left.list(Path::new(FOLDER)).unwrap().len(), 1);
        });
        assert_eq!(operations, 5, "create, write, sync, rename, sync the folder");
    }
}

#[test]
fn what_the_disk_refuses_leaves_nothing_beside_the_file() {
    let path = Path::new("folder/file");
    for operation in 0..4 {
        let files = folder();
        replace(&files, path, b"old").unwrap();
        let files = files.after(Loss::Nothing);
        files.refuse(operation);
        replace(&files, path, b"new").unwrap_err();
        assert_eq!(files.read(path).unwrap(), b"old");
        assert_eq!(files.list(Path::new(FOLDER)).unwrap().len(), 1);
    }
}

fn state(number: u64) -> Vec<u8> {
    format!("state {number}").into()
}

/// Opens the generations, and says the number of the newest, whose contents must be its own.
fn newest(files: MemoryFiles) -> (Generations, Option<u64>) {
    let (generations, recovered) = Generations::open(Arc::new(files), Path::new(FOLDER), "state").unwrap();
    assert!(recovered.damaged.is_empty(), "{:?}", recovered.damaged);
    let newest = recovered.newest.map(|newest| {
        assert_eq!(newest.contents, state(newest.number));
        newest.number
    });
    (generations, newest)
}

fn write(files: MemoryFiles, numbers: impl IntoIterator<Item = u64>) -> MemoryFiles {
    let files = Arc::new(files);
    {
        let (mut generations, _) = Generations::open(files.clone(), Path::new(FOLDER), "state").unwrap();
        for number in numbers {
            let _ = generations.write(number, &state(number));
        }
    }
    Arc::try_unwrap(files).unwrap()
}

#[test]
fn of_generations_the_last_or_the_new_one_is_there_whatever_interrupts_writing() {
    let longest = 8 + 28 + 32;
    for before in 0..4 {
        // The first is made with its folder.
        let files = write(MemoryFiles::new(), 1..=before);
        let last = (before > 0).then_some(before);
        let act = |files| write(files, [before + 1]);
        interrupt(&files, longest, act, |left, is_done| {
            let (mut generations, found) = newest(left);
            let is_new = found == Some(before + 1);
            assert!(is_new || found == last && !is_done, "{found:?} after {before}");
            // It goes on from what was found.
            let next = before + 2;
            generations.write(next, &state(next)).unwrap();
            let expected: Vec<u64> = found.into_iter().chain([next]).collect();
            assert_eq!(generations.whole(), expected);
        });
    }
}

#[test]
fn an_interruption_after_an_interruption_costs_no_more() {
    let first = write(MemoryFiles::new(), [1]);
    let operations = write(first.after(Loss::Nothing), [2]).operations();
    for at in 0..=operations {
        let stopped = first.after(Loss::Nothing);
        stopped.stop_before(at, 5);
        for left in crashes(&write(stopped, [2]), 5) {
            let (_, found) = newest(left.after(Loss::Nothing));
            let found = found.unwrap();
            for again in 0..=operations + 1 {
                let stopped = left.after(Loss::Nothing);
                stopped.stop_before(again, 7);
                for left in crashes(&write(stopped, [found + 1]), 7) {
                    let (_, then) = newest(left);
                    assert!(then == Some(found) || then == Some(found + 1));
                }
            }
        }
    }
}

#[test]
fn two_generations_are_kept_and_each_can_be_read() {
    let files = Arc::new(MemoryFiles::new());
    let (mut generations, _) = Generations::open(files.clone(), Path::new(FOLDER), "state").unwrap();
    // Another's, in the same folder.
    files.put(Path::new("folder/state.01"), b"another's");
    files.put(Path::new("folder/states.1"), b"another's");
    for number in [2, 3, 7] {
        generations.write(number, &state(number)).unwrap();
    }
    assert_eq!(generations.whole(), [3, 7]);
    assert_eq!(generations.read(3).unwrap(), state(3));
    assert_eq!(generations.read(7).unwrap(), state(7));
    assert!(matches!(generations.read(2), Err(StorageError::File { .. })));
    assert_eq!(files.list(Path::new(FOLDER)).unwrap().len(), 4);
    let refused = generations.write(7, b"again").unwrap_err();
    assert!(matches!(refused, StorageError::OutOfOrder { last: 7, number: 7, .. }));
}

#[test]
fn a_damaged_generation_is_named_the_one_before_is_found_and_the_damaged_one_is_written_over() {
    let files = write(MemoryFiles::new(), [4, 5]);
    let path = Path::new("folder/state.5");
    let whole = files.read(path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        is_noticed(&files, path, &flipped);
    }
    for length in 0..whole.len() {
        is_noticed(&files, path, &whole[..length]);
    }
    is_noticed(&files, path, &[&whole[..], &[0]].concat());
    // Whole, but of another generation.
    is_noticed(&files, path, &files.read(Path::new("folder/state.4")).unwrap());
}

fn is_noticed(files: &MemoryFiles, path: &Path, damaged: &[u8]) {
    let files = files.after(Loss::Nothing);
    files.put(path, damaged);
    let (mut generations, recovered) = Generations::open(Arc::new(files), Path::new(FOLDER), "state").unwrap();
    assert_eq!(recovered.newest.unwrap().number, 4);
    let [error] = &recovered.damaged[..] else {
        panic!("{:?}", recovered.damaged);
    };
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    generations.write(5, &state(5)).unwrap();
    assert_eq!(generations.whole(), [4, 5]);
    assert_eq!(generations.read(5).unwrap(), state(5));
}

#[test]
fn where_no_generation_is_whole_that_is_an_error_and_where_none_was_written_it_is_not() {
    assert_eq!(newest(MemoryFiles::new()).1, None);
    let files = write(MemoryFiles::new(), [4, 5]);
    for number in [4, 5] {
        files.put(&Path::new(FOLDER).join(format!("state.{number}")), b"damaged");
    }
    let error = Generations::open(Arc::new(files), Path::new(FOLDER), "state").unwrap_err();
    let StorageError::NoneWhole { path, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(path, Path::new("folder/state.5"));
}

#[test]
fn a_write_that_the_disk_refuses_can_be_tried_again() {
    for operation in 0..6 {
        let files = Arc::new(write(MemoryFiles::new(), [1, 2]).after(Loss::Nothing));
        let (mut generations, _) = Generations::open(files.clone(), Path::new(FOLDER), "state").unwrap();
        files.refuse(operation);
        let refused = generations.write(3, &state(3));
        refused.unwrap_err();
        let next = generations.whole().last().unwrap() + 1;
        generations.write(next, &state(next)).unwrap();
        assert_eq!(*generations.whole(), [next - 1, next]);
        assert_eq!(files.list(Path::new(FOLDER)).unwrap().len(), 2);
    }
}

/// Something that can happen to a state.
#[derive(Clone, Debug)]
enum Turn {
    Write,
    /// It is interrupted there, and this is lost.
    Crash(usize, usize, u64, Option<usize>),
}

proptest! {
    #[test]
    fn in_a_life_of_writes_and_crashes_the_newest_is_never_older_than_the_last_that_was_said_to_be_written(
        turns in prop::collection::vec(prop_oneof![
            Just(Turn::Write),
            (0usize..8, 0usize..80, any::<u64>(), prop::option::of(0usize..80))
                .prop_map(|(at, bytes, names, left)| Turn::Crash(at, bytes, names, left)),
        ], 0..30),
    ) {
        let mut files = MemoryFiles::new();
        let (mut durable, mut newer) = (0, 0);
        for turn in turns {
            let (_, found) = newest(files.after(Loss::Nothing));
            let found = found.unwrap_or_default();
            prop_assert!(found == durable || found == newer);
            (durable, newer) = (found, found + 1);
            files = match turn {
                Turn::Write => {
                    durable = newer;
                    write(files, [newer]).after(Loss::ALL)
                }
                Turn::Crash(at, torn, names, bytes) => {
                    let stopped = files.after(Loss::Nothing);
                    stopped.stop_before(at, torn);
                    write(stopped, [newer]).after(Loss::Unsynced { names, bytes })
                }
            };
        }
    }
}
