//! What is held for groups: nothing of it goes until it is too much, and then it is said.

use std::time::Duration;

use super::{Rig, SECOND, SEGMENT, age};
use crate::config::{PartitionConfig, Retention};
use crate::error::Error;
use crate::lag::Alert;
use crate::partition::{Partition, ReadOptions};
use crate::types::Offset;

fn held(segments: u64) -> Retention {
    age(100).hold_for(["billing", "audit"], segments * SEGMENT)
}

fn start(rig: &Rig) -> u64 {
    rig.partition("t", 0).start().0
}

/// The records from the start on are all there.
fn assert_readable(rig: &Rig) {
    let partition = rig.partition("t", 0);
    let mut at = partition.start();
    while at < partition.end() {
        let fetched = partition.read(at, ReadOptions::new()).unwrap();
        assert_eq!(fetched.iter().next().map(|record| record.offset()), Some(at));
        at = fetched.next_offset();
    }
}

#[test]
fn nothing_goes_that_a_group_has_not_read_until_it_is_too_much() {
    let rig = Rig::new();
    rig.topic("t", 1, held(5));
    rig.append("t", 0, 5);
    rig.commit("billing", "t", 0, 2);
    rig.commit("audit", "t", 0, 3);
    let _monitor = rig.builder().groups(["billing", "audit"]).start().unwrap();
    rig.pass(200 * SECOND, SECOND);
    assert_eq!(start(&rig), 2, "what both have read goes");
    rig.said();
    rig.append("t", 0, 2);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 2, "five segments are within the bound");
    assert_eq!(rig.said(), ["near_edge t-0", "near_edge t-0"], "of which not much is left");
    assert_readable(&rig);
    rig.append("t", 0, 1);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 3, "the sixth pushes one out");
    let said = rig.said.lock().clone();
    let (group, partition) = ("billing".to_owned(), super::name("t", 0));
    let lost = Offset(2)..Offset(3);
    let exceeded =
        Alert::HoldExceeded { group: group.clone(), partition: partition.clone(), lost: lost.clone(), bytes: SEGMENT };
    assert_eq!(said, [Alert::Overtaken { group, partition, lost }, exceeded], "audit has read it");
    rig.said();
    rig.append("t", 0, 2);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 5, "two more");
    let said = rig.said.lock().clone();
    let audit = said.iter().find(|alert| matches!(alert, Alert::HoldExceeded { group, .. } if group == "audit"));
    let (group, partition, lost) = ("audit".to_owned(), super::name("t", 0), Offset(3)..Offset(5));
    assert_eq!(audit, Some(&Alert::HoldExceeded { group, partition, lost, bytes: 2 * SEGMENT }), "both in one");
    assert_eq!(rig.said(), ["overtaken t-0", "hold_exceeded t-0", "hold_exceeded t-0"], "billing was overtaken before");
    assert_readable(&rig);
}

#[test]
fn without_the_hold_it_goes_and_is_no_such_loss() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 5);
    rig.commit("billing", "t", 0, 2);
    let _monitor = rig.monitor();
    rig.pass(110 * SECOND, SECOND);
    assert_eq!((start(&rig), rig.said()), (5, vec!["near_edge t-0".to_owned(), "overtaken t-0".to_owned()]));
}

#[test]
fn a_named_group_without_a_position_holds_everything_up_to_the_bound() {
    let rig = Rig::new();
    rig.topic("t", 1, held(4));
    rig.append("t", 0, 4);
    rig.pass(200 * SECOND, SECOND);
    assert_eq!(start(&rig), 0, "no group is there at all");
    rig.commit("billing", "t", 0, 4);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 0, "audit has no position");
    rig.append("t", 0, 1);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 1);
    rig.commit("audit", "t", 0, 4);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 4, "what both have read is not held");
}

#[test]
fn positions_that_cannot_be_known_hold_everything_up_to_the_bound() {
    let rig = Rig::new();
    rig.topic("t", 1, held(4));
    rig.append("t", 0, 4);
    rig.commit("billing", "t", 0, 3);
    rig.commit("audit", "t", 0, 3);
    rig.break_groups("billing");
    rig.pass(200 * SECOND, SECOND);
    assert_eq!(start(&rig), 0);
    rig.append("t", 0, 1);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 1, "too much is too much");
    rig.storage.clear_faults();
    rig.partition_of_groups("billing").reopen().unwrap();
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(start(&rig), 3, "they are known again");
}

#[test]
fn a_hold_and_what_was_read_outlive_a_close() {
    let rig = Rig::new();
    rig.topic("t", 1, held(5));
    rig.append("t", 0, 5);
    rig.commit("billing", "t", 0, 2);
    rig.commit("audit", "t", 0, 4);
    let rig = rig.reopened();
    rig.pass(200 * SECOND, SECOND);
    assert_eq!(start(&rig), 2);
    let config = rig.node.topic("t").unwrap().config.partition.retention.clone();
    assert_eq!(config, held(5));
}

/// A host that maintains a partition of a log by itself knows nothing of what was read.
#[test]
fn maintenance_by_hand_holds_all_of_it_and_deletion_by_hand_nothing() {
    let rig = Rig::new();
    rig.topic("t", 1, held(5));
    rig.append("t", 0, 5);
    rig.commit("billing", "t", 0, 2);
    rig.commit("audit", "t", 0, 2);
    rig.clock.advance(Duration::from_secs(200));
    let partition = rig.partition("t", 0);
    let now = rig.node.clock().now();
    assert_eq!(partition.maintain(now).unwrap().removed, []);
    assert_eq!(partition.delete_records(Some(Offset(3))).unwrap(), Offset(3));
    assert_eq!(partition.trim_before(Offset(4)).unwrap(), Offset(4));
    assert_eq!(partition.remove_while(|_| true).unwrap().len(), 1);
}

#[test]
fn a_partition_by_itself_refuses_a_hold() {
    let storage = crate::storage::MemoryStorage::new(0);
    let open = |config| Partition::builder("/alone-0").storage(storage.shared()).config(config).open();
    let config = PartitionConfig::new().retention(held(1));
    let is_refused = |error: &Error| matches!(error, Error::InvalidConfig { setting: "retention", .. });
    assert!(open(config.clone()).is_err_and(|error| is_refused(&error)));
    let partition = open(PartitionConfig::new()).unwrap();
    assert!(partition.set_config(config).is_err_and(|error| is_refused(&error)));
}

/// 100 s are over, so that only the hold keeps it: of five segments four are used, and one comes in 10 s.
#[test]
fn the_edge_is_that_of_the_hold() {
    let rig = Rig::new();
    rig.topic("t", 1, held(5));
    rig.append("t", 0, 4);
    rig.commit("billing", "t", 0, 0);
    rig.commit("audit", "t", 0, 4);
    rig.commit("other", "t", 0, 0);
    rig.pass(200 * SECOND, SECOND);
    assert_eq!(start(&rig), 0);
    for group in ["billing", "other"] {
        assert_eq!(rig.lag(group).unwrap().total.left, None, "nothing comes, and nothing goes: {group}");
    }
    let _monitor = rig.monitor();
    rig.pass(10 * SECOND, SECOND);
    rig.append("t", 0, 1);
    rig.pass(SECOND, SECOND);
    let left = rig.lag("billing").unwrap().total.left;
    assert_eq!(left, Some(Duration::ZERO), "the next byte is too much");
    assert!(rig.said().contains(&"near_edge t-0".to_owned()));
}
