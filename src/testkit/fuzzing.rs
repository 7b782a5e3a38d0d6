//! Parsers that are not public, for the fuzz targets. No part of the interface.

use bytes::Bytes;

use crate::controller::Controller;
use crate::machine::Journaled;
use crate::quorum::journal::Replay;
use crate::quorum::record::{Record, seal};
use crate::storage::checkpoint::{OffsetCheckpoint, own, parse_epochs, partition_metadata, render_epochs};

/// Parses the bytes as each of the small files. What is taken must be written as something that reads the same.
pub fn small_files(bytes: &[u8]) {
    if let Ok(offsets) = OffsetCheckpoint::parse(bytes) {
        assert_eq!(OffsetCheckpoint::parse(OffsetCheckpoint::render(&offsets).as_bytes()), Ok(offsets));
    }
    if let Ok(epochs) = parse_epochs(bytes) {
        assert_eq!(parse_epochs(render_epochs(&epochs).as_bytes()), Ok(epochs));
    }
    if let Ok(topic) = partition_metadata::parse(bytes) {
        assert_eq!(partition_metadata::parse(partition_metadata::render(&topic).as_bytes()), Ok(topic));
    }
    if let Ok(content) = own::unframe(&Bytes::copy_from_slice(bytes), 0) {
        assert_eq!(own::frame(0, &content), bytes);
    }
}

/// Parses the bytes as a snapshot of the producers of a partition.
pub fn producer_snapshot(bytes: &[u8]) {
    crate::partition::fuzz_snapshot(bytes);
}

/// Takes the bytes as a record of the journal, an event and a snapshot of the controller, as they are and behind a right
/// checksum, and as a journal of records with their lengths before them.
pub fn catalogue(bytes: &[u8]) {
    let sealed = sealed(bytes);
    for record in [bytes, &sealed] {
        if let Ok(known) = Record::decode(record) {
            assert_eq!(known.encode(), record);
        }
    }
    event(bytes);
    snapshot(bytes);
    snapshot(&own::frame(0, bytes));
    snapshot(&own::frame(1, bytes));
    journal(bytes);
}

/// Behind a checksum that is right.
fn sealed(behind: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 4];
    record.extend_from_slice(behind);
    seal(&mut record);
    record
}

fn event(bytes: &[u8]) {
    let Ok(event) = Controller::decode(bytes) else { return };
    let mut again = Vec::new();
    Controller::encode(&event, &mut again);
    assert_eq!(Controller::decode(&again), Ok(event));
}

fn snapshot(bytes: &[u8]) {
    let Ok(state) = Controller::restore(bytes) else { return };
    assert_eq!(Controller::restore(&state.snapshot()), Ok(state));
}

/// Records that are refused are left out, so that the rest is reached. A journal that is whole reads the same again.
fn journal(mut bytes: &[u8]) {
    let mut replay = Replay::default();
    while let Some((length, rest)) = bytes.split_first() {
        let (behind, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        drop(replay.take(&sealed(behind)));
        bytes = rest;
    }
    let Ok(journal) = replay.finish() else { return };
    let mut again = Replay::default();
    for record in journal.records() {
        assert_eq!(again.take(&record.encode()), Ok(()));
    }
    assert_eq!(again.finish(), Ok(journal));
}
