//! The inspect example: on a broker's directory it says what Kafka's own classes said, it names what is wrong, and it
//! changes nothing. Its copies for a broker are whole.

#[path = "../examples/shared/inspect/mod.rs"]
mod inspect;
#[path = "support/sha256.rs"]
mod sha256;

use std::fs;
use std::path::{Path, PathBuf};

use inspect::{Event, Printer, Summary, batch_as_json};
use serde_json::{Value, json};
use taffrail::{
    BatchBuilder, Durability, Error, Log, Offset, Partition, PartitionConfig, ReadOptions, Record, TopicConfig,
};
use tempfile::TempDir;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kafka-partition-a");

fn expected() -> Value {
    let text = fs::read_to_string(Path::new(FIXTURE).join("expected.json")).expect("the fixture is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// A copy of the fixture that may be damaged.
fn fixture_copy() -> (TempDir, PathBuf) {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let partition = temporary.path().join("orders-0");
    copy_files(Path::new(FIXTURE), temporary.path());
    fs::create_dir(&partition).expect("it is new");
    copy_files(&Path::new(FIXTURE).join("orders-0"), &partition);
    (temporary, partition)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(directory).expect("it is there").map(|e| e.expect("it lists").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths
}

fn copy_files(from: &Path, to: &Path) {
    for file in files(from) {
        fs::write(to.join(file.file_name().expect("a file has a name")), fs::read(&file).expect("it is readable"))
            .expect("it can be written");
    }
}

/// Everything in a directory that a write would change.
fn state_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).expect("it is there");
    let state = |path: PathBuf| (path.clone(), fs::read(&path).expect("it is readable"), modified(&path));
    files(directory).into_iter().map(state).collect()
}

/// The batches as JSON, and the summary.
fn batches_of(directory: &Path) -> (Vec<Value>, Summary) {
    let mut batches = Vec::new();
    let summary = inspect::inspect(directory, |event| {
        if let Event::Batch { segment, position, batch } = event {
            let line = batch_as_json(segment, position, &batch);
            batches.push(serde_json::from_str(&line).expect("a line is JSON"));
        }
    });
    (batches, summary.expect("the directory is readable"))
}

fn text_of(directory: &Path) -> String {
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out);
    let summary = inspect::inspect(directory, |event| printer.event(&event)).expect("the directory is readable");
    printer.summary(&summary).expect("memory takes it");
    String::from_utf8(out).expect("it is text")
}

/// Replaces every byte string of more than 64 bytes by what the fixture has in its place.
fn abridge(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(abridge),
        Value::Array(items) => items.iter_mut().for_each(abridge),
        Value::String(hex) if hex.len() > 128 => {
            let digits: Vec<u8> =
                hex.bytes().map(|digit| if digit < b'a' { digit - b'0' } else { digit - b'a' + 10 }).collect();
            let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            *value = json!({"first16": hex[..32], "len": bytes.len(), "sha256": sha256::hex(&bytes)});
        }
        _ => {}
    }
}

#[test]
fn the_digest_is_sha_256() {
    assert_eq!(sha256::hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(sha256::hex(&[0; 56]), "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
}

#[test]
fn every_batch_of_a_broker_is_shown_as_kafka_reads_it() {
    let (mut batches, summary) = batches_of(&Path::new(FIXTURE).join("orders-0"));
    batches.iter_mut().for_each(abridge);
    let expected = expected();
    let expected = expected["batches"].as_array().expect("a list");
    assert_eq!(batches.len(), expected.len());
    for (batch, expected) in batches.iter().zip(expected) {
        assert_eq!(batch, expected);
    }
    assert_eq!(summary.wrong, Vec::<String>::new());
    assert_eq!((summary.segments, summary.batches, summary.records), (7, 115, 237));
    assert_eq!(summary.offsets, Some(Offset(0)..Offset(354)));
}

#[test]
fn every_index_of_a_broker_is_shown_as_kafka_reads_it() {
    let (mut names, mut indexes) = (Vec::new(), Vec::new());
    let summary = inspect::inspect(&Path::new(FIXTURE).join("orders-0"), |event| match event {
        Event::Segment(segment) => names.push((segment.name.clone(), segment.base.0, segment.len)),
        Event::Indexes { offsets, times, aborted } => indexes.push((offsets, times, aborted)),
        _ => {}
    });
    summary.expect("the fixture is readable");
    let expected = expected();
    let expected = expected["segments"].as_array().expect("a list");
    assert_eq!((names.len(), indexes.len()), (expected.len(), expected.len()));
    for ((name, (offsets, times, aborted)), expected) in names.into_iter().zip(indexes).zip(expected) {
        assert_eq!(
            json!([name.0, name.1, name.2]),
            json!([expected["file"], expected["base_offset"], expected["size"]])
        );
        let offsets: Vec<Value> =
            offsets.iter().map(|e| json!({"offset": e.offset.0, "position": e.position})).collect();
        let times: Vec<Value> =
            times.iter().map(|e| json!({"timestamp": e.timestamp.0, "offset": e.offset.0})).collect();
        let aborted: Vec<Value> = aborted
            .iter()
            .map(|e| {
                json!({"producer_id": e.producer_id.0, "first_offset": e.first_offset.0, "last_offset": e.last_offset.0,
                    "last_stable_offset": e.last_stable_offset.0})
            })
            .collect();
        assert_eq!(json!(offsets), expected["index"]);
        assert_eq!(json!(times), expected["timeindex"]);
        let nothing = expected["txnindex"].is_null() && aborted.is_empty();
        assert!(nothing || json!(aborted) == expected["txnindex"], "{aborted:?}");
    }
}

#[test]
fn the_small_files_of_a_broker_are_shown() {
    let text = text_of(&Path::new(FIXTURE).join("orders-0"));
    for line in [
        "topic orders, partition 0, closed cleanly",
        "topic id 5Qw1aBjoTkGdVf8mEw7x2Q",
        "recovery point 354 (the directory above says)",
        "high watermark 354 (the directory above says)",
        "leader epoch 5 from offset 245",
        "00000000000000000082.snapshot  4 producers",
        "  producer 4003 epoch 1, last sequence 1 at offset 61",
        "7 segments, 115 batches, 237 records, offsets 0 to 354",
        "nothing is wrong",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
    }
}

#[test]
fn nothing_is_changed_by_looking() {
    let (temporary, partition) = fixture_copy();
    let before = (state_of(temporary.path()), state_of(&partition));
    text_of(&partition);
    batches_of(&partition);
    assert_eq!((state_of(temporary.path()), state_of(&partition)), before);
}

/// Changes one byte of a file of the fixture and says what is wrong then, and how many batches are shown.
fn wrong_with(file: &str, at: usize) -> (Vec<String>, u64) {
    let (_temporary, partition) = fixture_copy();
    let path = partition.join(file);
    let mut bytes = fs::read(&path).expect("the file is there");
    bytes[at] ^= 0x40;
    fs::write(&path, bytes).expect("it can be written");
    let (_, summary) = batches_of(&partition);
    (summary.wrong, summary.batches)
}

#[test]
fn a_flipped_bit_is_named_and_what_lies_behind_is_shown() {
    let log = "00000000000000000167.log";
    let (wrong, batches) = wrong_with(log, 9398 + 100);
    assert_eq!(batches, 114, "{wrong:?}");
    assert!(wrong[0].starts_with(&format!("{log} at byte 9398: 2068 bytes are no batch: the CRC-32C is")), "{wrong:?}");
    let (wrong, batches) = wrong_with(log, 9398 + 10); // its length
    assert_eq!(batches, 114, "{wrong:?}");
    assert!(wrong[0].starts_with(&format!("{log} at byte 9398: 2068 bytes")), "{wrong:?}");
    let (wrong, _) = wrong_with(log, 9398 + 6); // its base offset, which no checksum covers
    assert!(wrong.iter().any(|wrong| wrong.starts_with(&format!("{log} at byte 9398: offset"))), "{wrong:?}");
    let (wrong, _) = wrong_with(log, 9398 + 15); // its leader epoch
    assert!(wrong.iter().any(|wrong| wrong.contains("the checkpoint says")), "{wrong:?}");
}

#[test]
fn a_damaged_index_or_small_file_is_named() {
    for (file, at, what) in [
        ("00000000000000000167.index", 15, "no batch fits 214"),
        ("00000000000000000167.index", 0, "00000000000000000167.index: "),
        ("00000000000000000251.timeindex", 7, "up to offset 265 it has"),
        ("00000000000000000251.txnindex", 25, "aborts a transaction of"),
        ("00000000000000000346.snapshot", 60, "00000000000000000346.snapshot: the CRC-32C is"),
        ("leader-epoch-checkpoint", 0, "leader-epoch-checkpoint: the version is"),
    ] {
        let (wrong, batches) = wrong_with(file, at);
        assert_eq!(batches, 115);
        assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{file} at {at}: {wrong:?}");
    }
}

/// A damaged `partition.metadata` was passed over in silence, though a log does not open with it.
#[test]
fn what_a_log_does_not_open_with_is_named() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let log = Log::open(temporary.path()).expect("a new directory opens");
    log.create_topic("orders", TopicConfig::new()).expect("it is new");
    log.close().expect("it closes");
    let directory = temporary.path().join("orders-0");
    let wrong = || batches_of(&directory).1.wrong;
    assert_eq!(wrong(), Vec::<String>::new());
    let path = directory.join("partition.metadata");
    let sound = fs::read(&path).expect("it is there");
    let mut refused = 0;
    for at in 0..sound.len() {
        for flip in [0x01, 0x80] {
            let mut bytes = sound.clone();
            bytes[at] ^= flip;
            fs::write(&path, bytes).expect("it can be written");
            // A flipped bit may give another version, which is taken, or the id of another topic, which nobody can see here.
            match Log::open(temporary.path()) {
                Err(Error::WrongCluster { .. }) => assert_eq!(wrong(), Vec::<String>::new(), "byte {at}"),
                Err(error) => {
                    assert!(
                        wrong().iter().any(|wrong| wrong.starts_with("partition.metadata: ")),
                        "byte {at}: {error}"
                    );
                    refused += 1;
                }
                Ok(log) => {
                    log.close().expect("it closes");
                    assert_eq!(wrong(), Vec::<String>::new(), "byte {at}");
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
    for len in 0..sound.len() {
        fs::write(&path, &sound[..len]).expect("it can be written");
        assert_eq!(wrong().len(), 1, "cut to {len}");
    }
    for text in ["version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: -1\ntopic_id: 5Qw1aBjoTkGdVf8mEw7x2Q"] {
        fs::write(&path, text).expect("it can be written");
        Log::open(temporary.path()).map(|_| ()).expect_err(text);
        assert_eq!(wrong().len(), 1, "{text}");
    }
    fs::write(&path, sound).expect("it can be written");

    let path = directory.join("history.taffrail");
    let sound = fs::read(&path).expect("it is there");
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
        assert!(wrong().iter().any(|wrong| wrong.starts_with("history.taffrail: ")), "byte {at}");
    }
}

#[test]
fn a_torn_tail_and_a_missing_index_are_named() {
    let (_temporary, partition) = fixture_copy();
    let log = partition.join("00000000000000000346.log");
    let bytes = fs::read(&log).expect("it is there");
    fs::write(&log, &bytes[..bytes.len() - 5]).expect("it can be written");
    fs::remove_file(partition.join("00000000000000000282.index")).expect("it is there");
    let (_, summary) = batches_of(&partition);
    assert_eq!(summary.batches, 114);
    let wrong = summary.wrong.join("\n");
    assert!(
        wrong.contains("00000000000000000346.log at byte 5534: 70 bytes are no batch: the batch needs 75"),
        "{wrong}"
    );
    assert!(wrong.contains("00000000000000000282.index is missing"), "{wrong}");
}

/// A partition with two segments whose last one ends in a window of zeros.
fn open_partition(directory: &Path) -> Partition {
    let config = PartitionConfig::new().durability(Durability::Sync).index_interval_bytes(64);
    let partition = Partition::open(directory, config).expect("a new directory opens");
    let mut batch = BatchBuilder::new();
    for number in 0..20 {
        batch.push(&Record::new(&format!("value {number}")).key("key")).expect("it fits");
        partition.append(&mut batch).expect("it is taken").wait().expect("it is synced");
        if number == 9 {
            partition.roll().expect("it rolls");
        }
    }
    partition
}

fn values(partition: &Partition) -> Vec<String> {
    let (mut offset, mut values) = (partition.start(), Vec::new());
    while offset < partition.end() {
        let fetched = partition.read(offset, ReadOptions::new()).expect("it is sound");
        values.extend(fetched.records().filter_map(|record| record.value_str().map(str::to_owned)));
        offset = fetched.next_offset();
    }
    values
}

#[test]
fn the_window_of_an_open_partition_is_named_and_is_no_damage() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = temporary.path().join("orders-0");
    let partition = open_partition(&directory);
    let (_, summary) = batches_of(&directory);
    assert_eq!((summary.batches, summary.wrong), (20, Vec::new()));
    assert!(text_of(&directory).contains("zeros: the window"));
    partition.close().expect("it closes");
    let text = text_of(&directory);
    assert!(!text.contains("zeros") && text.contains("nothing is wrong"), "{text}");
}

#[test]
fn a_copy_for_a_broker_is_whole_and_holds_nothing_of_ours() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = temporary.path().join("orders-0");
    let partition = open_partition(&directory);
    // A broker's directory of a topic that was just made, the broker being stopped.
    let broker = temporary.path().join("broker");
    let copy = broker.join("orders-0");
    fs::create_dir_all(&copy).expect("it can be made");
    let id = "version: 0\ntopic_id: 5Qw1aBjoTkGdVf8mEw7x2Q";
    for (file, bytes) in
        [("00000000000000000000.log", ""), ("00000000000000000000.index", ""), ("partition.metadata", id)]
    {
        fs::write(copy.join(file), bytes).expect("it can be written");
    }
    fs::write(broker.join(".kafka_cleanshutdown"), "").expect("it can be written");
    let notes = inspect::export(&directory, &copy).expect("the partition is sound");
    assert!(notes.iter().any(|note| note.starts_with("removed")), "{notes:?}");
    assert!(!broker.join(".kafka_cleanshutdown").exists());
    assert_eq!(fs::read(copy.join("partition.metadata")).expect("it was kept"), id.as_bytes());
    let names: Vec<_> = files(&copy).iter().map(|path| path.file_name().expect("a name").to_owned()).collect();
    let ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with('.') || *name == "history.taffrail";
    assert!(!names.iter().any(ours), "{names:?}");
    let (_, summary) = batches_of(&copy);
    assert_eq!((summary.batches, summary.wrong), (20, Vec::new()));
    assert!(!text_of(&copy).contains("zeros"));

    fs::remove_file(copy.join("partition.metadata")).expect("it is there");
    let opened = Partition::open(&copy, PartitionConfig::new()).expect("a broker's directory opens");
    assert_eq!(values(&opened), values(&partition));
}

#[test]
fn a_copy_is_refused_where_it_would_lose_records() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = temporary.path().join("orders-0");
    drop(open_partition(&directory));
    let copy = temporary.path().join("copy");
    inspect::export(&directory, &copy).expect("the partition is sound");
    let refused = inspect::export(&directory, &copy).expect_err("the copy holds records");
    assert!(refused.to_string().contains("holds records already"), "{refused}");
    let refused = inspect::export(&directory, &directory).expect_err("that is the partition itself");
    assert!(refused.to_string().contains("where the partition lies"), "{refused}");

    let log = directory.join("00000000000000000000.log");
    let mut bytes = fs::read(&log).expect("it is there");
    bytes[70] ^= 1;
    fs::write(&log, bytes).expect("it can be written");
    let refused = inspect::export(&directory, &temporary.path().join("other")).expect_err("it is damaged");
    assert!(refused.to_string().contains("is damaged at byte 0"), "{refused}");
}
