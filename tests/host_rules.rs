//! A rule of the host's own may ask the partition whatever it likes: it was once called with the writer's lock held, and
//! a rule that asked for the figures, a hold or an epoch waited for itself for ever.

use std::sync::mpsc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Force, LeaderEpoch, MemoryStorage, Offset, Partition, PartitionConfig, Record, RemovalReason,
};

fn filled() -> Partition {
    let config = PartitionConfig::new().segment_bytes(1_500);
    let storage = MemoryStorage::new(1).shared();
    let partition = Partition::builder("data/wal-0").config(config).storage(storage).open().expect("opens");
    for _ in 0..50 {
        append(&partition);
    }
    partition
}

fn append(partition: &Partition) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(&"v".repeat(100))).expect("small");
    partition.append(&mut batch).expect("taken").wait().expect("stored");
}

#[test]
fn a_rule_may_call_the_partition() {
    let partition = filled();
    let (done, ended) = mpsc::channel();
    let clone = partition.clone();
    std::thread::spawn(move || {
        let removed = clone.remove_while(|segment| {
            let _ = (clone.leader_epoch(), clone.epoch_end(LeaderEpoch(0)));
            let held = clone.hold(segment.end_offset).expect("in the log");
            append(&clone);
            drop(held);
            clone.stats().bytes > 3_000 && segment.base_offset < Offset(20)
        });
        done.send(removed).expect("somebody listens");
    });
    let removed = ended.recv_timeout(Duration::from_secs(20)).expect("the rule waits for nobody").expect("removed");
    assert!(!removed.is_empty() && removed.iter().all(|segment| segment.reason == RemovalReason::Host), "{removed:?}");
    assert_eq!(partition.start(), removed.last().expect("some").end_offset);
}

/// What has changed while the rule was asked is not what the rule was asked about.
#[test]
fn what_the_rule_did_not_see_stays() {
    let partition = filled();
    let mut held = None;
    let removed = partition.remove_while(|segment| {
        if segment.base_offset > Offset(0) && held.is_none() {
            held = Some(partition.hold(segment.base_offset).expect("in the log"));
        }
        true
    });
    assert_eq!(removed.expect("removed").len(), 1, "a hold taken by the rule counts");
    drop(held);

    let partition = filled();
    let end = partition.end();
    let mut is_first = true;
    let removed = partition.remove_while(|_| {
        if std::mem::take(&mut is_first) {
            partition.truncate_from(Offset(3), Force::Yes).expect("cut");
            (0..10).for_each(|_| append(&partition));
        }
        true
    });
    assert!(removed.expect("nothing fails").is_empty(), "the first segment is another one now");
    assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(13)), "it ended at {end}");
}
