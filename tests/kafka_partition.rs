//! A partition directory as a Kafka broker leaves it opens, reads and goes on, and says what Kafka says.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::kafka::{check_content, check_epochs, check_timestamps, copy, fixture, read_all};
use taffrail::{BatchBuilder, Durability, Isolation, LeaderEpoch, Offset, Partition, PartitionConfig, Record};

fn config() -> PartitionConfig {
    PartitionConfig::new().segment_bytes(32_768)
}

fn append_one(partition: &Partition, value: &str) -> Offset {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value).key("later")).expect("small");
    let appended = partition.append(&mut batch).expect("it goes on");
    let offset = appended.offsets.start;
    appended.wait().expect("it is stored");
    offset
}

#[test]
fn a_copy_with_its_parent_opens_as_cleanly_closed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), true);
    let partition = Partition::open(&path, config()).expect("it opens");
    assert!(partition.recovery().clean && partition.recovery().adopted);
    assert_eq!(partition.leader_epoch(), LeaderEpoch(6));
    check_content(&partition);
    check_timestamps(&partition);
    check_epochs(&partition);
    assert_eq!(append_one(&partition, "one"), Offset(354));
    partition.close().expect("it closes");
    let partition = Partition::open(&path, config()).expect("it reopens");
    assert!(partition.recovery().clean && !partition.recovery().adopted);
    assert_eq!(append_one(&partition, "two"), Offset(355));
    assert_eq!(read_all(&partition, Isolation::Committed, 1 << 20).last(), Some(&355));
}

#[test]
fn a_copy_of_the_folder_alone_is_recovered() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), false);
    let partition = Partition::open(&path, config().durability(Durability::Os)).expect("it opens");
    let recovery = partition.recovery();
    assert!(!recovery.clean && recovery.adopted && recovery.cut.is_none() && recovery.damaged.is_empty());
    assert_eq!(recovery.segments_verified, 7);
    check_content(&partition);
    check_timestamps(&partition);
    // The end was not a clean one: a new epoch begins there.
    assert_eq!(partition.leader_epoch(), LeaderEpoch(7));
    assert_eq!(partition.epoch_end(LeaderEpoch(6)), Some((LeaderEpoch(6), Offset(354))));
    assert_eq!(append_one(&partition, "one"), Offset(354));
}

/// Recovery makes the transaction indexes anew, and they say the same.
#[test]
fn transaction_indexes_are_rebuilt() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), false);
    let indexes: Vec<PathBuf> = fs::read_dir(&path)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txnindex" || e == "index" || e == "timeindex"))
        .collect();
    for index in &indexes {
        fs::remove_file(index).expect("removed");
    }
    let partition = Partition::open(&path, config()).expect("it opens");
    check_content(&partition);
    check_timestamps(&partition);
    drop(partition);
    // The transaction of producer 4003 lost its records to compaction: only its marker tells of it, so the entry of
    // the first segment cannot come back. The others are Kafka's to the byte.
    for name in ["00000000000000000167.txnindex", "00000000000000000251.txnindex"] {
        let made = fs::read(path.join(name)).expect("it was made");
        let kafkas = fs::read(fixture().join("orders-0").join(name)).expect("it is there");
        assert_eq!(made, kafkas, "{name}");
    }
}

/// What an open of the folder leaves alone. A close writes the snapshot of its end; that of the end before goes later.
#[test]
fn snapshots_and_identity_are_left_as_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), true);
    let kept = |path: &Path| -> BTreeSet<(String, Vec<u8>)> {
        fs::read_dir(path)
            .expect("readable")
            .map(|entry| entry.expect("readable"))
            .filter(|entry| {
                let name = entry.file_name().into_string().expect("UTF-8");
                name.ends_with(".snapshot") || name == "partition.metadata"
            })
            .map(|entry| (entry.file_name().into_string().expect("UTF-8"), fs::read(entry.path()).expect("readable")))
            .collect()
    };
    let before = kept(&path);
    let partition = Partition::open(&path, config()).expect("it opens");
    assert_eq!(kept(&path), before);
    append_one(&partition, "one");
    partition.close().expect("it closes");
    // The record has no producer: what is known of those is the same.
    let end = |offset: u64| format!("{offset:020}.snapshot");
    let last = before.iter().find(|(name, _)| *name == end(354)).expect("Kafka has left one").1.clone();
    let moved = before.iter().cloned().chain([(end(355), last)]).collect();
    let in_order = |kept: BTreeSet<(String, Vec<u8>)>| -> BTreeSet<(String, Vec<Vec<u8>>)> {
        let sorted = |bytes: &[u8]| {
            let mut entries: Vec<_> = bytes[10..].chunks(46).map(<[u8]>::to_vec).collect();
            entries.sort();
            entries
        };
        kept.into_iter().map(|(name, bytes)| (name, sorted(&bytes))).collect()
    };
    assert_eq!(in_order(kept(&path)), in_order(moved));
    drop(Partition::open(&path, config()).expect("it opens"));
    assert!(!kept(&path).iter().any(|(name, _)| *name == end(354)), "it is no segment's, and there is a newer one");
}
