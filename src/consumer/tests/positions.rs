//! Where reading begins and goes on, and what a position notices.

use std::sync::Arc;

use super::{Rig, append, append_at, append_transactional, drain, end_transaction, offsets, put, take};
use crate::consumer::{OutOfRange, Position, StartAt, Which};
use crate::error::Error;
use crate::node::Topics;
use crate::partition::{Force, Partition};
use crate::record::builder::{BatchBuilder, Record};
use crate::record::control::Outcome;
use crate::types::{Isolation, LeaderEpoch, Offset, Timestamp};

fn at(offset: u64, epoch: i32) -> Position {
    Position { offset: Offset(offset), epoch: Some(LeaderEpoch(epoch)) }
}

/// Appends a record as another copy has it, large enough that a segment holds no second one.
fn append_replica(partition: &Partition, offset: u64, epoch: i32) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(&[0_u8; 500]).timestamp(Timestamp(1))).expect("small");
    batch.base_offset(Offset(offset));
    batch.leader_epoch(LeaderEpoch(epoch));
    let bytes = batch.encode().expect("encoded");
    let _ = partition.append_replica(bytes, LeaderEpoch(epoch)).expect("appended");
}

/// One topic with one partition of twenty records in batches of one, stamped 100, 101, ...
fn twenty() -> Rig {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    (0..20).for_each(|number| append_at(&rig.partition("t", 0), 1, Timestamp(100 + number)));
    rig
}

#[test]
fn reading_begins_where_it_is_told_to() {
    let rig = twenty();
    rig.partition("t", 0).trim_before(Offset(3)).expect("trimmed");
    let starts = [
        (StartAt::Earliest, 3),
        (StartAt::Latest, 20),
        (StartAt::Time(Timestamp(0)), 3),
        (StartAt::Time(Timestamp(112)), 12),
        (StartAt::Time(Timestamp(500)), 20),
    ];
    for (start, first) in starts {
        let mut reader = rig.reader().topics(["t"]).start_at(start).open().expect("opened");
        assert_eq!(reader.position("t", 0).expect("assigned"), Offset(first).into(), "{start:?}");
        assert_eq!(offsets(&drain(&mut reader), "t", 0), (first..20).collect::<Vec<_>>(), "{start:?}");
    }
}

#[test]
fn what_comes_after_the_latest_is_read() {
    let rig = twenty();
    let mut reader = rig.reader().partitions([("t", 0)]).start_at(StartAt::Latest).open().expect("opened");
    rig.append("t", 0, 2);
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [20, 21]);
    reader.seek_to_beginning(Which::All).expect("assigned");
    reader.seek_to_end("t").expect("assigned");
    rig.append("t", 0, 1);
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [22]);
}

/// An open transaction hides records that the search by time does not reach: they are not passed over.
#[test]
fn a_time_that_is_not_found_passes_over_no_record() {
    let rig = twenty();
    let partition = rig.partition("t", 0);
    append_transactional(&partition, 1, 1, Timestamp(900));
    let start = StartAt::Time(Timestamp(900));
    let builder = rig.reader().topics(["t"]).isolation(Isolation::Uncommitted).start_at(start);
    assert_eq!(offsets(&drain(&mut builder.open().expect("opened")), "t", 0), [20]);
    let mut reader = rig.reader().topics(["t"]).start_at(start).open().expect("opened");
    assert_eq!(take(&mut reader).expect("readable"), None);
    end_transaction(&partition, 1, Outcome::Committed);
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [20]);
}

#[test]
fn seeks_go_anywhere() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    reader.seek("t", 0, Offset(18)).expect("assigned");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [18, 19]);
    reader.seek_to_time(("t", 0), Timestamp(117)).expect("assigned");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [17, 18, 19]);
    reader.seek_to_beginning("t").expect("assigned");
    assert_eq!(drain(&mut reader).len(), 20);
}

/// Earliest is what is there when it is first read; from then on nothing goes unnoticed, not even of an empty log.
#[test]
fn the_earliest_is_fixed_by_the_first_read() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    rig.partition("t", 0).trim_before(Offset(15)).expect("trimmed");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [15, 16, 17, 18, 19]);

    rig.topic("empty", 2, 1);
    let mut reader = rig.reader().topics(["empty"]).open().expect("opened");
    assert_eq!(take(&mut reader).expect("readable"), None);
    rig.append("empty", 0, 1);
    rig.append("empty", 0, 1);
    rig.partition("empty", 0).trim_before(Offset(1)).expect("trimmed");
    assert!(matches!(take(&mut reader), Err(Error::OffsetOutOfRange { .. })));
}

#[test]
fn a_position_carries_the_epoch_of_what_was_read() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).max_bytes(1).open().expect("opened");
    assert_eq!(reader.position("t", 0).expect("assigned"), Offset(0).into());
    take(&mut reader).expect("readable");
    assert_eq!(reader.position("t", 0).expect("assigned"), at(1, 0));
    drain(&mut reader);
    assert_eq!(reader.position("t", 0).expect("assigned"), at(20, 0));
    let mut next = rig.reader().topics(["t"]).open().expect("opened");
    next.seek("t", 0, at(20, 0)).expect("assigned");
    rig.append("t", 0, 1);
    assert_eq!(offsets(&drain(&mut next), "t", 0), [20]);
}

/// The machine loses power after a reader has seen what was never synced. The log that is found afterwards is
/// shorter, begins an epoch, and grows beyond the reader's position.
#[test]
fn records_that_were_read_and_lost_are_noticed() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    rig.append("t", 0, 3);
    rig.partition("t", 0).sync().expect("synced");
    let mut reader = rig.reader().topics(["t"]).out_of_range(OutOfRange::Earliest).open().expect("opened");
    (0..4).for_each(|_| rig.append("t", 0, 2));
    assert_eq!(drain(&mut reader).len(), 11);

    let (end, recovered) = (0..50)
        .map(|seed| rig.open(&rig.storage.crash(seed), 1, "t", 0))
        .map(|partition| (partition.end().0, partition))
        .find(|(end, _)| *end < 11)
        .expect("some crash loses something");
    let mut topics = Topics::clone(&rig.node.topics());
    put(&mut topics, "t", 1, vec![recovered.clone()]);
    rig.node.publish(topics);

    for grown in [0, 20] {
        (0..grown).for_each(|_| append(&recovered, 1));
        let error = take(&mut reader).expect_err("records are gone");
        match error {
            Error::Truncated { epoch, position, end: now, .. } => {
                assert_eq!((epoch, position, now), (LeaderEpoch(0), Offset(11), Offset(end)));
            }
            other => panic!("{other}"),
        }
    }
    reader.seek("t", 0, Offset(end)).expect("assigned");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), (end..end + 20).collect::<Vec<_>>());
    assert_eq!(reader.position("t", 0).expect("assigned"), at(end + 20, 1));
}

#[test]
fn an_epoch_that_the_log_does_not_know_is_noticed() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    reader.seek("t", 0, at(7, 4)).expect("assigned");
    assert!(matches!(take(&mut reader), Err(Error::Truncated { position: Offset(7), end: Offset(7), .. })));
    reader.seek("t", 0, at(30, 4)).expect("assigned");
    assert!(matches!(take(&mut reader), Err(Error::Truncated { position: Offset(30), end: Offset(20), .. })));
}

/// A log whose epochs are 0 to offset 20, 2 to 22, then 5.
#[test]
fn positions_are_compared_with_every_epoch() {
    let rig = twenty();
    let partition = rig.partition("t", 0);
    for epoch in [2, 5] {
        partition.begin_epoch(LeaderEpoch(epoch)).expect("begun");
        (0..2).for_each(|_| append(&partition, 1));
    }
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    for good in [at(20, 0), at(5, 0), at(21, 2), at(22, 2), at(23, 5), at(24, 5)] {
        reader.seek("t", 0, good).expect("assigned");
        let expected: Vec<_> = (good.offset.0..24).collect();
        assert_eq!(offsets(&drain(&mut reader), "t", 0), expected, "{good:?}");
    }
    for (bad, end) in [(at(21, 0), 20), (at(23, 2), 22), (at(21, 1), 20), (at(22, 3), 22), (at(25, 5), 24)] {
        reader.seek("t", 0, bad).expect("assigned");
        let noticed = matches!(take(&mut reader), Err(Error::Truncated { end: found, .. }) if found == Offset(end));
        assert!(noticed, "{bad:?}");
    }
    partition.trim_before(Offset(22)).expect("trimmed");
    reader.seek("t", 0, at(22, 2)).expect("assigned");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [22, 23]);
}

/// Behind batch 0 of epoch 0 follows a gap in which epoch 3 began, then a segment of epoch 5 that begins at 10.
#[test]
fn an_epoch_that_lies_in_a_gap_is_no_truncation() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    let partition = rig.partition("t", 0);
    append_replica(&partition, 0, 0);
    partition.begin_epoch(LeaderEpoch(3)).expect("begun");
    append_replica(&partition, 10, 5);
    assert_eq!(partition.stats().segments, 2);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert_eq!(take(&mut reader).expect("readable"), Some(("t".to_owned(), 0, vec![0])));
    assert_eq!(reader.position("t", 0).expect("assigned"), at(10, 3));
    assert_eq!(take(&mut reader).expect("readable"), Some(("t".to_owned(), 0, vec![10])));
    assert_eq!(reader.position("t", 0).expect("assigned"), at(11, 5));
}

#[test]
fn a_log_that_was_cut_below_the_position_is_noticed() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    drain(&mut reader);
    rig.partition("t", 0).truncate_from(Offset(12), Force::Yes).expect("cut");
    assert!(matches!(take(&mut reader), Err(Error::Truncated { position: Offset(20), end: Offset(12), .. })));
}

#[test]
fn calls_about_what_is_not_read_say_so() {
    let rig = twenty();
    rig.topic("other", 2, 1);
    let unknown = rig.reader().topics(["t", "nothing"]).open();
    assert!(matches!(unknown, Err(Error::UnknownTopic { name }) if name == "nothing"));
    let unknown = rig.reader().partitions([("t", 1)]).open();
    assert!(matches!(unknown, Err(Error::UnknownPartition { partition: 1, partitions: 1, .. })));
    assert!(matches!(rig.reader().open(), Err(Error::InvalidConfig { setting: "topics", .. })));

    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    let other = reader.seek("other", 0, Offset(0));
    assert!(matches!(other, Err(Error::NotAssigned { topic, partition: Some(0) }) if topic == "other"));
    assert!(matches!(reader.seek("nothing", 0, Offset(0)), Err(Error::UnknownTopic { .. })));
    assert!(matches!(reader.position("t", 3), Err(Error::UnknownPartition { partition: 3, .. })));
    assert!(matches!(reader.pause("other"), Err(Error::NotAssigned { partition: None, .. })));
    assert!(matches!(reader.seek_to_end("nothing"), Err(Error::UnknownTopic { .. })));
}

#[test]
fn a_closed_log_says_so() {
    let rig = twenty();
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    rig.partition("t", 0).close().expect("closed");
    assert!(matches!(take(&mut reader), Err(Error::Closed)));
    rig.node.refuse();
    assert!(matches!(take(&mut reader), Err(Error::Closed)));
    assert!(matches!(reader.seek("t", 0, Offset(0)), Err(Error::Closed)));
    assert!(matches!(rig.reader().topics(["t"]).open(), Err(Error::Closed)));
}

#[test]
fn readers_go_from_thread_to_thread() {
    fn sent<T: Send>(_: &T) {}
    let rig = twenty();
    sent(&rig.reader().topics(["t"]).open().expect("opened"));
    assert_eq!(Arc::strong_count(&rig.node), 1);
}
