//! Parsers that are not public, for the fuzz targets. No part of the interface.

mod groups;

use bytes::Bytes;

pub use groups::group_state;

use crate::clock::Now;
use crate::controller::Controller;
use crate::machine::{Applied, Journaled, Machine, Recorded};
use crate::quorum::journal::Replay;
use crate::quorum::record::{Record, seal};
use crate::record::batch::BatchHeader;
use crate::record::batches::Batches;
use crate::record::control::{ControlRecord, Marker, Outcome, marker_batch};
use crate::storage::checkpoint::{OffsetCheckpoint, own, parse_epochs, partition_metadata, render_epochs};
use crate::txn::{Action, Command, Coordinator};
use crate::types::{Offset, ProducerEpoch, ProducerId, Timestamp};

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

/// Takes the bytes as records of a coordinator of transactions, each with the lengths of its key and value before it. What
/// is taken reads the same once it was written again, and a machine of them, whatever they say, answers.
pub fn transaction_state(mut bytes: &[u8]) {
    let mut machine = Coordinator::default();
    while let Some((lengths, rest)) = bytes.split_first_chunk::<2>() {
        let [key, value] = lengths.map(usize::from);
        let (key, rest) = rest.split_at(rest.len().min(key));
        let (value, rest) = rest.split_at(rest.len().min(value));
        bytes = rest;
        let value = (!value.is_empty()).then_some(value);
        let Ok(Some(event)) = Coordinator::decode(key, value) else { continue };
        let again = Coordinator::encode(&event);
        assert_eq!(Coordinator::decode(&again.key, again.value.as_deref()), Ok(Some(event.clone())));
        machine.apply(Applied { offset: Offset::ZERO, timestamp: None, producer: None }, &event);
    }
    machine.loaded(Now::default());
    for action in machine.actions(Now::default()) {
        let command = match action {
            Action::WriteMarkers { id, producer, .. } => Command::Complete { id, producer },
            Action::TimeOut { id, producer } => Command::TimeOut { id, producer },
            Action::Expire { ids } => Command::Expire { ids },
        };
        assert!(machine.decide(Now::default(), command).reply.is_ok());
    }
}

/// Takes the bytes as the key and the value of a control record, the key's length before it. A marker is written again
/// as one that says the same.
pub fn control(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(rest.len().min(usize::from(*length)));
    let outcome = match ControlRecord::parse(Some(key), Some(value)) {
        Ok(ControlRecord::Commit { coordinator_epoch }) => (Outcome::Committed, coordinator_epoch),
        Ok(ControlRecord::Abort { coordinator_epoch }) => (Outcome::Aborted, coordinator_epoch),
        _ => return,
    };
    let marker = Marker {
        outcome: outcome.0,
        producer_id: ProducerId(1),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: outcome.1,
        timestamp: Timestamp(0),
    };
    let batch = marker_batch(&marker);
    let header = BatchHeader::parse(&batch).expect("it is a batch");
    let mut batches = Batches::new(batch.into());
    assert!(batches.push(0, header, 0).is_ok());
    let read = batches.iter().next().and_then(|batch| batch.control());
    assert_eq!(read, ControlRecord::parse(Some(key), Some(value)).ok());
}
