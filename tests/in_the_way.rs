//! What stands where something else is due (a directory for a file, a file for a directory), and names that lead
//! nowhere: the caller has to mend that, so it is told which path it is, and that repeating the call will not do.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use taffrail::{
    BatchBuilder, Error, ErrorKind, Fault, MemoryStorage, Offset, OperationKind, Partition, PartitionConfig,
    ReadOptions, Record,
};

fn open(path: &Path) -> taffrail::Result<Partition> {
    Partition::open(path, PartitionConfig::new())
}

/// The partition does not open; the error says that `culprit` has to be mended.
fn refused(path: &Path, culprit: &Path) {
    let error = open(path).expect_err("something is in the way");
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Fix, "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&*culprit.to_string_lossy()), "{message} does not name {}", culprit.display());
}

/// Opens, and has `records` records.
fn holds(path: &Path, records: usize) {
    let partition = open(path).expect("nothing is in the way");
    assert_eq!(partition.read(Offset(0), ReadOptions::new()).expect("readable").records().count(), records);
    partition.close().expect("it closes");
}

#[test]
fn a_directory_where_a_file_is_due() {
    let place = tempfile::tempdir().expect("a place");
    let names = [
        ".lock",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "leader-epoch-checkpoint",
        "history.taffrail",
        "00000000000000000000.log",
    ];
    for (number, name) in names.iter().enumerate() {
        let path = place.path().join(format!("wal-{number}"));
        let obstacle = path.join(name);
        fs::create_dir_all(&obstacle).expect("a directory");
        refused(&path, &obstacle);
        fs::remove_dir(&obstacle).expect("it is empty");
        holds(&path, 0);
    }
}

#[test]
fn a_directory_in_the_place_of_a_file_that_was_there() {
    let place = tempfile::tempdir().expect("a place");
    let path = place.path().join("wal-0");
    let partition = open(&path).expect("it opens");
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("v")).expect("small");
    partition.append(&mut batch).expect("taken").wait().expect("stored");
    partition.close().expect("it closes");
    for name in ["recovery-point-offset-checkpoint", "leader-epoch-checkpoint", "history.taffrail"] {
        let (file, aside) = (path.join(name), place.path().join("aside"));
        fs::rename(&file, &aside).expect("it is there");
        fs::create_dir(&file).expect("a directory");
        refused(&path, &file);
        fs::remove_dir(&file).expect("it is empty");
        fs::rename(&aside, &file).expect("back");
    }
    holds(&path, 1);
}

#[test]
fn a_file_where_a_directory_is_due() {
    let place = tempfile::tempdir().expect("a place");
    let file = place.path().join("wal-0");
    fs::write(&file, "something else").expect("a file");
    refused(&file, &file);
    refused(&file.join("wal-1"), &file);
    refused(&file.join("deeper/wal-1"), &file);
    assert_eq!(fs::read(&file).expect("it stays"), b"something else");
}

#[test]
fn names_that_lead_nowhere() {
    let place = tempfile::tempdir().expect("a place");
    let long = place.path().join("x".repeat(300)).join("wal-0");
    refused(&long, &long);
    let long = place.path().join("x/".repeat(3_000)).join("wal-0");
    refused(&long, place.path());
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    std::os::unix::fs::symlink(&one, &other).expect("a link");
    std::os::unix::fs::symlink(&other, &one).expect("a link");
    refused(&one.join("wal-0"), &one);
}

#[test]
fn a_file_system_that_is_mounted_for_reading() {
    let source = Arc::new(io::Error::from_raw_os_error(30));
    let error = Error::Io { operation: "write", path: "/mnt/wal-0/.lock".into(), source };
    assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
    assert!(error.to_string().contains("/mnt/wal-0/.lock"), "{error}");
}

#[test]
fn a_name_with_a_zero_in_it() {
    let place = tempfile::tempdir().expect("a place");
    let zero = place.path().join("a\0b");
    refused(&zero.join("wal-0"), &zero);
}

#[test]
fn what_no_repetition_mends() {
    for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::CrossesDevices, io::ErrorKind::PermissionDenied] {
        let error = Error::Io { operation: "link", path: "/mnt/wal-0".into(), source: Arc::new(kind.into()) };
        assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
    }
}

/// A directory of one's own under one that may be passed through and not be read.
#[test]
fn a_parent_that_may_not_be_read() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("home/other", b"somebody's").expect("a directory");
    storage.fail_when(|operation| {
        let of_parent = matches!(operation.path.to_str(), Some("home" | "." | ""));
        let reads = matches!(operation.kind, OperationKind::SyncDirectory | OperationKind::List);
        (reads && of_parent).then_some(Fault::Denied)
    });
    let open = || Partition::builder("home/wal-0").storage(storage.shared()).open();
    open().expect("it opens").close().expect("it closes");
    open().expect("it opens again").close().expect("it closes");
    // Any other error is one still.
    storage.clear_faults();
    storage.fail_when(|operation| {
        let of_parent = operation.path.to_str() == Some("home");
        (operation.kind == OperationKind::SyncDirectory && of_parent).then_some(Fault::Io)
    });
    Partition::builder("home/wal-1").storage(storage.shared()).open().expect_err("its name is not durable");
}
