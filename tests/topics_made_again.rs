//! Calls about topics that are there, or were: what they answer, and what a crash leaves of them.

use std::sync::Arc;

use taffrail::{Clock, Error, Log, ManualClock, MemoryStorage, Timestamp, TopicConfig};

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Log {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let builder = Log::builder("data").storage(storage.shared()).clock(clock);
    builder.background(false).open().expect("it opens")
}

/// The catalogue answered only when it had something to write, so that a call which changes nothing never returned.
#[test]
fn what_changes_nothing_is_answered() {
    let log = open(&MemoryStorage::new(1), &Arc::new(ManualClock::at(Timestamp(0))));
    let config = || TopicConfig::new().partitions(2);
    let id = log.create_topic("orders", config()).expect("it is made");
    assert!(matches!(log.create_topic("orders", config()), Err(Error::TopicExists { .. })));
    assert!(!log.ensure_topic("orders", config()).expect("it is there").created);
    assert!(matches!(log.ensure_topic("orders", TopicConfig::new()), Err(Error::PartitionCount { .. })));
    assert!(matches!(log.delete_topic("bills"), Err(Error::UnknownTopic { .. })));
    log.set_topic_config("orders", config()).expect("it is so already");
    assert_eq!(log.describe_topic("orders").expect("it is there").id, id);
}
