//! Segments that were moved to another place and linked from the partition's directory: an export once linked the links,
//! so that a later truncation of the partition changed the copy.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use taffrail::{BatchBuilder, Force, Offset, Partition, PartitionConfig, ReadOptions, Record};

fn open(path: &Path) -> Partition {
    Partition::open(path, PartitionConfig::new().segment_bytes(1_500).index_interval_bytes(200)).expect("opens")
}

fn append(partition: &Partition, value: &str, count: usize) {
    for _ in 0..count {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&value.repeat(200))).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    }
}

/// The first letter of each record.
fn letters(partition: &Partition) -> String {
    let mut at = partition.start();
    let mut letters = String::new();
    while at < partition.end() {
        let fetched = partition.read(at, ReadOptions::new()).expect("sound");
        letters.extend(fetched.records().map(|record| char::from(record.value().expect("a value")[0])));
        at = fetched.next_offset();
    }
    letters
}

#[test]
fn an_export_has_the_segments_that_links_lead_to() {
    let place = tempfile::tempdir().expect("a place");
    let (path, far) = (place.path().join("wal-0"), place.path().join("far"));
    fs::create_dir(&far).expect("a directory");
    let partition = open(&path);
    append(&partition, "a", 20);
    partition.close().expect("closes");
    for entry in fs::read_dir(&path).expect("a directory") {
        let log = entry.expect("an entry").path();
        if log.extension().is_some_and(|extension| extension == "log") {
            let moved = far.join(log.file_name().expect("a name"));
            fs::rename(&log, &moved).expect("renamed");
            symlink(&moved, &log).expect("a link");
        }
    }
    let partition = open(&path);
    append(&partition, "b", 1);
    let copy = place.path().join("copy-0");
    partition.export(&copy).expect("exported");
    for entry in fs::read_dir(&copy).expect("a directory") {
        let entry = entry.expect("an entry");
        assert!(entry.file_type().expect("a type").is_file(), "{} is a link", entry.path().display());
    }
    partition.truncate_from(Offset(7), Force::Yes).expect("cut");
    append(&partition, "c", 4);
    assert_eq!(letters(&partition), "aaaaaaacccc");
    assert_eq!(letters(&open(&copy)), format!("{}b", "a".repeat(20)));
}
