//! Producers by themselves: SEMANTICS 14.2 value for value, and what is forgotten when.

use super::*;
use crate::record::builder::{BatchBuilder, Record};
use crate::record::control::{Outcome, marker_batch};

const ID: ProducerId = ProducerId(7);

/// A log of which only the headers are kept.
#[derive(Default)]
struct Model {
    producers: Producers,
    end: Offset,
    now: Timestamp,
}

fn batch(epoch: i16, first: i32, count: u32, transactional: bool, timestamp: i64) -> BatchHeader {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(&Record::new("v").timestamp(Timestamp(timestamp))).expect("small");
    }
    builder.producer(ID, ProducerEpoch(epoch), Sequence(first));
    builder.transactional(transactional);
    *builder.seal(None).expect("sealed")
}

impl Model {
    /// Sequences as the table writes them, both ends included.
    fn client(&mut self, epoch: i16, first: i32, last: i32) -> Result<Option<Duplicate>> {
        self.append(Some(Origin::Client), epoch, first, last)
    }

    fn append(&mut self, origin: Option<Origin>, epoch: i16, first: i32, last: i32) -> Result<Option<Duplicate>> {
        let count = (last.wrapping_sub(first) & i32::MAX) + 1;
        self.push(origin, &batch(epoch, first, count.cast_unsigned(), false, 0))
    }

    fn push(&mut self, origin: Option<Origin>, batch: &BatchHeader) -> Result<Option<Duplicate>> {
        let before = self.producers.clone();
        let checked = origin.map_or(Ok(None), |origin| self.producers.check(batch, origin));
        assert_eq!(self.producers, before, "a check changes nothing");
        let known = checked?;
        if known.is_none() {
            let batch = batch.assigned(self.end, None);
            assert_eq!(self.producers.observe(&batch, None, self.now), None);
            self.end = batch.next_offset();
        }
        Ok(known)
    }

    fn marker(&mut self, epoch: i16, outcome: Outcome) -> Option<AbortedTransaction> {
        let marker = Marker {
            outcome,
            producer_id: ID,
            producer_epoch: ProducerEpoch(epoch),
            coordinator_epoch: 3,
            timestamp: Timestamp(0),
        };
        let header = BatchHeader::parse(&marker_batch(&marker)).expect("sound").assigned(self.end, None);
        self.end = header.next_offset();
        let control = match outcome {
            Outcome::Committed => ControlRecord::Commit { coordinator_epoch: 3 },
            Outcome::Aborted => ControlRecord::Abort { coordinator_epoch: 3 },
        };
        self.producers.observe(&header, Some(control), self.now)
    }
}

fn is_out_of_order(outcome: &Result<Option<Duplicate>>, due: i32, at: i32) -> bool {
    let (due, at) = (Sequence(due), Sequence(at));
    matches!(outcome, Err(Error::OutOfOrderSequence { producer_id: ID, expected, found }) if *expected == due && *found == at)
}

fn is_fenced(outcome: &Result<Option<Duplicate>>, by: i16) -> bool {
    matches!(outcome, Err(Error::ProducerFenced { producer_id: ID, current, .. }) if current.0 == by)
}

fn is_new(outcome: &Result<Option<Duplicate>>) -> bool {
    matches!(outcome, Ok(None))
}

fn offsets(outcome: Result<Option<Duplicate>>) -> Range<u64> {
    let known = outcome.expect("taken").expect("a duplicate").offsets;
    known.start.0..known.end.0
}

#[test]
fn the_table_of_sequences() {
    let mut log = Model::default();
    assert!(is_new(&log.client(0, 5, 6)), "of an unknown producer every sequence is taken");
    assert!(is_new(&log.client(0, 7, 7)));
    assert!(is_out_of_order(&log.client(0, 9, 9), 8, 9));
    assert_eq!(offsets(log.client(0, 7, 7)), 2..3, "a duplicate is looked for first");
    assert!(is_out_of_order(&log.client(0, 6, 7), 8, 6), "not the same batch");
    assert!(is_out_of_order(&log.client(1, 3, 3), 0, 3), "a later epoch begins with 0");
    assert!(is_new(&log.client(1, 0, 1)));
    assert!(is_fenced(&log.client(0, 8, 8), 1));
    assert!(is_fenced(&log.client(0, 7, 7), 1), "the batches of an earlier epoch are forgotten");
    assert!(is_new(&log.append(None, 1, 50, 51)), "another copy's batches are taken as they are");
    assert!(is_new(&log.append(Some(Origin::Coordinator), 1, 0, 0)), "a coordinator counts nothing");
    let last = log.producers.known.get(&ID).and_then(|known| known.window.last().copied()).expect("known");
    assert_eq!(last.last_sequence, Some(Sequence(0)));
    assert!(is_fenced(&log.append(Some(Origin::Coordinator), 0, 0, 0), 1), "its epoch is asked for");
    assert!(is_new(&log.append(Some(Origin::Coordinator), 1, 0, 0)), "and has no duplicates");
}

#[test]
fn sequences_go_round() {
    let mut log = Model::default();
    assert!(is_new(&log.client(0, i32::MAX - 1, i32::MAX - 1)));
    assert!(is_new(&log.client(0, i32::MAX, 1)), "three records over the end");
    assert!(is_new(&log.client(0, 2, 2)));
    assert_eq!(offsets(log.client(0, i32::MAX, 1)), 1..4);
    let mut log = Model::default();
    assert!(is_new(&log.client(0, i32::MAX, i32::MAX)));
    assert!(is_out_of_order(&log.client(0, 1, 1), 0, 1));
    assert!(is_new(&log.client(0, 0, 0)));
}

#[test]
fn the_last_five_batches_are_known() {
    let mut log = Model::default();
    for sequence in 0..6 {
        assert!(is_new(&log.client(0, sequence, sequence)));
    }
    assert!(is_out_of_order(&log.client(0, 0, 0), 6, 0));
    for sequence in 1..6_u32 {
        let at = u64::from(sequence);
        assert_eq!(offsets(log.client(0, sequence.cast_signed(), sequence.cast_signed())), at..at + 1);
    }
}

#[test]
fn a_marker_of_a_later_epoch_begins_the_sequences_anew() {
    let mut log = Model::default();
    assert!(is_new(&log.push(Some(Origin::Client), &batch(0, 0, 3, true, 0))));
    let plain = log.client(0, 3, 3);
    assert!(matches!(plain, Err(Error::InvalidTransactionState(_))), "{plain:?}");
    let aborted = log.marker(1, Outcome::Aborted).expect("it had records");
    let expected = AbortedTransaction {
        producer_id: ID,
        first_offset: Offset(0),
        last_offset: Offset(3),
        last_stable_offset: Offset(4),
    };
    assert_eq!(aborted, expected);
    assert!(is_out_of_order(&log.client(1, 3, 3), 0, 3));
    assert_eq!(
        log.producers.last_records().get(&ID),
        Some(&LastRecord { epoch: ProducerEpoch(1), last_data: None }),
        "only a marker is left"
    );
    assert!(is_new(&log.client(1, 0, 0)));
    assert_eq!(log.producers.last_records().get(&ID).and_then(|last| last.last_data), Some(Offset(4)));
}

const HOUR: i64 = 3_600_000;
const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_producer_is_forgotten_by_the_later_of_its_two_times() {
    let mut log = Model { now: Timestamp(100 * HOUR), ..Model::default() };
    // Old records, appended now.
    log.push(None, &batch(0, 0, 1, false, 5)).expect("taken");
    assert_eq!(log.producers.expire(Timestamp(124 * HOUR - 1), DAY), 0);
    let mut again = log.producers.clone();
    assert_eq!(again.expire(Timestamp(124 * HOUR), DAY), 1);
    assert!(is_new(&again.check(&batch(0, 77, 1, false, 5), Origin::Client)), "it is not known any more");
    // Loaded later.
    log.producers.loaded(Timestamp(123 * HOUR));
    assert_eq!(log.producers.expire(Timestamp(147 * HOUR - 1), DAY), 0);
    // Records of the future.
    log.push(None, &batch(0, 1, 1, false, 200 * HOUR)).expect("taken");
    assert_eq!(log.producers.expire(Timestamp(224 * HOUR - 1), DAY), 0);
    assert_eq!(log.producers.expire(Timestamp(224 * HOUR), DAY), 1);
}

#[test]
fn an_open_transaction_keeps_its_producer() {
    let mut log = Model::default();
    log.push(None, &batch(0, 0, 1, true, 0)).expect("taken");
    assert_eq!(log.producers.expire(Timestamp(1_000 * HOUR), DAY), 0);
    log.now = Timestamp(1_000 * HOUR);
    assert_eq!(log.marker(0, Outcome::Committed), None);
    assert_eq!(log.producers.expire(Timestamp(1_023 * HOUR), DAY), 0);
    assert_eq!(log.producers.expire(Timestamp(1_024 * HOUR), DAY), 1);
}

#[test]
fn a_producer_takes_less_than_half_a_kilobyte() {
    assert!(size_of::<(ProducerId, Producer)>() < 400, "{}", size_of::<(ProducerId, Producer)>());
}

#[test]
fn a_later_epoch_joins_no_transaction_of_an_earlier_one() {
    let mut log = Model::default();
    assert!(is_new(&log.push(Some(Origin::Client), &batch(0, 0, 1, true, 0))));
    for origin in [Origin::Client, Origin::Member, Origin::Coordinator] {
        log.producers.expect(ID, ProducerEpoch(1));
        let joined = log.push(Some(origin), &batch(1, 0, 1, true, 0));
        assert!(matches!(joined, Err(Error::InvalidTransactionState(_))), "{origin:?}: {joined:?}");
    }
    log.marker(1, Outcome::Aborted).expect("it had records");
    assert!(is_new(&log.push(Some(Origin::Client), &batch(1, 0, 1, true, 0))));
}

#[test]
fn a_member_opens_no_transaction_that_is_not_expected() {
    let mut log = Model::default();
    let is_refused = |log: &mut Model, epoch: i16, first: i32| {
        let sent = log.push(Some(Origin::Member), &batch(epoch, first, 1, true, 0));
        matches!(sent, Err(Error::TransactionAborted))
    };
    assert!(is_refused(&mut log, 0, 0), "nobody has said so");
    log.producers.expect(ID, ProducerEpoch(0));
    assert!(is_refused(&mut log, 1, 0), "another was said");
    assert!(is_new(&log.push(Some(Origin::Member), &batch(0, 0, 1, true, 0))));
    log.producers.expect_no_more(ID, ProducerEpoch(0));
    assert!(is_new(&log.push(Some(Origin::Member), &batch(0, 1, 1, true, 0))), "it is open");
    log.marker(0, Outcome::Committed);
    assert!(is_refused(&mut log, 0, 2), "it has ended");
    assert!(is_new(&log.push(Some(Origin::Member), &batch(0, 2, 1, false, 0))), "what is in no transaction opens none");
    assert!(is_new(&log.push(Some(Origin::Client), &batch(0, 3, 1, true, 0))), "a host decides for itself");
}

/// Each transaction has an epoch of its own: the marker between two is lost where the log has a hole.
#[test]
fn a_transaction_whose_marker_is_lost_counts_as_aborted() {
    let aborted = |first: u64, last: u64, stable: u64| {
        let (first_offset, last_offset, last_stable_offset) = (Offset(first), Offset(last), Offset(stable));
        Some(AbortedTransaction { producer_id: ID, first_offset, last_offset, last_stable_offset })
    };
    let mut log = Model::default();
    assert!(is_new(&log.push(None, &batch(0, 0, 2, true, 0))));
    let next = batch(1, 0, 1, true, 0).assigned(Offset(5), None);
    assert_eq!(log.producers.observe(&next, None, Timestamp(0)), aborted(0, 5, 5), "the next one has begun");
    log.end = Offset(6);
    assert_eq!(log.marker(2, Outcome::Committed), None, "which counts");
    assert_eq!(log.producers.last_stable(log.end), Offset(7));

    assert!(is_new(&log.push(None, &batch(2, 0, 1, true, 0))));
    log.end = Offset(9);
    assert_eq!(log.marker(4, Outcome::Committed), aborted(7, 9, 10), "the commit of one that is lost too");
    let plain = batch(4, 0, 1, false, 0);
    assert!(is_new(&log.push(None, &plain)));
    assert!(is_new(&log.push(None, &batch(4, 1, 1, true, 0))));
    let plain = batch(5, 0, 1, false, 0).assigned(Offset(20), None);
    assert_eq!(log.producers.observe(&plain, None, Timestamp(0)), aborted(11, 20, 21));
}

#[test]
fn a_commit_is_of_the_transaction_that_is_open() {
    let mut log = Model::default();
    assert!(is_new(&log.push(None, &batch(3, 0, 1, true, 0))));
    let check = |log: &Model, epoch: i16, outcome: Outcome, version| {
        let (producer_id, producer_epoch) = (ID, ProducerEpoch(epoch));
        let marker = Marker { outcome, producer_id, producer_epoch, coordinator_epoch: 3, timestamp: Timestamp(0) };
        log.producers.check_marker(&marker, version)
    };
    let versions = [TransactionVersion::V1, TransactionVersion::V2];
    for version in versions {
        let late = check(&log, 5, Outcome::Committed, version);
        assert!(matches!(late, Err(Error::InvalidTransactionState(_))), "{version:?}: {late:?}");
        assert!(matches!(check(&log, 4, Outcome::Committed, version), Ok(true)), "{version:?}");
        assert!(matches!(check(&log, 5, Outcome::Aborted, version), Ok(true)), "{version:?}");
    }
    log.marker(4, Outcome::Committed);
    assert!(
        versions.iter().all(|version| matches!(check(&log, 9, Outcome::Committed, *version), Ok(true))),
        "none is open"
    );
}

/// Who was fenced asks its coordinator once more, and is refused: what its successor may do is not touched.
#[test]
fn an_earlier_epoch_takes_no_expectation_from_a_later_one() {
    let mut producers = Producers::default();
    let opens =
        |producers: &Producers, epoch: i16| producers.check(&batch(epoch, 0, 1, true, 0), Origin::Member).is_ok();
    producers.expect(ID, ProducerEpoch(4));
    producers.expect(ID, ProducerEpoch(2));
    assert!(opens(&producers, 4) && !opens(&producers, 2));
    producers.expect_no_more(ID, ProducerEpoch(2));
    assert!(opens(&producers, 4));
    producers.expect_no_more(ID, TransactionVersion::V2.ends(ProducerEpoch(4)));
    assert!(opens(&producers, 4), "the marker of the one before");
    producers.expect_no_more(ID, TransactionVersion::V2.ends(ProducerEpoch(5)));
    assert!(!opens(&producers, 4), "its own");
}
