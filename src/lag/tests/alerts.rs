//! What a monitor says, and exactly when.

use std::sync::Arc;
use std::time::Duration;

use super::{MILLI, Rig, SECOND, SEGMENT, age, name};
use crate::config::{Ratio, Retention};
use crate::error::Error;
use crate::lag::{Alert, Astray, Margin, Monitor};
use crate::metrics;
use crate::partition::Force;
use crate::sync::Mutex;
use crate::types::Offset;

/// A record is kept for 100 s; the margin is a quarter, so the alert is due when the record is 75 s old.
#[test]
fn the_alert_comes_at_the_margin_and_not_a_millisecond_before() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 3);
    rig.commit("billing", "t", 0, 1);
    let _monitor = rig.builder().interval(MILLI).start().unwrap();
    rig.pass(Duration::from_secs(74), SECOND);
    rig.pass(Duration::from_millis(999), MILLI);
    assert_eq!(rig.said(), [""; 0]);
    rig.pass(MILLI, MILLI);
    let said = rig.said.lock().clone();
    let [Alert::NearEdge { group, partition, left, lag }] = &said[..] else { panic!("{said:?}") };
    assert_eq!((group.as_str(), partition, *left), ("billing", &name("t", 0), Duration::from_secs(25)));
    assert_eq!((lag.committed, lag.records, lag.time), (Some(Offset(1)), 2, Some(Duration::from_secs(75))));
    assert_eq!(rig.said().len(), 1);
    rig.pass(10 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0], "once");
}

#[test]
fn a_margin_of_time_and_the_interval_hold() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 1);
    rig.commit("billing", "t", 0, 0);
    let _monitor = rig.builder().margin(Margin::Duration(30 * SECOND)).interval(20 * SECOND).start().unwrap();
    rig.pass(79 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0], "it looks at 61 s and at 81 s");
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0"]);
}

#[test]
fn it_is_said_again_after_the_group_has_caught_up_and_when_it_is_overtaken() {
    let rig = Rig::new();
    rig.topic("t", 2, age(100));
    rig.append("t", 0, 2);
    rig.commit("billing", "t", 0, 0);
    rig.commit("audit", "t", 0, 2);
    let _monitor = rig.monitor();
    rig.pass(80 * SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0"]);
    rig.append("t", 0, 1);
    rig.commit("billing", "t", 0, 2);
    rig.pass(SECOND, SECOND);
    // The records that were read go; the third is at the margin at 155 s, and goes at 180 s.
    rig.pass(73 * SECOND, SECOND);
    assert_eq!((rig.partition("t", 0).start(), rig.said()), (Offset(2), vec![]));
    rig.pass(2 * SECOND, SECOND);
    for alert in &*rig.said.lock() {
        let Alert::NearEdge { lag, .. } = alert else { panic!("{alert:?}") };
        assert_eq!(lag.time, Some(75 * SECOND), "of the record that is next now");
    }
    assert_eq!(rig.said(), ["near_edge t-0", "near_edge t-0"], "billing and audit");
    rig.commit("audit", "t", 0, 3);
    rig.pass(30 * SECOND, SECOND);
    let said = rig.said.lock().clone();
    let (group, lost) = ("billing".to_owned(), Offset(2)..Offset(3));
    assert_eq!(said, [Alert::Overtaken { group, partition: name("t", 0), lost: lost.clone() }]);
    let lag = rig.lag("billing").unwrap();
    assert_eq!((lag.partitions[0].lost.clone(), lag.total.lost, lag.total.left), (Some(lost), 1, Some(Duration::ZERO)));
    rig.said();
    rig.pass(30 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0]);
    rig.commit("billing", "t", 0, 3);
    rig.append("t", 0, 1);
    rig.pass(110 * SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0", "near_edge t-0", "overtaken t-0", "overtaken t-0"]);
}

/// The log is cut below one group's position, and never was as long as another's says.
#[test]
fn it_is_said_of_a_group_that_stands_where_nothing_can_be_read() {
    let rig = Rig::new();
    rig.topic("t", 1, Retention::forever());
    rig.append("t", 0, 10);
    let epoch = rig.partition("t", 0).leader_epoch();
    rig.commit_read("billing", "t", 0, 10, epoch);
    rig.commit_read("mail", "t", 0, 6, epoch);
    let _monitor = rig.monitor();
    rig.pass(2 * SECOND, SECOND);
    rig.commit("audit", "t", 0, 1_000);
    rig.pass(2 * SECOND, SECOND);
    let beyond = Astray::BeyondEnd { end: Offset(10) };
    let said = |group: &str, position, astray| Alert::Astray {
        group: group.to_owned(),
        partition: name("t", 0),
        position: Offset(position),
        astray,
    };
    assert_eq!(std::mem::take(&mut *rig.said.lock()), [said("audit", 1_000, beyond)]);
    rig.partition("t", 0).truncate_from(Offset(6), Force::Yes).unwrap();
    rig.pass(SECOND, SECOND);
    let cut = Astray::Cut { end: Offset(6) };
    assert_eq!(std::mem::take(&mut *rig.said.lock()), [said("billing", 10, cut)]);
    // It has grown again, beyond the position: what stands below it is not what was read.
    rig.append("t", 0, 8);
    rig.pass(5 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0]);
    let lag = rig.lag("billing").unwrap();
    let [one] = &lag.partitions[..] else { panic!("{lag:?}") };
    assert_eq!((one.astray, one.records, one.bytes, one.catch_up), (Some(cut), 8, 8 * SEGMENT, None));
    assert_eq!((one.lost.clone(), one.time, lag.total.astray), (None, Some(5 * SECOND), 1));
    let lag = rig.lag("audit").unwrap();
    let beyond = Astray::BeyondEnd { end: Offset(14) };
    assert_eq!((lag.partitions[0].astray, lag.total.records, lag.total.catch_up), (Some(beyond), 0, None));
    assert_eq!(rig.lag("mail").unwrap().total.astray, 0, "it was cut behind it");
    // Who goes on from the cut is well, and is told again next time.
    rig.commit("billing", "t", 0, 6);
    rig.pass(SECOND, SECOND);
    rig.commit("billing", "t", 0, 15);
    rig.pass(2 * SECOND, SECOND);
    assert_eq!(*rig.said.lock(), [said("billing", 15, beyond)]);
}

#[test]
fn only_the_groups_that_are_named_are_watched() {
    let rig = Rig::new();
    rig.topic("t", 1, age(100));
    rig.append("t", 0, 1);
    rig.commit("billing", "t", 0, 0);
    let monitor = rig.builder().groups(["audit"]).start().unwrap();
    rig.pass(80 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0]);
    rig.commit("audit", "t", 0, 0);
    rig.pass(SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0"]);
    drop(monitor);
    rig.pass(30 * SECOND, SECOND);
    assert_eq!(rig.said(), [""; 0], "it watches no more");
}

/// Behind the position's segment there may be three segments: what is appended fills the fourth.
#[test]
fn the_edge_by_size_moves_with_what_is_appended() {
    let rig = Rig::new();
    rig.topic("t", 1, Retention::forever().bytes(10 * SEGMENT));
    rig.append("t", 0, 1);
    assert_eq!(rig.partition("t", 0).stats().bytes, SEGMENT);
    rig.commit("billing", "t", 0, 0);
    let _monitor = rig.monitor();
    rig.node.tick();
    // One segment every 10 s: at 80 s there are 8 behind the position, so that 2 of 10 are left, which is within a quarter.
    for records in 1..=8 {
        rig.pass(9 * SECOND, SECOND);
        rig.append("t", 0, 1);
        rig.pass(SECOND, SECOND);
        let lag = rig.lag("billing").unwrap().partitions.remove(0);
        let bytes_in = lag.rate_in.unwrap().bytes;
        let left = lag.left.unwrap().as_secs_f64();
        let expected = f64::from(10 - records) * metrics::number(SEGMENT) / bytes_in;
        assert!((left - expected).abs() < 1e-6, "{left} {expected}");
        assert_eq!(rig.said().len(), usize::from(records == 8), "{records}");
    }
}

#[test]
fn a_hot_partition_is_said_with_its_share() {
    let rig = Rig::new();
    rig.make("t", crate::config::TopicConfig::new().partitions(4));
    let _monitor = rig.builder().hot_key(2.0).window(10 * SECOND).start().unwrap();
    rig.node.tick();
    let mut first = None;
    for second in 1..=40 {
        rig.pass(SECOND, SECOND);
        (0..4).for_each(|number| rig.append("t", number, if number == 2 { 14 } else { 2 }));
        if first.is_none() && !rig.said.lock().is_empty() {
            first = Some(second);
        }
    }
    let said = rig.said.lock().clone();
    let [Alert::HotPartition { partition, rate, share, shares }] = &said[..] else { panic!("{said:?}") };
    assert_eq!((partition, shares.len()), (&name("t", 2), 4));
    assert!((share - 0.7).abs() < 1e-9 && (rate.records - 14.0).abs() < 1e-9, "{share} {rate:?}");
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(first.is_some_and(|first| (11..=13).contains(&first)), "after a window: {first:?}");
}

#[test]
fn without_being_asked_nothing_is_hot() {
    let rig = Rig::new();
    rig.make("t", crate::config::TopicConfig::new().partitions(4));
    let _monitor = rig.builder().window(5 * SECOND).start().unwrap();
    for _ in 0..20 {
        rig.pass(SECOND, SECOND);
        rig.append("t", 2, 20);
    }
    assert_eq!(rig.said(), [""; 0]);
}

#[test]
fn a_callback_may_use_the_log_and_one_that_panics_ends() {
    let rig = Rig::new();
    rig.topic("t", 2, age(100));
    rig.append("t", 0, 1);
    rig.append("t", 1, 1);
    rig.commit("billing", "t", 0, 0);
    rig.commit("billing", "t", 1, 0);
    let (node, clock, said) = (rig.node.clone(), rig.clock.clone(), rig.said.clone());
    let builder = rig.builder().on_alert(move |alert| {
        // Under no lock of the node's, and not within itself.
        // (The first tick removes records, and a round within this one would say so at the second.)
        for _ in 0..2 {
            clock.advance(30 * SECOND);
            node.tick();
        }
        assert!(!node.positions_of("billing").unwrap().is_empty());
        said.lock().push(alert.clone());
        panic!("once is enough");
    });
    let _monitor = builder.start().unwrap();
    rig.pass(80 * SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0"]);
}

#[test]
fn a_monitor_that_is_dropped_by_its_callback_says_no_more() {
    let rig = Rig::new();
    rig.topic("t", 2, age(100));
    for number in 0..2 {
        rig.append("t", number, 1);
        rig.commit("billing", "t", number, 0);
    }
    let slot: Arc<Mutex<Option<Monitor>>> = Arc::default();
    let (held, said) = (Arc::clone(&slot), rig.said.clone());
    let builder = rig.builder().on_alert(move |alert| {
        drop(held.lock().take());
        said.lock().push(alert.clone());
    });
    *slot.lock() = Some(builder.start().unwrap());
    rig.pass(80 * SECOND, SECOND);
    assert_eq!(rig.said(), ["near_edge t-0"]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let rig = Rig::new();
    let refused = [
        (rig.builder().interval(Duration::ZERO), "interval"),
        (rig.builder().window(MILLI), "window"),
        (rig.builder().hot_key(0.5), "hot_key"),
        (rig.builder().hot_key(f64::NAN), "hot_key"),
        (rig.builder().margin(Margin::Fraction(Ratio::new(2.0))), "margin"),
    ];
    for (builder, name) in refused {
        assert!(matches!(builder.start(), Err(Error::InvalidConfig { setting, .. }) if setting == name), "{name}");
    }
    let monitor = rig.monitor();
    rig.node.close().unwrap();
    assert!(matches!(rig.builder().start(), Err(Error::Closed)));
    drop(monitor);
}
