//! How far behind a group is, of a log in memory.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Rig, SECOND, SEGMENT, age, name};
use crate::config::{Retention, TopicConfig};
use crate::error::Error;
use crate::group::{Details, MemberSettings, Subscription};
use crate::metrics::number;
use crate::node::Membership;
use crate::record::batch::{set_base_offset, set_leader_epoch};
use crate::record::builder::{BatchBuilder, Record};
use crate::record::control::{Marker, Outcome, marker_batch};
use crate::sync::{Arc as Pointer, Signal};
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

#[test]
fn records_bytes_and_time_of_each_partition() {
    let rig = Rig::new();
    rig.topic("t", 3, age(1_000));
    rig.append("t", 0, 2);
    rig.clock.advance(5 * SECOND);
    rig.append("t", 0, 3);
    rig.append("t", 1, 1);
    rig.clock.advance(2 * SECOND);
    rig.commit("billing", "t", 0, 2);
    rig.commit("billing", "t", 1, 1);
    let lag = rig.lag("billing").unwrap();
    let [first, second] = &lag.partitions[..] else { panic!("{lag:?}") };
    assert_eq!((&first.partition, first.committed, first.end), (&name("t", 0), Some(Offset(2)), Offset(5)));
    assert_eq!((first.records, first.bytes, first.time), (3, 3 * SEGMENT, Some(2 * SECOND)));
    assert_eq!((first.rate_in, first.rate_out, first.catch_up), (None, None, None), "nobody has sampled");
    assert_eq!(first.left, Some(998 * SECOND));
    assert_eq!((second.records, second.bytes, second.time, second.left), (0, 0, None, None));
    assert_eq!(second.catch_up, Some(Duration::ZERO));
    assert_eq!((lag.group.as_str(), lag.total.records, lag.total.bytes), ("billing", 3, 3 * SEGMENT));
    assert_eq!((lag.total.time, lag.total.left, lag.total.catch_up), (Some(2 * SECOND), Some(998 * SECOND), None));
}

/// Bytes come from the index: with an entry for each batch but the first they are exact.
#[test]
fn bytes_within_a_segment_are_as_good_as_its_index() {
    let rig = Rig::new();
    rig.make("exact", TopicConfig::new().index_interval_bytes(0).retention(Retention::forever()));
    rig.make("coarse", TopicConfig::new().retention(Retention::forever()));
    for topic in ["exact", "coarse"] {
        rig.append(topic, 0, 40);
        rig.commit("billing", topic, 0, 30);
    }
    let lag = rig.lag("billing").unwrap();
    let [coarse, exact] = &lag.partitions[..] else { panic!("{lag:?}") };
    assert_eq!((exact.records, exact.bytes), (10, 10 * SEGMENT));
    let most = 10 * SEGMENT + 4096 + SEGMENT;
    assert!((10 * SEGMENT..=most).contains(&coarse.bytes), "{}", coarse.bytes);
}

/// 20 records a second come, 30 are read: of 400 that are behind after 10 s, 300 are after another 10 s.
#[test]
fn rates_come_with_a_monitor() {
    let rig = Rig::new();
    rig.make("t", TopicConfig::new().retention(Retention::forever()));
    rig.append("t", 0, 300);
    rig.commit("billing", "t", 0, 0);
    let monitor = rig.monitor();
    rig.node.tick();
    for second in 1..=10 {
        rig.clock.advance(SECOND);
        rig.append("t", 0, 20);
        rig.commit("billing", "t", 0, 30 * second);
        rig.node.tick();
    }
    let lag = rig.lag("billing").unwrap().partitions.remove(0);
    let (rate_in, rate_out) = (lag.rate_in.unwrap(), lag.rate_out.unwrap());
    assert_eq!((lag.records, rate_in.records, rate_out.records), (200, 20.0, 30.0));
    assert!((rate_in.bytes - 20.0 * number(SEGMENT)).abs() < 1e-6, "{rate_in:?}");
    assert!((rate_out.bytes / (30.0 * number(SEGMENT)) - 1.0).abs() < 0.05, "{rate_out:?}");
    assert_eq!(lag.catch_up, Some(20 * SECOND));
    rig.pass(61 * SECOND, 61 * SECOND);
    assert_eq!(rig.lag("billing").unwrap().partitions[0].catch_up, None, "it reads no more");
    drop(monitor);
    assert_eq!(rig.lag("billing").unwrap().partitions[0].rate_in, None);
}

/// One partition is far behind and read fast; of the other each record is read, and committed before the next look but one.
#[test]
fn a_partition_that_keeps_pace_hides_no_other() {
    let rig = Rig::new();
    rig.make("t", TopicConfig::new().partitions(2).retention(Retention::forever()));
    rig.append("t", 0, 400);
    rig.commit("billing", "t", 0, 0);
    rig.commit("billing", "t", 1, 0);
    let _monitor = rig.monitor();
    rig.node.tick();
    for second in 1..=12 {
        rig.clock.advance(SECOND);
        rig.append("t", 1, 4);
        rig.commit("billing", "t", 0, 20 * second);
        rig.commit("billing", "t", 1, 4 * (second / 4) * 4);
        rig.node.tick();
    }
    rig.clock.advance(SECOND);
    rig.append("t", 1, 4);
    rig.node.tick();
    let lag = rig.lag("billing").unwrap();
    let [behind, even] = &lag.partitions[..] else { panic!("{lag:?}") };
    assert_eq!((behind.records, even.records), (160, 4));
    assert!(even.rate_in > even.rate_out, "{even:?}");
    assert_eq!(even.catch_up, Some(Duration::ZERO));
    assert!(behind.catch_up.is_some_and(|time| time > 7 * SECOND), "{behind:?}");
    assert_eq!(lag.total.catch_up, behind.catch_up);
    // It stands still now, and so has something to catch up.
    for second in 13..=22 {
        rig.clock.advance(SECOND);
        rig.append("t", 1, 4);
        rig.commit("billing", "t", 0, 20 * second.min(19));
        rig.node.tick();
    }
    assert_eq!(rig.lag("billing").unwrap().total.catch_up, None);
}

#[test]
fn a_group_that_is_not_there_is_an_error_and_makes_nothing() {
    let rig = Rig::new();
    rig.topic("t", 1, age(1));
    assert!(matches!(rig.lag("nobody"), Err(Error::UnknownGroup { group }) if group == "nobody"));
    assert_eq!(rig.node.topics().len(), 1, "no topic was made for it");
    rig.commit("billing", "t", 0, 0);
    assert!(matches!(rig.lag("nobody"), Err(Error::UnknownGroup { .. })));
    rig.node.close().unwrap();
    assert!(matches!(rig.lag("billing"), Err(Error::Closed)));
}

#[test]
fn what_a_member_is_to_read_is_shown_without_a_position() {
    let rig = Rig::new();
    rig.topic("t", 2, age(100));
    rig.append("t", 1, 4);
    let subscription = Subscription { topics: BTreeSet::from(["t".to_owned()]), pattern: None };
    let settings = MemberSettings::new("billing".to_owned(), Details { subscription, ..Details::default() });
    let _member = Membership::join(&rig.node, settings, &Pointer::new(Signal::new())).unwrap();
    rig.pass(2 * SECOND, SECOND);
    let lag = rig.lag("billing").unwrap();
    let shown: Vec<_> =
        lag.partitions.iter().map(|lag| (lag.partition.partition, lag.committed, lag.records)).collect();
    assert_eq!(shown, [(0, None, 0), (1, None, 4)]);
    assert_eq!(lag.partitions[1].left, Some(98 * SECOND));
    let _monitor = rig.monitor();
    rig.pass(110 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0], "where it will begin is not known");
}

#[test]
fn a_topic_that_is_gone_is_left_out() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.topic("u", 1, age(100));
    rig.commit("billing", "t", 0, 0);
    rig.commit("billing", "u", 0, 0);
    rig.node.administer("t", crate::controller::Command::Delete { name: "t".to_owned() }).unwrap();
    let lag = rig.lag("billing").unwrap();
    assert_eq!(lag.partitions.iter().map(|lag| lag.partition.to_string()).collect::<Vec<_>>(), ["u-0"]);
}

/// Whether the next record can be read changes nothing but what its timestamp says.
#[test]
fn a_damaged_record_has_no_age() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 2);
    rig.commit("billing", "t", 0, 0);
    let mut path = rig.partition("t", 0).path().to_owned();
    path.push("00000000000000000000.log");
    rig.storage.flip_bit(&path, 500, 0).unwrap();
    let lag = rig.lag("billing").unwrap().partitions.remove(0);
    assert_eq!((lag.records, lag.bytes, lag.time, lag.left), (2, 2 * SEGMENT, None, Some(100 * SECOND)));
}

/// What was aborted counts as unread, and has no age: that is the next record's that is shown.
#[test]
fn records_that_are_not_shown_have_no_age() {
    let rig = Rig::new();
    rig.make("t", TopicConfig::new().retention(Retention::forever()));
    let partition = rig.partition("t", 0);
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("value").timestamp(Timestamp(super::BEGIN - 7_000))).unwrap();
    batch.producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
    batch.transactional(true);
    partition.append(&mut batch).unwrap().wait().unwrap();
    rig.commit("billing", "t", 0, 0);
    let lag = rig.lag("billing").unwrap().partitions.remove(0);
    assert_eq!((lag.records, lag.time, lag.end, lag.high_watermark), (0, None, Offset(0), Offset(1)), "it is open");
    let marker = Marker {
        outcome: Outcome::Aborted,
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 0,
        timestamp: Timestamp(super::BEGIN),
    };
    let mut bytes = marker_batch(&marker);
    set_base_offset(&mut bytes, partition.end());
    set_leader_epoch(&mut bytes, partition.leader_epoch());
    partition.append_replica(&bytes, partition.leader_epoch()).unwrap().wait().unwrap();
    let lag = rig.lag("billing").unwrap().partitions.remove(0);
    assert_eq!((lag.records, lag.time), (2, None));
    rig.append("t", 0, 1);
    rig.clock.advance(3 * SECOND);
    let lag = rig.lag("billing").unwrap().partitions.remove(0);
    assert_eq!((lag.records, lag.time), (3, Some(3 * SECOND)));
}

/// The coordinator cannot be read: that is said, and not taken for a group without positions.
#[test]
fn positions_that_cannot_be_read_are_an_error() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 1);
    rig.commit("billing", "t", 0, 0);
    rig.break_groups("billing");
    assert!(matches!(rig.lag("billing"), Err(Error::Poisoned { .. })));
}
