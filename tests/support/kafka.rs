//! The partition directory that a Kafka broker left, and what Kafka's own classes say of it.
//!
//! `tests/data/kafka-partition-a/expected.json` was written by Kafka's own log classes beside the directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use taffrail::{Isolation, LeaderEpoch, Offset, Partition, ReadOptions, Timestamp};

pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-partition-a")
}

fn expected() -> Value {
    let text = fs::read_to_string(fixture().join("expected.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Copies the partition's directory alone, or with what lies beside it.
pub(crate) fn copy(to: &Path, with_parent: bool) -> PathBuf {
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

pub(crate) fn read_all(partition: &Partition, isolation: Isolation, max_bytes: usize) -> Vec<u64> {
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

pub(crate) fn check_content(partition: &Partition) {
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

pub(crate) fn check_timestamps(partition: &Partition) {
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

pub(crate) fn check_epochs(partition: &Partition) {
    for query in expected()["leader_epoch_end_offsets"].as_array().expect("a list") {
        let requested = LeaderEpoch(i32::try_from(number(&query["requested"])).expect("small"));
        let found = partition.epoch_end(requested).map_or((-1, -1), |(epoch, end)| (i64::from(epoch.0), end.to_i64()));
        assert_eq!(found, (number(&query["epoch"]), number(&query["end_offset"])), "epoch {requested}");
    }
}
