//! Opening a log, and calls about topics, on a disk that fails at any operation from some point on: each is answered,
//! and once the disk is sound the log opens.

use taffrail::{Fault, Log, MemoryStorage, TopicConfig};

fn open(storage: &MemoryStorage) -> taffrail::Result<Log> {
    Log::builder("data").storage(storage.shared()).background(false).open()
}

/// A command that came after the journal had failed while the node was on its way to lead was never answered.
#[test]
fn every_call_is_answered_wherever_the_disk_begins_to_fail() {
    let whole = MemoryStorage::new(1);
    let log = open(&whole).expect("it opens");
    log.create_topic("orders", TopicConfig::new()).expect("it is made");
    let mut opened = 0;
    for first in 0..whole.operations() {
        for fault in [Fault::NoSpace, Fault::Io, Fault::SyncFails, Fault::Denied] {
            for count in [1, 3, 10, 10_000] {
                let storage = MemoryStorage::new(first);
                storage.fail_between(first..first + count, fault);
                if let Ok(log) = open(&storage) {
                    // With the disk sound again the second call is answered well.
                    let _ = log.create_topic("orders", TopicConfig::new());
                    storage.clear_faults();
                    log.ensure_topic("orders", TopicConfig::new()).expect("the disk is sound");
                    opened += 1;
                }
                storage.clear_faults();
                open(&storage.kill()).expect("the disk is sound");
            }
        }
    }
    assert!(opened > 0);
}
