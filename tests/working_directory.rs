//! A program that changes its working directory keeps the log that it opened by a relative path. What was created later
//! once went to the new working directory, and what was read again was looked for there: a log lay in two places, and
//! wrote into another one of the same name.
//!
//! The working directory is the process's, so all of it is one test.

use std::env;
use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use taffrail::{BatchBuilder, Error, FileStorage, LockMode, Log, Offset, Reads, Record, Storage, TopicConfig};
use tempfile::TempDir;

#[test]
fn a_change_of_the_working_directory_moves_nothing() {
    let home = TempDir::new().expect("a temporary directory");
    let [there, elsewhere] = ["there", "elsewhere"].map(|name| home.path().join(name));
    for directory in [&there, &elsewhere] {
        fs::create_dir(directory).expect("it is new");
    }
    every_operation_of_a_storage(&there, &elsewhere);
    a_log(&there, &elsewhere);
    a_working_directory_that_is_gone(home.path());
}

/// Everything below a directory, by its path there.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it lists") {
        let path = entry.expect("it lists").path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

fn go(to: &Path) {
    env::set_current_dir(to).expect("it is there");
}

fn every_operation_of_a_storage(there: &Path, elsewhere: &Path) {
    go(there);
    // One open file at a time: the others are opened again under their names.
    let storage = FileStorage::new().reads(Reads::Buffered).open_files(1);
    go(elsewhere);
    let data = Path::new("data");
    storage.create_directory(data).expect("it is new");
    let [one, two, three] = ["data/one", "data/two", "data/three"].map(Path::new);
    let file = storage.create(one, 100).expect("it is new");
    file.write(0, &[IoSlice::new(b"cast off")]).expect("there is room");
    let other = storage.create(two, 100).expect("it is new");
    file.sync().expect("synced");
    other.sync().expect("synced");
    assert_eq!(&file.read(0..100).expect("readable")[..], b"cast off");
    storage.link(one, three).expect("the name is free");
    file.truncate(4).expect("a copy takes its place");
    file.rename(Path::new("data/four")).expect("the same directory");
    drop((file, other));
    storage.rename(two, Path::new("./data/five")).expect("nobody has it open");
    storage.sync_directory(data).expect("synced");
    storage.modified(three).expect("it is there");
    let names = |directory: &str| -> Vec<_> {
        storage.list(Path::new(directory)).expect("it lists").into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(
        (names("data"), names("."), names("data/..")),
        (strings(["five", "four", "three"]), strings(["data"]), strings(["data"]))
    );
    let held = storage.lock(Path::new("data/.lock"), LockMode::Exclusive).expect("nobody holds it");
    let second = storage.lock(&there.join("data/.lock"), LockMode::Exclusive).expect_err("it is held");
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
    drop(held);
    let text = |path: &str| storage.open(Path::new(path), 100).expect("it is there").read(0..100).expect("readable");
    assert_eq!((&text("data/four")[..], &text("data/three")[..]), (&b"cast"[..], &b"cast off"[..]));
    storage.open(Path::new(""), 100).expect_err("that is no file");
    assert!(storage.list(Path::new("")).is_err(), "that is no directory");
    for file in ["data/four", "data/five", "data/three", "data/.lock"] {
        storage.remove(Path::new(file)).expect("it is there");
    }
    storage.remove_directory(data).expect("it is empty");
    assert_eq!((tree(there), tree(elsewhere)), (Vec::new(), Vec::new()));
}

fn strings<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

fn append(log: &Log, value: &str) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value)).expect("small");
    let partition = log.partition("orders", 0).expect("it is there");
    partition.append(&mut batch).expect("appended").wait().expect("stored");
}

fn offsets(log: &Log) -> (Offset, Offset) {
    let partition = log.partition("orders", 0).expect("it is there");
    (partition.start(), partition.end())
}

/// Two logs have one name, in two directories. Each gets what was meant for it.
fn a_log(there: &Path, elsewhere: &Path) {
    let config = || TopicConfig::new().segment_bytes(150);
    go(elsewhere);
    let other = Log::open("data").expect("it is new");
    other.create_topic("orders", config()).expect("it is new");
    append(&other, "of the other");
    other.close().expect("closed");
    let before = tree(elsewhere);

    go(there);
    let log = Log::open("data").expect("it is new");
    log.create_topic("orders", config()).expect("it is new");
    append(&log, "before");
    go(elsewhere);
    for _ in 0..8 {
        append(&log, "behind");
    }
    let partition = log.partition("orders", 0).expect("it is there");
    partition.trim_before(Offset(6)).expect("nothing is held");
    partition.export("copy-0").expect("the directory is new");
    log.create_topic("invoices", config()).expect("it is new");
    let refused = Log::open(there.join("data")).expect_err("it is open");
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    // What a person is shown is what the host wrote.
    let shown = partition.export("copy-0").expect_err("it is there").to_string();
    assert!(!shown.contains(&*there.to_string_lossy()), "{shown}");
    log.close().expect("closed");

    assert_eq!(tree(elsewhere), before, "nothing of it went here");
    assert!(there.join("copy-0").is_dir() && there.join("data/invoices-0").is_dir());
    let log = Log::open(there.join("data")).expect("it opens");
    assert_eq!((log.topics().len(), offsets(&log)), (2, (Offset(6), Offset(9))));
    let other = Log::open("data").expect("it opens");
    assert_eq!((other.topics().len(), offsets(&other)), (1, (Offset(0), Offset(1))));
}

/// Nobody can say where relative paths lead to: they stay what they are.
fn a_working_directory_that_is_gone(home: &Path) {
    let gone = home.join("gone");
    fs::create_dir(&gone).expect("it is new");
    go(&gone);
    fs::remove_dir(&gone).expect("it is empty");
    let storage = FileStorage::new();
    storage.create_directory(Path::new("data")).expect_err("there is nothing to create it in");
    go(home);
    storage.create_directory(Path::new("data")).expect("it is new");
    assert!(home.join("data").is_dir());
}
