//! The small files: bytes of Kafka's own classes, what is taken beside them, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::PathBuf;

use bytes::Bytes;

use super::super::FileStorage;
use super::own::{frame, unframe};
use super::*;

const TOPIC: [u8; 16] = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128.to_be_bytes();

struct Place {
    _directory: tempfile::TempDir,
    storage: FileStorage,
    path: PathBuf,
}

fn place(name: &str) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    Place { _directory: directory, storage: FileStorage::new(), path }
}

fn partition(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition }
}

#[test]
fn offsets_are_written_as_kafka_writes_them() {
    let at = place("recovery-point-offset-checkpoint");
    assert!(OffsetCheckpoint::read(&at.storage, &at.path).unwrap().is_none());
    let offsets = BTreeMap::from([(partition("orders", 0), Offset(1020)), (partition("a.b_c-d", 12), Offset(5))]);
    OffsetCheckpoint::write(&at.storage, &at.path, &offsets).unwrap();
    assert_eq!(std::fs::read(&at.path).unwrap(), b"0\n2\na.b_c-d 12 5\norders 0 1020\n");
    assert_eq!(OffsetCheckpoint::read(&at.storage, &at.path).unwrap(), Some(offsets.clone()));
    let of_kafka = b"0\n2\norders 0 1020\na.b_c-d 12 5\n";
    assert_eq!(OffsetCheckpoint::parse(of_kafka).unwrap(), offsets);
}

#[test]
fn epochs_are_written_as_kafka_writes_them() {
    let at = place("leader-epoch-checkpoint");
    assert!(read_epochs(&at.storage, &at.path).unwrap().is_none());
    let epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(1005))];
    write_atomically(&at.storage, &at.path, render_epochs(&epochs).as_bytes()).unwrap();
    assert_eq!(std::fs::read(&at.path).unwrap(), b"0\n2\n0 0\n3 1005\n");
    assert_eq!(read_epochs(&at.storage, &at.path).unwrap(), Some(epochs.to_vec()));
}

#[test]
fn what_kafka_takes_is_taken() {
    for text in ["", "0", "0\n", "0\r\n", "0\n0", "0\n0\n"] {
        assert_eq!(parse_epochs(text.as_bytes()), Ok(vec![]), "{text:?}");
    }
    for text in ["0\n1\n3 7\n", "0\r\n1\r\n3 7\r\n", "0\n1\n3\t  7 \n"] {
        assert_eq!(parse_epochs(text.as_bytes()), Ok(vec![(LeaderEpoch(3), Offset(7))]), "{text:?}");
    }
    let twice = OffsetCheckpoint::parse(b"0\n2\nt 0 1\nt 0 2\n").unwrap();
    assert_eq!(twice, BTreeMap::from([(partition("t", 0), Offset(2))]));
}

#[test]
fn a_checkpoint_that_is_not_of_the_form_is_refused() {
    let refused = |text: &[u8]| match OffsetCheckpoint::parse(text) {
        Err(Flaw::Form(what)) => what,
        outcome => panic!("{outcome:?}"),
    };
    assert!(refused(b"x\n0\n").starts_with("line 1"));
    assert!(refused(b"\n0\n").starts_with("line 1"));
    assert!(refused(b"0\n-1\n").starts_with("line 2"));
    assert!(refused(b"0\n99999999999999999999\n").starts_with("line 2"));
    assert_eq!(refused(b"0\n4000000000\n"), "line 2 says 4000000000 entries, 0 are there");
    assert_eq!(refused(b"0\n1\nt 0 1\nu 0 1\n"), "line 2 says 1 entries, 2 are there");
    for entry in ["t 0", "t 0 1 2", "", "t -1 0", "t 0 -1", "t 4294967296 0", "../t 0 1", "t 0 1x"] {
        assert!(refused(format!("0\n1\n{entry}\n").as_bytes()).starts_with("line 3"), "{entry:?}");
    }
    refused(b"0\n1\n\xff 0 0\n");
    assert!(matches!(parse_epochs(b"0\n1\n-1 0\n"), Err(Flaw::Form(_))));
    assert_eq!(parse_epochs(b"1\n0\n"), Err(Flaw::Version { found: 1, known: 0 }));
}

#[test]
fn the_topic_id_is_written_as_kafka_writes_it() {
    let at = place("partition.metadata");
    assert_eq!(partition_metadata::read(&at.storage, &at.path).unwrap(), None);
    write_atomically(&at.storage, &at.path, partition_metadata::render(&TOPIC).as_bytes()).unwrap();
    assert_eq!(std::fs::read(&at.path).unwrap(), b"version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA");
    assert_eq!(partition_metadata::read(&at.storage, &at.path).unwrap(), Some(TOPIC));
}

#[test]
fn topic_ids_survive_and_bad_ones_are_refused() {
    for id in [[0xff; 16], [1; 16], 1_u128.to_be_bytes(), (1_u128 << 127).to_be_bytes()] {
        assert_eq!(partition_metadata::parse(partition_metadata::render(&id).as_bytes()), Ok(id));
    }
    let parse = |text: &str| partition_metadata::parse(text.as_bytes());
    assert_eq!(parse("version: 1\r\ntopic_id:   ASNFZ4mrze_-3LqYdlQyEA\r\nmore: 1\n"), Ok(TOPIC));
    assert_eq!(parse("version: -1\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"), Err(Flaw::Version { found: -1, known: 0 }));
    for text in [
        "",
        "version: 0",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEB",
        "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyE",
        "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQy+A",
        "version: 0\ntopic_id:ASNFZ4mrze_-3LqYdlQyEA",
        "version 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA",
        "topic_id: ASNFZ4mrze_-3LqYdlQyEA\nversion: 0",
    ] {
        assert!(matches!(parse(text), Err(Flaw::Form(_))), "{text:?}");
    }
}

#[test]
fn the_marker_counts_by_being_there() {
    let at = place(".kafka_cleanshutdown");
    assert!(!clean_marker::is_present(&at.storage, &at.path).unwrap());
    assert!(!clean_marker::remove(&at.storage, &at.path).unwrap());
    clean_marker::write(&at.storage, &at.path).unwrap();
    assert_eq!(std::fs::read(&at.path).unwrap(), br#"{"version":0,"brokerEpoch":-1}"#);
    assert!(clean_marker::is_present(&at.storage, &at.path).unwrap());
    assert!(clean_marker::remove(&at.storage, &at.path).unwrap());
    std::fs::write(&at.path, b"").unwrap();
    assert!(clean_marker::is_present(&at.storage, &at.path).unwrap(), "older brokers leave it empty");
}

#[test]
fn a_leftover_of_a_crash_is_overwritten_and_none_is_left() {
    let at = place("checkpoint");
    let temporary = at.path.with_file_name("checkpoint.tmp");
    std::fs::write(&temporary, b"longer than what will be written").unwrap();
    std::fs::write(&at.path, b"old").unwrap();
    write_atomically(&at.storage, &at.path, b"new").unwrap();
    assert_eq!(read_all(&at.storage, &at.path, 3).unwrap().unwrap(), "new");
    assert!(!temporary.exists());
}

#[test]
fn a_file_beyond_the_limit_is_not_read() {
    let at = place("large");
    write_atomically(&at.storage, &at.path, b"1234").unwrap();
    let error = read_all(&at.storage, &at.path, 3).unwrap_err();
    assert!(matches!(&error, Error::CorruptFile { path, .. } if *path == at.path), "{error}");
    assert!(read_all(&at.storage, &at.path.with_file_name("none"), 3).unwrap().is_none());
}

#[test]
fn a_file_of_ours_tells_damage_from_a_newer_version() {
    let at = place("quorum.taffrail");
    assert!(read_own(&at.storage, &at.path, 7, 100).unwrap().is_none());
    write_own(&at.storage, &at.path, 7, b"content").unwrap();
    assert_eq!(read_own(&at.storage, &at.path, 7, 7).unwrap().unwrap(), "content");
    let error = read_own(&at.storage, &at.path, 6, 100).unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { found: 7, known: 6, .. }), "{error}");

    let whole = frame(7, b"content");
    assert_eq!(whole, b"TAFF\x8f\x65\xf2\x60\x00\x07content", "the frame never changes");
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(unframe(&Bytes::from(flipped), 7), Err(Flaw::Form(_))), "bit {bit}");
    }
    for len in 0..whole.len() {
        let cut = Bytes::copy_from_slice(&whole[..len]);
        assert!(matches!(unframe(&cut, 7), Err(Flaw::Form(_))), "{len} bytes");
    }
    assert_eq!(unframe(&Bytes::from(frame(0, b"")), 0), Ok(Bytes::new()));
}
