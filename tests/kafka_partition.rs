//! A partition directory as a Kafka broker leaves it opens, reads and goes on, and says what Kafka says.
//!
//! `tests/data/kafka-partition-a/expected.json` was written by Kafka's own log classes beside the directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use taffrail::{
    BatchBuilder, Durability, Isolation, LeaderEpoch, Offset, Partition, PartitionConfig, ReadOptions, Record,
    Timestamp,
};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-partition-a")
}

fn expected() -> Value {
    let text = fs::read_to_string(fixture().join("expected.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Copies the partition's directory alone, or with what lies beside it.
fn copy(to: &Path, with_parent: bool) -> PathBuf {
    let partition = to.join("orders-0");
    fs::create_dir(&partition).expect("a fresh directory");
    for entry in fs::read_dir(fixture().join("orders-0")).expect("it is there") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), partition.join(entry.file_name())).expect("copied");
    }
    if with_parent {
        for entry in fs::read_dir(fixture()).expect("it is there") {
            let entry = entry.expect("readable");
            if entry.path().is_file() {
                fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
        }
    }
    partition
}

fn config() -> PartitionConfig {
    PartitionConfig::new().segment_bytes(32_768)
}

fn read_all(partition: &Partition, isolation: Isolation, max_bytes: usize) -> Vec<u64> {
    let mut offsets = Vec::new();
    let mut at = partition.start();
    loop {
        let options = ReadOptions::new().isolation(isolation).max_bytes(max_bytes);
        let fetched = partition.read(at, options).expect("Kafka's log reads");
        offsets.extend(fetched.records().map(|record| record.offset().0));
        if fetched.next_offset() == at {
            return offsets;
        }
        at = fetched.next_offset();
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn check_content(partition: &Partition) {
    let expected = expected();
    assert_eq!(partition.start(), Offset(0));
    assert_eq!(partition.end(), Offset(354));
    assert_eq!(partition.last_stable(), Offset(354));
    let committed: Vec<u64> = expected["read_committed_offsets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| v.as_u64().expect("offset"))
        .collect();
    for max_bytes in [1, 700, 1 << 20] {
        assert_eq!(read_all(partition, Isolation::Committed, max_bytes), committed, "in pieces of {max_bytes}");
    }
    let batches = expected["batches"].as_array().expect("a list");
    let data: Vec<u64> = batches
        .iter()
        .filter(|batch| !batch["control"].as_bool().expect("bool"))
        .flat_map(|batch| batch["records"].as_array().expect("a list"))
        .map(|record| record["offset"].as_u64().expect("offset"))
        .collect();
    assert_eq!(read_all(partition, Isolation::Uncommitted, 1 << 20), data);
}

fn check_timestamps(partition: &Partition) {
    for lookup in expected()["timestamp_lookups"].as_array().expect("a list") {
        let asked = Timestamp(number(&lookup["timestamp"]));
        let found = partition.find_timestamp(asked).expect("Kafka's log is searched");
        let answer = &lookup["found"];
        match found {
            None => assert!(answer.is_null(), "at {asked}: {answer}"),
            Some(found) => {
                assert_eq!(found.timestamp.0, number(&answer["timestamp"]), "at {asked}");
                assert_eq!(found.offset.0, answer["offset"].as_u64().expect("offset"), "at {asked}");
                assert_eq!(
                    i64::from(found.leader_epoch.expect("known").0),
                    number(&answer["leader_epoch"]),
                    "at {asked}"
                );
            }
        }
    }
}

fn check_epochs(partition: &Partition) {
    for query in expected()["leader_epoch_end_offsets"].as_array().expect("a list") {
        let requested = LeaderEpoch(i32::try_from(number(&query["requested"])).expect("small"));
        let found = partition.epoch_end(requested).map_or((-1, -1), |(epoch, end)| (i64::from(epoch.0), end.to_i64()));
        assert_eq!(found, (number(&query["epoch"]), number(&query["end_offset"])), "epoch {requested}");
    }
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

/// What an open of the folder leaves alone.
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
    append_one(&partition, "one");
    partition.close().expect("it closes");
    assert_eq!(kept(&path), before);
}
