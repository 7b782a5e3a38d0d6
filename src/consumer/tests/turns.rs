//! Partitions take turns, whatever a turn comes to.

use super::{Rig, append_transactional, drain, end_transaction, is_out_of_range, offsets, take};
use crate::consumer::{OutOfRange, Which};
use crate::error::Error;
use crate::record::control::Outcome;
use crate::types::{Isolation, Offset, Timestamp};

fn whose(turn: Option<(String, u32, Vec<u64>)>) -> (String, u32) {
    let (topic, partition, _) = turn.expect("something comes");
    (topic, partition)
}

#[test]
fn endless_data_holds_up_no_other_partition() {
    let rig = Rig::new();
    rig.topic("busy", 1, 1);
    rig.topic("quiet", 2, 1);
    let mut reader = rig.reader().topics(["busy", "quiet"]).max_bytes(1).open().expect("opened");
    rig.append("busy", 0, 1);
    rig.append("busy", 0, 1);
    rig.append("quiet", 0, 1);
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(whose(take(&mut reader).expect("readable")).0);
        rig.append("busy", 0, 1);
    }
    assert_eq!(turns, ["busy", "quiet", "busy", "busy"]);
}

#[test]
fn every_partition_gets_a_turn_before_one_gets_two() {
    let rig = Rig::new();
    rig.topic("t", 1, 3);
    for number in 0..3 {
        (0..3).for_each(|_| rig.append("t", number, 2));
    }
    let mut reader = rig.reader().topics(["t"]).max_bytes(1).open().expect("opened");
    let turns: Vec<_> = (0..9).map(|_| whose(take(&mut reader).expect("readable")).1).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn an_error_comes_at_its_turn_and_stays_and_holds_up_nobody() {
    let rig = Rig::new();
    rig.topic("t", 1, 3);
    for number in 0..3 {
        (0..3).for_each(|_| rig.append("t", number, 1));
    }
    let mut reader = rig.reader().topics(["t"]).max_bytes(1).open().expect("opened");
    reader.seek("t", 1, Offset(40)).expect("assigned");
    for _ in 0..2 {
        assert_eq!(whose(take(&mut reader).expect("readable")).1, 0);
        assert!(is_out_of_range(&take(&mut reader).expect_err("out of range"), 40, 0, 3));
        assert_eq!(whose(take(&mut reader).expect("readable")).1, 2);
    }
    reader.seek("t", 1, Offset(2)).expect("assigned");
    assert_eq!(offsets(&drain(&mut reader), "t", 1), [2]);
}

#[test]
fn the_policy_for_positions_out_of_range_is_followed() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    (0..20).for_each(|_| rig.append("t", 0, 1));
    rig.partition("t", 0).trim_before(Offset(10)).expect("trimmed");
    for (policy, expected) in [(OutOfRange::Earliest, (10..20).collect()), (OutOfRange::Latest, Vec::new())] {
        let mut reader = rig.reader().topics(["t"]).out_of_range(policy).open().expect("opened");
        reader.seek("t", 0, Offset(4)).expect("assigned");
        assert_eq!(offsets(&drain(&mut reader), "t", 0), expected, "{policy:?}");
        assert_eq!(reader.position("t", 0).expect("assigned").offset, Offset(20));
    }
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    reader.seek("t", 0, Offset(4)).expect("assigned");
    for _ in 0..2 {
        assert!(is_out_of_range(&take(&mut reader).expect_err("out of range"), 4, 10, 20));
    }
}

#[test]
fn a_damaged_batch_is_an_error_until_a_seek_goes_past_it() {
    let rig = Rig::new();
    rig.topic("t", 1, 2);
    (0..3).for_each(|_| rig.append("t", 0, 2));
    rig.append("t", 1, 1);
    let path = "data/1/t-0/00000000000000000000.log";
    let size = rig.storage.bytes_of(path).expect("it is there").len() as u64;
    rig.storage.flip_bit(path, size / 2, 3).expect("it is there");
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert_eq!(take(&mut reader).expect("whole"), Some(("t".to_owned(), 0, vec![0, 1])));
    assert_eq!(take(&mut reader).expect("whole"), Some(("t".to_owned(), 1, vec![0])));
    for _ in 0..2 {
        match take(&mut reader) {
            Err(Error::Corrupt { offsets, .. }) => assert_eq!(offsets, Offset(2)..Offset(4)),
            other => panic!("{other:?}"),
        }
    }
    reader.seek("t", 0, Offset(4)).expect("assigned");
    assert_eq!(take(&mut reader).expect("whole"), Some(("t".to_owned(), 0, vec![4, 5])));
}

#[test]
fn paused_partitions_have_no_turn() {
    let rig = Rig::new();
    rig.topic("t", 1, 2);
    rig.append("t", 0, 1);
    rig.append("t", 1, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    reader.pause(("t", 0)).expect("assigned");
    assert_eq!(drain(&mut reader), [("t".to_owned(), 1, 0)]);
    reader.seek("t", 1, Offset(9)).expect("assigned");
    reader.pause(Which::All).expect("assigned");
    assert_eq!(drain(&mut reader), []);
    reader.resume(("t", 0)).expect("assigned");
    assert_eq!(drain(&mut reader), [("t".to_owned(), 0, 0)]);
}

#[test]
fn what_is_not_shown_is_passed_over_within_one_poll() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    let partition = rig.partition("t", 0);
    for producer in 0..20 {
        append_transactional(&partition, producer, 2, Timestamp(1));
        end_transaction(&partition, producer, Outcome::Aborted);
    }
    append_transactional(&partition, 20, 2, Timestamp(1));
    end_transaction(&partition, 20, Outcome::Committed);
    let mut reader = rig.reader().topics(["t"]).max_bytes(1).open().expect("opened");
    assert_eq!(take(&mut reader).expect("readable"), Some(("t".to_owned(), 0, vec![60, 61])));
    assert_eq!(take(&mut reader).expect("readable"), None);
    assert_eq!(reader.position("t", 0).expect("assigned").offset, Offset(63));

    let all = rig.reader().topics(["t"]).isolation(Isolation::Uncommitted).open();
    assert_eq!(drain(&mut all.expect("opened")).len(), 42);
}

#[test]
fn an_open_transaction_ends_what_is_committed() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    let partition = rig.partition("t", 0);
    rig.append("t", 0, 1);
    append_transactional(&partition, 1, 2, Timestamp(1));
    rig.append("t", 0, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [0]);
    end_transaction(&partition, 1, Outcome::Committed);
    assert_eq!(offsets(&drain(&mut reader), "t", 0), [1, 2, 3]);
}
