//! How a `MemoryStorage` behaves while its machine runs: failures on demand, locks, handles, and the test's own doors.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use taffrail::{Fault, LockMode, MemoryStorage, OperationKind, Storage, StorageFile, Timestamp};

fn create(storage: &MemoryStorage, path: &str) -> Arc<dyn StorageFile> {
    storage.create(Path::new(path), 0).expect("the name is free")
}

fn write(file: &Arc<dyn StorageFile>, position: u64, bytes: &[u8]) -> std::io::Result<()> {
    file.write(position, &[IoSlice::new(bytes)])
}

fn kind<T>(outcome: std::io::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[test]
fn the_nth_operation_fails_and_says_which_it_was() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "log");
    storage.fail_at(2, Fault::Denied);
    write(&file, 0, b"abc").expect("the fault is for a later one");
    let error = write(&file, 3, b"def").expect_err("it is the one");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(error.to_string(), "permission is denied (operation 2: write log, bytes 3 to 6)");
    write(&file, 3, b"def").expect("the fault was for one");
    assert_eq!(storage.bytes_of("log").expect("it is there"), "abcdef");
    assert_eq!(storage.operations(), 4);
}

#[test]
fn every_operation_is_numbered_and_every_one_can_fail() {
    let run = |storage: &MemoryStorage| {
        let file = storage.create(Path::new("/a"), 0);
        let outcomes = [
            kind(storage.open(Path::new("/a"), 0)),
            kind(storage.create_directory(Path::new("/d"))),
            kind(storage.link(Path::new("/a"), Path::new("/d/a"))),
            kind(storage.list(Path::new("/"))),
            kind(storage.modified(Path::new("/a"))),
            kind(storage.set_modified(Path::new("/a"), Timestamp(1))),
            kind(storage.sync_directory(Path::new("/"))),
            kind(storage.lock(Path::new("/lock"), LockMode::Shared)),
            kind(storage.remove(Path::new("/d/a"))),
            kind(storage.rename(Path::new("/lock"), Path::new("/lock2"))),
        ];
        let mut failed = outcomes.iter().filter(|kind| **kind == Some(ErrorKind::Other)).count();
        match file {
            Ok(file) => {
                let outcomes = [
                    kind(write(&file, 0, b"abc")),
                    kind(file.extend(9)),
                    kind(file.read(0..3)),
                    kind(file.truncate(1)),
                    kind(file.sync()),
                    kind(file.len()),
                    kind(file.rename(Path::new("/b"))),
                ];
                failed += outcomes.iter().filter(|kind| **kind == Some(ErrorKind::Other)).count();
            }
            Err(_) => failed += 1,
        }
        failed
    };
    let whole = MemoryStorage::new(1);
    whole.record_history();
    assert_eq!(run(&whole), 0);
    let history = whole.history();
    assert_eq!(history.len(), 17);
    assert_eq!(history[3].to_string(), "operation 3: link /a as /d/a");
    let kinds: std::collections::BTreeSet<_> = history.iter().map(|operation| operation.kind).collect();
    assert_eq!(kinds.len(), 16, "every kind, renaming twice");
    for number in 0..17 {
        let storage = MemoryStorage::new(1);
        storage.fail_at(number, Fault::Io);
        assert_eq!(run(&storage), 1, "{}", history[usize::try_from(number).expect("it is small")]);
    }
}

#[test]
fn an_operation_that_fails_changes_nothing_but_bytes() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("/a", b"a").expect("the name is free");
    storage.fail_from(0, Fault::Io);
    assert!(storage.create(Path::new("/b"), 0).is_err());
    assert!(storage.create_directory(Path::new("/d")).is_err());
    assert!(storage.rename(Path::new("/a"), Path::new("/c")).is_err());
    assert!(storage.remove(Path::new("/a")).is_err());
    assert!(storage.lock(Path::new("/lock"), LockMode::Exclusive).is_err());
    storage.clear_faults();
    assert_eq!(storage.list(Path::new("/")).expect("it is there").len(), 1);
}

#[test]
fn writes_that_fail_may_have_written_a_part() {
    let after = |fault, seed| {
        let storage = MemoryStorage::new(seed);
        let file = create(&storage, "/log");
        write(&file, 0, b"....").expect("nothing fails yet");
        storage.fail_at(2, fault);
        let error = kind(write(&file, 4, b"abcdefgh"));
        (error.expect("it fails"), storage.bytes_of("/log").expect("it is there")[4..].to_vec())
    };
    assert_eq!(after(Fault::ShortWrite(3), 0), (ErrorKind::WriteZero, b"abc".to_vec()));
    assert_eq!(after(Fault::ShortWrite(99), 0), (ErrorKind::WriteZero, b"abcdefgh".to_vec()));
    let full: std::collections::BTreeSet<_> = (0..100).map(|seed| after(Fault::NoSpace, seed)).collect();
    assert_eq!(full.len(), 9, "every prefix");
    assert!(full.iter().all(|(kind, left)| *kind == ErrorKind::StorageFull && b"abcdefgh".starts_with(left)));
    let broken: std::collections::BTreeSet<_> = (0..100).map(|seed| after(Fault::Io, seed)).collect();
    assert!(broken.iter().any(|(_, left)| left.is_empty()) && broken.iter().any(|(_, left)| left == b"abcdefgh"));
    assert!(broken.iter().any(|(_, left)| left.contains(&0)), "the end without the middle");
}

#[test]
fn a_full_disk_is_full_until_it_is_freed() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "log");
    file.extend(8).expect("there is space");
    storage.fill_up();
    write(&file, 0, b"in place").expect("it needs no space");
    assert_eq!(kind(write(&file, 4, b"beyond")), Some(ErrorKind::StorageFull));
    assert_eq!(kind(file.extend(99)), Some(ErrorKind::StorageFull));
    assert_eq!(kind(storage.create(Path::new("new"), 0)), Some(ErrorKind::StorageFull));
    assert_eq!(kind(storage.lock(Path::new("lock"), LockMode::Shared)), Some(ErrorKind::StorageFull));
    file.truncate(2).expect("it needs no space");
    file.sync().expect("it needs no space");
    storage.free();
    write(&file, 2, b"beyond").expect("there is space again");
    assert_eq!(storage.bytes_of("log").expect("it is there"), "inbeyond");
}

#[test]
fn a_range_of_operations_fails_as_far_as_the_fault_is_meant_for_them() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "log");
    storage.fail_between(1..4, Fault::SyncFails);
    write(&file, 0, b"abc").expect("a failing sync is none of a write's business");
    assert!(file.sync().is_err() && file.sync().is_err());
    file.sync().expect("the range has ended");
    storage.fail_at(5, Fault::ShortWrite(1));
    file.sync().expect("a sync is no short write");

    storage.fail_from(0, Fault::Denied);
    assert_eq!(kind(write(&file, 0, b"x")), Some(ErrorKind::PermissionDenied));
    assert_eq!(kind(storage.remove(Path::new("log"))), Some(ErrorKind::PermissionDenied));
    assert_eq!(kind(storage.lock(Path::new("lock"), LockMode::Shared)), Some(ErrorKind::PermissionDenied));
    assert_eq!(file.read(0..3).expect("reading is allowed"), "abc");
    storage.open(Path::new("log"), 0).expect("opening is allowed");
    storage.clear_faults();
    write(&file, 0, b"x").expect("nothing fails any more");
}

#[test]
fn a_rule_picks_operations_by_kind_and_path() {
    let storage = MemoryStorage::new(1);
    storage.fail_when(|operation| {
        let index = operation.path.extension().is_some_and(|extension| extension == "index");
        (index && operation.kind == OperationKind::Write && operation.bytes.end > 8).then_some(Fault::NoSpace)
    });
    let (log, index) = (create(&storage, "0.log"), create(&storage, "0.index"));
    write(&log, 0, &[0; 100]).expect("the rule is for indexes");
    write(&index, 0, &[0; 8]).expect("the rule is for what lies behind byte 8");
    assert_eq!(kind(write(&index, 8, &[0; 8])), Some(ErrorKind::StorageFull));
}

#[test]
fn locks_exclude_and_are_given_back() {
    let storage = MemoryStorage::new(1);
    let lock = |storage: &MemoryStorage, mode| storage.lock(Path::new("/.lock"), mode);
    let own = lock(&storage, LockMode::Exclusive).expect("it is free");
    assert_eq!(storage.bytes_of("/.lock").expect("it is there"), std::process::id().to_string());
    assert_eq!(kind(lock(&storage, LockMode::Exclusive)), Some(ErrorKind::WouldBlock));
    assert_eq!(kind(lock(&storage, LockMode::Shared)), Some(ErrorKind::WouldBlock));
    drop(own);
    let (one, two) = (lock(&storage, LockMode::Shared), lock(&storage, LockMode::Shared));
    drop(one.expect("it is free"));
    assert_eq!(kind(lock(&storage, LockMode::Exclusive)), Some(ErrorKind::WouldBlock));
    drop(two.expect("shared holders share"));
    let own = lock(&storage, LockMode::Exclusive).expect("it is free");
    let next = storage.kill();
    let theirs = lock(&next, LockMode::Exclusive).expect("the holder was killed");
    drop(own);
    assert_eq!(kind(lock(&next, LockMode::Shared)), Some(ErrorKind::WouldBlock), "a dead holder gives nothing back");
    lock(&next.crash(1), LockMode::Exclusive).expect("the holder lost its power");
    drop(theirs);
}

#[test]
fn a_lock_is_the_file_s_and_not_the_name_s() {
    let storage = MemoryStorage::new(1);
    let held = storage.lock(Path::new("/.lock"), LockMode::Exclusive).expect("it is free");
    storage.remove(Path::new("/.lock")).expect("it is there");
    let other = storage.lock(Path::new("/.lock"), LockMode::Exclusive).expect("it is another file");
    drop(held);
    assert_eq!(kind(storage.lock(Path::new("/.lock"), LockMode::Shared)), Some(ErrorKind::WouldBlock));
    drop(other);
}

#[test]
fn what_was_read_never_changes() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/log");
    write(&file, 0, &[1; 10_000]).expect("nothing fails here");
    let read = file.read(2_000..9_000).expect("it is there");
    write(&file, 0, &[2; 10_000]).expect("nothing fails here");
    file.truncate(0).expect("nothing fails here");
    storage.remove(Path::new("/log")).expect("it is there");
    assert_eq!(read, vec![1; 7_000]);
    assert_eq!(file.read(0..10).expect("an open file outlives its name"), "");
}

#[test]
fn reads_end_where_the_file_does() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/log");
    file.write(0, &[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")]).expect("nothing fails here");
    assert_eq!(file.read(1..u64::MAX).expect("it is there"), "bcd");
    assert_eq!(file.read(4..9).expect("it is there"), "");
    assert_eq!(file.read(90..99).expect("it is there"), "");
    assert_eq!(kind(write(&file, 5, b"x")), Some(ErrorKind::InvalidInput), "a gap is no write");
    assert_eq!(file.len().expect("it is there"), 4);
}

#[test]
fn handles_follow_their_file() {
    let storage = MemoryStorage::new(1);
    let (one, two) = (create(&storage, "/a"), storage.open(Path::new("/a"), 0).expect("it is there"));
    write(&one, 0, b"it").expect("nothing fails here");
    one.rename(Path::new("/b")).expect("nothing fails here");
    two.rename(Path::new("/c")).expect("it follows");
    assert_eq!(storage.paths(), [PathBuf::from("/c")]);
    assert_eq!(kind(one.rename(Path::new("/d/c"))), Some(ErrorKind::InvalidInput), "another directory");
    assert_eq!(kind(storage.rename(Path::new("/c"), Path::new("/d"))), Some(ErrorKind::ResourceBusy));
    drop((one, two));
    storage.set_bytes("/d", b"replaced").expect("the name is free");
    storage.rename(Path::new("/c"), Path::new("/d")).expect("nobody has it open");
    assert_eq!(storage.bytes_of("/d").expect("it is there"), "it");
    let gone = storage.open(Path::new("/d"), 0).expect("it is there");
    storage.remove(Path::new("/d")).expect("it is there");
    drop(create(&storage, "/d"));
    assert_eq!(kind(gone.rename(Path::new("/e"))), Some(ErrorKind::NotFound), "the name is another file's");
}

#[test]
fn names_that_are_missing_or_taken_are_errors() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("/d/file", b"").expect("the name is free");
    assert_eq!(kind(storage.open(Path::new("/x"), 0)), Some(ErrorKind::NotFound));
    assert_eq!(kind(storage.create(Path::new("/d/file"), 0)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(storage.create(Path::new("/x/file"), 0)), Some(ErrorKind::NotFound));
    assert_eq!(kind(storage.create_directory(Path::new("/x/y"))), Some(ErrorKind::NotFound));
    assert_eq!(kind(storage.create_directory(Path::new("/d/file"))), Some(ErrorKind::AlreadyExists));
    storage.create_directory(Path::new("/d/")).expect("a directory that is there is left as it is");
    assert_eq!(kind(storage.list(Path::new("/d/file"))), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(storage.remove(Path::new("/d"))), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(storage.link(Path::new("/d/file"), Path::new("/d/file"))), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(storage.open(Path::new("/d/../d/file"), 0)), Some(ErrorKind::InvalidInput));
    storage.open(Path::new("/./d/./file"), 0).expect("a dot means nothing");
    let dot = storage.list(Path::new(".")).expect("the directory that relative paths start from");
    assert!(dot.is_empty());
}

#[test]
fn directories_are_listed_by_name() {
    let storage = MemoryStorage::new(1);
    for (path, len) in [("/d/b", 3), ("/d/a", 0), ("/d/c/deep", 1), ("/d2", 1), ("d/elsewhere", 1)] {
        storage.set_bytes(path, &vec![0; len]).expect("the name is free");
    }
    let entries = storage.list(Path::new("/d")).expect("it is there");
    let seen: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.len, entry.is_directory)).collect();
    assert_eq!(seen, [("a", 0, false), ("b", 3, false), ("c", 0, true)]);
    let names = |path: &str| {
        let entries = storage.list(Path::new(path)).expect("it is there");
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!((names("/"), names("")), (vec!["d".to_owned(), "d2".to_owned()], vec!["d".to_owned()]));
}

#[test]
fn bits_flip_on_the_disk_and_in_memory() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/log");
    storage.sync_directory(Path::new("/")).expect("nothing fails here");
    write(&file, 0, b"aa").expect("nothing fails here");
    file.sync().expect("nothing fails here");
    write(&file, 2, b"aa").expect("nothing fails here");
    storage.flip_bit("/log", 1, 1).expect("it is there");
    storage.flip_bit("/log", 3, 1).expect("it is there");
    storage.flip_bit("/log", 99, 1).expect("it is there");
    assert_eq!(storage.bytes_of("/log").expect("it is there"), "acac");
    assert_eq!(storage.durable_bytes_of("/log").expect("it is there"), "ac");
    file.sync().expect("nothing fails here");
    assert_eq!(storage.crash(1).bytes_of("/log").expect("it is there"), "acac");
    assert_eq!(kind(storage.flip_bit("/x", 0, 0)), Some(ErrorKind::NotFound));
}

#[test]
fn time_stands_still_until_it_is_set() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/log");
    let modified = |storage: &MemoryStorage| storage.modified(Path::new("/log")).expect("it is there").0;
    assert_eq!(modified(&storage), 0);
    storage.set_time(Timestamp(5));
    assert_eq!(modified(&storage), 0);
    write(&file, 0, b"x").expect("nothing fails here");
    assert_eq!(modified(&storage), 5);
    storage.set_modified("/log", Timestamp(3)).expect("it is there");
    assert_eq!(modified(&storage.kill()), 3);
}

#[test]
fn the_next_process_and_the_next_boot_find_no_faults() {
    let storage = MemoryStorage::new(1);
    storage.fail_from(0, Fault::Denied);
    storage.fill_up();
    storage.crash_at(5);
    storage.record_history();
    for next in [storage.kill(), storage.crash(1)] {
        assert_eq!(next.operations(), 0);
        for number in 0..9 {
            create(&next, &format!("/{number}"));
        }
        assert!(next.history().is_empty());
    }
}
