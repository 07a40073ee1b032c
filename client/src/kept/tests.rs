use std::{
    fs,
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use selvedge_models::Coordinates;
use selvedge_protocols::Shape;
use selvedge_storage::{Loss, MemoryFiles, seal, unseal};

use super::{folder::RUNS, *};

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

fn try_open(folder: &Path) -> Result<Kept, KeptError> {
    Kept::open(Some(folder), "run", &ClientName::numbered(1), &model(2), None)
}

fn open(folder: &Path, run: &str) -> Kept {
    let client = ClientName::numbered(1);
    Kept::open(Some(folder), run, &client, &model(2), None).unwrap()
}

/// What is kept of a run in these files.
fn open_among(files: MemoryFiles) -> (Arc<MemoryFiles>, Kept) {
    let files = Arc::new(files);
    let (folder, client) = (Path::new("folder"), ClientName::numbered(1));
    let kept = Kept::open_among(files.clone(), Some(folder), "run", &client, &model(2), None);
    (files, kept.unwrap())
}

/// Trains in these rounds, and all their updates count.
fn count(kept: &mut Kept, rounds: impl IntoIterator<Item = u32>, resumable: &[u32]) {
    for round in rounds {
        kept.propose(round, memory(round as f32)).unwrap();
        kept.accept(round, resumable).unwrap();
    }
}

fn counting(kept: &Kept) -> Vec<u32> {
    for (&round, is) in &kept.counting {
        assert_eq!(*is, memory(round as f32));
    }
    kept.counting.keys().copied().collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_proposed_counts_once_accepted_and_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    kept.propose(3, memory(1.0)).unwrap();
    assert_eq!(*kept.memory_for(4), Memory::new());
    drop(kept);
    let mut kept = open(folder.path(), "run");
    kept.accept(2, &[]).unwrap();
    assert_eq!(*kept.memory_for(4), Memory::new());
    kept.accept(3, &[]).unwrap();
    kept.accept(3, &[]).unwrap();
    assert_eq!(*kept.memory_for(4), memory(1.0));
    kept.propose(4, memory(2.0)).unwrap();
    drop(kept);
    assert_eq!(*open(folder.path(), "run").memory_for(5), memory(1.0));
}

#[test]
fn training_begins_with_the_newest_of_an_earlier_round() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    count(&mut kept, [2, 5], &[2]);
    for kept in [kept, open(folder.path(), "run")] {
        for (round, expected) in [(1, 0), (2, 0), (3, 2), (5, 2), (6, 5), (100, 5)] {
            assert_eq!(kept.round_for(round), expected);
            let expected = if expected == 0 {
                Memory::new()
            } else {
                memory(expected as f32)
            };
            assert_eq!(*kept.memory_for(round), expected, "round {round}");
        }
    }
}

#[test]
fn beside_the_newest_only_what_the_coordinator_may_go_back_to_is_kept() {
    for (resumable, expected) in [
        (&[][..], &[6][..]),
        (&[6], &[6]),
        (&[1], &[1, 6]),
        (&[3], &[2, 6]),
        (&[1, 3], &[1, 2, 6]),
        (&[2, 3, 100], &[2, 6]),
        (&[0], &[6]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "run");
        count(&mut kept, [1, 2, 5], &[1, 2, 5]);
        count(&mut kept, [6], resumable);
        assert_eq!(counting(&kept), expected, "{resumable:?}");
        assert_eq!(counting(&open(folder.path(), "run")), expected);
        assert_eq!(names(folder.path()).len(), expected.len());
    }
}

#[test]
fn what_is_of_a_time_that_did_not_come_to_pass_is_dropped() {
    let begin = || {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "run");
        count(&mut kept, [2, 4, 5], &[2, 4, 5]);
        (folder, kept)
    };
    // Training again says so.
    let (folder, mut kept) = begin();
    assert_eq!(*kept.memory_for(4), memory(2.0));
    kept.propose(4, memory(40.0)).unwrap();
    assert_eq!(counting(&kept), [2]);
    assert_eq!(counting(&open(folder.path(), "run")), [2]);
    kept.accept(4, &[2]).unwrap();
    assert_eq!(*kept.memory_for(6), memory(40.0));
    assert_eq!(*open(folder.path(), "run").memory_for(6), memory(40.0));
    // And so does which update of this client was the last that counts.
    let (folder, mut kept) = begin();
    kept.accept(2, &[2]).unwrap();
    assert_eq!(counting(&kept), [2]);
    assert_eq!(counting(&open(folder.path(), "run")), [2]);
    let (folder, mut kept) = begin();
    kept.accept(0, &[2]).unwrap();
    assert_eq!(counting(&kept), [0; 0]);
    assert_eq!(names(folder.path()).len(), 0);
}

#[test]
fn what_was_proposed_before_the_coordinator_went_back_still_counts_if_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    count(&mut kept, [2], &[2]);
    kept.propose(3, memory(3.0)).unwrap();
    drop(kept);
    let mut kept = open(folder.path(), "run");
    kept.accept(2, &[2]).unwrap();
    kept.accept(3, &[2, 3]).unwrap();
    assert_eq!(counting(&kept), [2, 3]);
}

#[test]
fn an_algorithm_that_keeps_nothing_leaves_no_files_and_one_that_no_longer_does_leaves_that() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    for round in [1, 2, 3] {
        kept.propose(round, Memory::new()).unwrap();
        assert_eq!(names(folder.path()).len(), 0);
        kept.accept(round, &[round]).unwrap();
        assert_eq!(names(folder.path()).len(), 0);
    }
    count(&mut kept, [4], &[]);
    kept.propose(5, Memory::new()).unwrap();
    kept.accept(5, &[]).unwrap();
    assert_eq!(*open(folder.path(), "run").memory_for(6), Memory::new());
    assert_eq!(open(folder.path(), "run").round_for(6), 5);
    kept.propose(6, Memory::new()).unwrap();
    kept.accept(6, &[]).unwrap();
    assert_eq!(names(folder.path()).len(), 0);
}

#[test]
fn runs_and_clients_do_not_share_what_they_keep_and_of_a_client_that_of_the_last_runs_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut another = Kept::open(Some(path), "run 0", &ClientName::numbered(10), &model(2), None).unwrap();
    another.propose(1, memory(10.0)).unwrap();
    fs::write(path.join("client-1.mine.kept"), b"not of a run").unwrap();
    for run in 0..RUNS {
        let mut kept = open(path, &format!("../run {run}"));
        assert_eq!(*kept.memory_for(9), Memory::new());
        count(&mut kept, [1], &[]);
        kept.propose(2, memory(2.0)).unwrap();
    }
    assert_eq!(names(path).len(), 2 + 2 * RUNS);
    // The first is written again, so that the second is the oldest.
    let later = SystemTime::now() + Duration::from_secs(60);
    let mut kept = open(path, "../run 0");
    assert_eq!(*kept.memory_for(9), memory(1.0));
    kept.propose(3, memory(3.0)).unwrap();
    for name in names(path) {
        let whole = fs::File::options().write(true).open(path.join(&name)).unwrap();
        let is_first = name.starts_with(&names_of("../run 0"));
        let is_second = name.starts_with(&names_of("../run 1"));
        whole
            .set_modified(match (is_first, is_second) {
                (true, _) => later,
                (_, true) => SystemTime::UNIX_EPOCH,
                _ => later - Duration::from_secs(30),
            })
            .unwrap();
    }
    // One that keeps nothing costs none its place.
    open(path, "nothing").propose(1, Memory::new()).unwrap();
    assert_eq!(open(path, "../run 1").round_for(9), 1);
    count(&mut open(path, "one more"), [1], &[]);
    for (run, expected) in [(0, 1), (1, 0), (2, 1), (RUNS - 1, 1)] {
        assert_eq!(open(path, &format!("../run {run}")).round_for(9), expected, "run {run}");
    }
    assert!(path.join("client-1.mine.kept").exists());
    let another = Kept::open(Some(path), "run 0", &ClientName::numbered(10), &model(2), None).unwrap();
    assert_eq!(another.proposed, Some((1, memory(10.0))));
}

/// What the names of the files of a run begin with.
fn names_of(run: &str) -> String {
    format!("client-1.{}.", &blake3::hash(run.as_bytes()).to_hex()[..16])
}

#[test]
fn a_damaged_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    kept.propose(1, memory(1.0)).unwrap();
    kept.accept(1, &[]).unwrap();
    let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&path).unwrap();
    for cut in [0, 7, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = try_open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    // Another client's, under this one's name; and a value that is none.
    let (_, contents) = unseal(&whole).unwrap();
    let others = String::from_utf8_lossy(contents).find("client-1").unwrap();
    let value = contents.len() - 4;
    for (at, bytes) in [(others, &b"client-2"[..]), (value, &f32::NAN.to_le_bytes()[..])] {
        let mut changed = contents.to_vec();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, seal(1, &changed)).unwrap();
        let error = try_open(folder.path());
        assert!(matches!(error, Err(KeptError::Damaged { .. })), "{error:?}");
    }
    // Of another round than its name says.
    fs::write(&path, seal(2, contents)).unwrap();
    assert!(matches!(try_open(folder.path()), Err(KeptError::Damaged { .. })));
    fs::write(&path, &whole).unwrap();
    let longer = Kept::open(Some(folder.path()), "run", &ClientName::numbered(1), &model(3), None);
    assert!(matches!(longer, Err(KeptError::Damaged { .. })));
}

#[test]
fn where_an_older_one_is_whole_a_damaged_one_is_said_and_removed_once_something_newer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = open(folder.path(), "run");
    count(&mut kept, [1, 2], &[1]);
    kept.propose(3, memory(3.0)).unwrap();
    let newest = folder.path().join(format!("{}2.kept", names_of("run")));
    let proposed = folder.path().join(format!("{}proposed", names_of("run")));
    for path in [&newest, &proposed] {
        let mut damaged = fs::read(path).unwrap();
        damaged[40] ^= 1;
        fs::write(path, damaged).unwrap();
    }
    let mut kept = open(folder.path(), "run");
    let said: Vec<_> = kept
        .damaged()
        .iter()
        .map(|damaged| (&damaged.path, damaged.newest))
        .collect();
    assert_eq!(said, [(&newest, 1), (&proposed, 1)]);
    assert_eq!(*kept.memory_for(3), memory(1.0));
    kept.propose(3, memory(3.0)).unwrap();
    kept.accept(2, &[1]).unwrap();
    assert!(!newest.exists() && proposed.exists());
    kept.accept(3, &[1]).unwrap();
    let kept = open(folder.path(), "run");
    assert_eq!(counting(&kept), [1, 3]);
    assert_eq!(kept.damaged(), []);
}

/// A moment in a run: what is proposed, or counts.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Propose(u32),
    Accept(u32, &'static [u32]),
}

fn take(kept: &mut Kept, turn: Turn) -> Result<(), KeptError> {
    match turn {
        Turn::Propose(round) => kept.propose(round, memory(round as f32)),
        Turn::Accept(round, resumable) => kept.accept(round, resumable),
    }
}

/// What the coordinator counts on after these turns: for each round it may begin from, what is kept must be of this round.
fn is_there(kept: &Kept, last: u32, resumable: &[u32], counted: &[u32], turn: &str) {
    for &from in resumable.iter().chain([&last]) {
        let expected = counted
            .iter()
            .copied()
            .filter(|&round| round <= from)
            .max()
            .unwrap_or(0);
        assert_eq!(
            kept.round_for(from + 1),
            expected,
            "{turn}: from {from} on, of {counted:?}"
        );
    }
    counting(kept);
}

#[test]
fn whatever_interrupts_it_what_the_coordinator_counts_on_is_there() {
    use Turn::{Accept, Propose};
    // Two rounds, a checkpoint, a round without this client, two more; then the coordinator goes back to its checkpoint.
    let turns = [
        Propose(1),
        Accept(1, &[]),
        Propose(2),
        Accept(2, &[2]),
        Propose(4),
        Accept(4, &[2]),
        Propose(5),
        Accept(5, &[2, 4]),
        Propose(6),
        Accept(2, &[2]),
        Propose(3),
        Accept(3, &[2]),
        Propose(5),
        Accept(5, &[2, 3]),
    ];
    let mut files = MemoryFiles::new();
    let (mut last, mut resumable, mut counted): (u32, &[u32], Vec<u32>) = (0, &[], vec![]);
    for turn in turns {
        let (stopped, mut kept) = open_among(files.after(Loss::Nothing));
        take(&mut kept, turn).unwrap();
        let operations = stopped.operations();
        let done = stopped.after(Loss::ALL);
        if let Accept(round, may) = turn {
            (last, resumable) = (round, may);
            counted.retain(|&counted| counted < round);
            counted.push(round);
        }
        for at in 0..=operations {
            for torn in [0, 1, 100, usize::MAX] {
                let (stopped, mut kept) = open_among(files.after(Loss::Nothing));
                stopped.stop_before(at, torn);
                assert_eq!(take(&mut kept, turn).is_ok(), at == operations);
                let names = 0..1 << stopped.unsynced_names();
                let bytes = [None, Some(0), Some(99), Some(usize::MAX)];
                let unsynced = names.flat_map(|names| bytes.map(|bytes| Loss::Unsynced { names, bytes }));
                for loss in unsynced.chain([Loss::Nothing]) {
                    let (_, mut kept) = open_among(stopped.after(loss));
                    assert_eq!(kept.damaged(), [], "{turn:?} stopped before {at}, {loss:?}");
                    if let Accept(round, resumable) = turn {
                        // It is said again to a client that comes back.
                        kept.accept(round, resumable).unwrap();
                    }
                    is_there(
                        &kept,
                        last,
                        resumable,
                        &counted,
                        &format!("{turn:?} stopped before {at}, {loss:?}"),
                    );
                }
            }
        }
        files = done;
    }
}

proptest! {
    #[test]
    fn what_is_kept_is_bounded_and_in_files_what_it_is_in_memory(
        turns in prop::collection::vec(
            (any::<bool>(), 0u32..12, prop::collection::vec(0u32..12, 0..4)),
            0..30,
        ),
    ) {
        let (files, mut kept) = open_among(MemoryFiles::new());
        let mut in_memory = Kept::open(None, "run", &ClientName::numbered(1), &model(2), None).unwrap();
        for (is_proposed, round, resumable) in turns {
            for kept in [&mut kept, &mut in_memory] {
                match is_proposed {
                    true => kept.propose(round, memory(round as f32)).unwrap(),
                    false => kept.accept(round, &resumable).unwrap(),
                }
            }
            if !is_proposed {
                prop_assert!(kept.counting.len() <= 1 + resumable.len());
            }
            let (_, again) = open_among(files.after(Loss::ALL));
            for found in [&again, &in_memory] {
                prop_assert_eq!(&found.counting, &kept.counting);
                prop_assert_eq!(&found.proposed, &kept.proposed);
            }
        }
    }
}
