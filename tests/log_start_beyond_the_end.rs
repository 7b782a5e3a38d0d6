//! The checkpoint of the log start carries no checksum. One digit of it that is wrong and leads beyond the end of the log
//! once had the next open remove every record. What lies there is renamed aside instead.

use taffrail::{BatchBuilder, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record};

const CHECKPOINT: &str = "data/wal-0/log-start-offset-checkpoint";

fn open(storage: &MemoryStorage) -> Partition {
    let config = PartitionConfig::new().segment_bytes(1_500);
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).open().expect("opens")
}

fn append(partition: &Partition, count: usize) {
    for _ in 0..count {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&"v".repeat(100))).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    }
}

fn count(partition: &Partition) -> usize {
    let mut at = partition.start();
    let mut count = 0;
    while at < partition.end() {
        let fetched = partition.read(at, ReadOptions::new()).expect("sound");
        count += fetched.records().count();
        at = fetched.next_offset();
    }
    count
}

fn kept(storage: &MemoryStorage) -> Vec<String> {
    let names = storage.paths().into_iter().map(|path| path.to_string_lossy().into_owned());
    names.filter(|name| name.contains(".kept")).collect()
}

#[test]
fn a_wrong_log_start_loses_no_record() {
    for clean in [true, false] {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage);
        append(&partition, 50);
        let segments = partition.stats().segments;
        let storage = if clean {
            partition.close().expect("closes");
            storage
        } else {
            storage.kill()
        };
        for round in 1..=2 {
            storage.set_bytes(CHECKPOINT, format!("0\n1\nwal 0 {}\n", 900 * round).as_bytes()).expect("there");
            let partition = open(&storage);
            assert_eq!((partition.start(), partition.end()), (Offset(900 * round), Offset(900 * round)));
            let recovery = partition.recovery();
            assert_eq!(recovery.restarted_at, Some(Offset(900 * round)));
            assert!(!recovery.kept.is_empty());
            append(&partition, 1);
            partition.close().expect("closes");
            // An open, a trim and a truncation leave them.
            let partition = open(&storage);
            assert!(partition.recovery().kept.is_empty());
            partition.truncate_from(Offset(900 * round), taffrail::Force::Yes).expect("cut");
            append(&partition, 1);
            partition.close().expect("closes");
            let logs = kept(&storage).iter().filter(|name| name.contains(".log.kept")).count();
            assert_eq!(logs, segments + usize::try_from(round).expect("small") - 1);
        }
        // The way back that the documentation names: the files under their old names, the checkpoint out of the way.
        let names = kept(&storage).into_iter().filter(|name| !name.contains("000900"));
        let names: Vec<_> = names.collect();
        let back = MemoryStorage::new(2);
        for name in names {
            let bytes = storage.bytes_of(&name).expect("there");
            back.set_bytes(name.trim_end_matches(".kept"), &bytes).expect("written");
        }
        let partition = open(&back);
        assert_eq!((partition.start(), partition.end(), count(&partition)), (Offset(0), Offset(50), 50));
    }
}

/// A process that ended between the durable log start and the removal of the files, wherever that was.
#[test]
fn a_removal_that_was_begun_is_finished() {
    for to in [3, 17, 30, 49, 50] {
        for operation in 0..200 {
            let storage = MemoryStorage::new(operation);
            let partition = open(&storage);
            append(&partition, 50);
            storage.crash_at(storage.operations() + operation);
            let outcome = partition.trim_before(Offset(to));
            let after = storage.crash(operation);
            drop(partition);
            let partition = open(&after);
            let start = partition.start();
            assert!(start == Offset(to) || (outcome.is_err() && start == Offset(0)), "{start} after {outcome:?}");
            assert_eq!((partition.end(), count(&partition) as u64), (Offset(50), 50 - start.0));
            assert!(kept(&after).is_empty() && partition.recovery().kept.is_empty());
            if outcome.is_ok() {
                break;
            }
        }
    }
}
