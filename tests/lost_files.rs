//! Files that were cut or removed behind the log's back: what is missing is said, nobody is told that the log was closed
//! well, and readers that had read it learn of it.

use taffrail::{
    BatchBuilder, Durability, Error, Log, MemoryStorage, Offset, Partition, PartitionConfig, Record, TopicConfig,
};

fn open(storage: &MemoryStorage) -> Log {
    Log::builder("data").storage(storage.shared()).background(false).open().expect("it opens")
}

fn append(partition: &Partition, value: &str) -> Offset {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value)).expect("small");
    let appended = partition.append(&mut batch).expect("appended");
    let offset = appended.offsets.start;
    appended.wait().expect("stored");
    offset
}

/// A log with six records in `t-0` and in `t-1`, and a file of it.
fn closed() -> MemoryStorage {
    let storage = MemoryStorage::new(1);
    let log = open(&storage);
    log.create_topic("t", TopicConfig::new().partitions(2)).expect("it is made");
    for number in 0..2 {
        let partition = log.partition("t", number).expect("it is there");
        (0..6).for_each(|index| assert_eq!(append(&partition, "value"), Offset(index)));
    }
    log.close().expect("it closes");
    storage
}

/// The bytes of three of the six batches.
fn half(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() / 2]
}

#[test]
fn a_log_that_was_cut_between_two_batches_says_what_is_missing() {
    let storage = closed();
    let mut log = open(&storage);
    let mut reader = log.reader().topics(["t"]).open().expect("it opens");
    while !reader.try_poll().expect("it reads").is_empty() {}
    let position = reader.position("t", 0).expect("it is read");
    log.close().expect("it closes");
    let path = "data/t-0/00000000000000000000.log";
    let bytes = storage.bytes_of(path).expect("it is there");
    storage.set_bytes(path, half(&bytes)).expect("it is there");

    log = open(&storage);
    let damaged = log.damaged();
    let [(name, recovery)] = damaged.as_slice() else { panic!("{damaged:?}") };
    assert_eq!(name.to_string(), "t-0");
    assert!(!recovery.clean && recovery.lost == Some(Offset(3)..Offset(6)), "{recovery:?}");
    let mut reader = log.reader().topics(["t"]).open().expect("it opens");
    reader.seek("t", 0, position).expect("it is read");
    assert!(matches!(reader.try_poll(), Err(Error::Truncated { end: Offset(3), .. })));
    // Its offsets are given again, and whoever had read them is still told.
    let partition = log.partition("t", 0).expect("it is there");
    (3..9).for_each(|index| assert_eq!(append(&partition, "other"), Offset(index)));
    reader.seek("t", 0, position).expect("it is read");
    let told = (0..2).any(|_| matches!(reader.try_poll(), Err(Error::Truncated { end: Offset(3), .. })));
    assert!(told, "{position:?} is not what was read");
    log.close().expect("it closes");
    assert!(open(&storage).damaged().is_empty(), "it is said once");
}

#[test]
fn a_partition_whose_files_are_gone_goes_on_behind_what_it_had() {
    for whole in [true, false] {
        let storage = closed();
        let files = storage.paths().into_iter().filter(|path| path.starts_with("data/t-1"));
        for path in files.filter(|path| whole || path.extension().is_some_and(|kind| kind == "log")) {
            storage.shared().remove(&path).expect("it is there");
        }
        if whole {
            storage.shared().remove_directory("data/t-1".as_ref()).expect("it is empty");
        }
        let log = open(&storage);
        let damaged = log.damaged();
        let [(name, recovery)] = damaged.as_slice() else { panic!("{damaged:?}") };
        assert_eq!((name.to_string().as_str(), recovery.lost.clone()), ("t-1", Some(Offset(0)..Offset(6))));
        assert!(!recovery.clean);
        let partition = log.partition("t", 1).expect("it is there");
        assert_eq!((partition.start(), partition.end()), (Offset(6), Offset(6)));
        assert_eq!(append(&partition, "other"), Offset(6));
        drop(partition);
        log.close().expect("it closes");
        let log = open(&storage);
        assert!(log.damaged().is_empty());
        assert_eq!(log.partition("t", 1).expect("it is there").end(), Offset(7));
    }
}

#[test]
fn a_partition_alone_says_so_too() {
    for durability in [Durability::Sync, Durability::Os] {
        let storage = MemoryStorage::new(1);
        let config = PartitionConfig::new().durability(durability);
        let open = || Partition::builder("wal-0").config(config.clone()).storage(storage.shared()).open();
        let partition = open().expect("it opens");
        (0..6).for_each(|index| assert_eq!(append(&partition, "value"), Offset(index)));
        partition.close().expect("it closes");
        let path = "wal-0/00000000000000000000.log";
        let bytes = storage.bytes_of(path).expect("it is there");
        storage.set_bytes(path, half(&bytes)).expect("it is there");
        let recovery = open().expect("it opens").recovery();
        assert!(!recovery.clean && recovery.lost == Some(Offset(3)..Offset(6)), "{recovery:?}");
        assert!(recovery.epoch_begun.is_some() && !recovery.is_sound());
    }
}
