//! Files that are none of the partition's lie where somebody put them, and stay: an open once removed whatever ended in
//! `.tmp`, `.deleted` or `.cleaned`, and what had a number in front when a swap was finished.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use taffrail::{BatchBuilder, Error, ErrorKind, Force, Offset, Partition, PartitionConfig, Record};

fn open(path: &Path) -> taffrail::Result<Partition> {
    Partition::open(path, PartitionConfig::new().segment_bytes(1_500).index_interval_bytes(200))
}

fn append(partition: &Partition, count: usize) {
    for _ in 0..count {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&"v".repeat(200))).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    }
}

const FOREIGN: [&str; 17] = [
    "draft.tmp",
    ".hidden.tmp",
    "old.deleted",
    "room.cleaned",
    "thesis.swap",
    "notes.txt",
    ".log",
    "x.log",
    "x.log.deleted",
    "1.log.deleted",
    "00000000000000000000.log.bak",
    "00000000000000000000.idea",
    "00000000000000000000.idea.swap",
    "00000000000000000000.log.tmp.deleted",
    "00000000000000000000.log.x.deleted",
    "00000000000000000000.deleted",
    "99999999999999999999.log",
];

#[test]
fn foreign_files_stay() {
    let place = tempfile::tempdir().expect("a place");
    let path = place.path().join("project-1");
    fs::create_dir(&path).expect("a directory");
    for name in FOREIGN {
        fs::write(path.join(name), name).expect("a file");
    }
    let partition = open(&path).expect("opens");
    append(&partition, 20);
    partition.truncate_from(Offset(12), Force::Yes).expect("cut");
    partition.trim_before(Offset(8)).expect("trimmed");
    partition.close().expect("closes");
    // A swap that had begun: the file replaces the ones in its range, and nothing else.
    let is_log = |name: &String| name.ends_with(".log") && name.len() == 24 && !name.starts_with('9');
    let names = fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let log = names.filter(is_log).max().expect("a segment");
    fs::rename(path.join(&log), path.join(format!("{log}.swap"))).expect("renamed");
    let partition = open(&path).expect("opens");
    assert_eq!(partition.end(), Offset(12));
    partition.close().expect("closes");
    assert!(!path.join(format!("{log}.swap")).exists(), "the swap is finished");
    for name in FOREIGN {
        assert_eq!(fs::read(path.join(name)).ok().as_deref(), Some(name.as_bytes()), "{name} is gone or changed");
    }
}

#[test]
fn what_a_crash_left_of_ours_goes() {
    let place = tempfile::tempdir().expect("a place");
    let path = place.path().join("wal-0");
    fs::create_dir(&path).expect("a directory");
    let ours = [
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.7.deleted",
        "00000000000000000000.log.copy.deleted",
        "00000000000000000003.index.deleted",
        "00000000000000000003.timeindex.12.deleted",
        "00000000000000000003.txnindex.copy.deleted",
        "00000000000000000003.snapshot.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000003.log.cleaned.deleted",
        "00000000000000000003.index.cleaned",
        "recovery-point-offset-checkpoint.tmp",
        "log-start-offset-checkpoint.tmp",
        "replication-offset-checkpoint.tmp",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
        "history.taffrail.tmp",
        ".kafka_cleanshutdown.tmp",
    ];
    for name in ours {
        fs::write(path.join(name), name).expect("a file");
    }
    open(&path).expect("opens").close().expect("closes");
    for name in ours {
        assert!(!path.join(name).exists(), "{name} is still there");
    }
}

/// One link that leads nowhere once made a directory impossible to list; and a segment behind such a link counted as
/// absent, so that an open took the log for empty and began it anew.
#[test]
fn links_that_lead_nowhere() {
    let place = tempfile::tempdir().expect("a place");
    let path = place.path().join("wal-0");
    fs::create_dir(&path).expect("a directory");
    for directory in [place.path(), &path] {
        symlink(directory.join("loop"), directory.join("loop")).expect("a link");
        symlink("/nonexistent/x", directory.join("dangling")).expect("a link");
    }
    let partition = open(&path).expect("opens");
    append(&partition, 20);
    partition.close().expect("closes");
    open(&place.path().join("new-0")).expect("opens").close().expect("closes");

    let log = path.join("00000000000000000000.log");
    let (far, away) = (place.path().join("far.log"), place.path().join("away.log"));
    fs::rename(&log, &far).expect("renamed");
    symlink(&far, &log).expect("a link");
    assert_eq!(open(&path).expect("follows the link").end(), Offset(20));
    fs::rename(&far, &away).expect("the disk is not mounted");
    let error = open(&path).expect_err("a segment cannot be looked at");
    assert!(matches!(&error, Error::Io { path, .. } if *path == log), "{error}");
    assert_eq!(error.kind(), ErrorKind::Fix);
    fs::rename(&away, &far).expect("mounted");
    let partition = open(&path).expect("opens");
    assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(20)));
}
