//! What a log refuses: a clear error each, and nothing has changed afterwards.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use support::trees::{copy_tree, files, tree};
use taffrail::{
    Acks, BatchBuilder, Cleanup, Clock, Error, ErrorKind, Log, ManualClock, MemoryStorage, Moment, Offset, Partition,
    PartitionConfig, ReadOptions, Reader, Record, Result, Retention, StartAt, Timestamp, TimestampType, TopicConfig,
    WhenFull, Which,
};

const NOW: Timestamp = Timestamp(1_000_000);

fn open(storage: &MemoryStorage) -> Result<Log> {
    let clock = Arc::new(ManualClock::at(NOW));
    Log::builder("data").storage(storage.shared()).clock(clock).background(false).seed(3).open()
}

fn append(partition: &Partition, value: &str) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value).key("k").timestamp(NOW)).expect("small");
    partition.append(&mut batch).expect("taken").wait().expect("stored");
}

/// A log with the topic `orders`, of three partitions and one record.
fn with_orders() -> (MemoryStorage, Log) {
    let storage = MemoryStorage::new(1);
    let log = open(&storage).expect("an empty disk opens");
    log.create_topic("orders", TopicConfig::new().partitions(3)).expect("it is made");
    append(&log.partition("orders", 0).expect("it is there"), "kept");
    (storage, log)
}

/// The call is refused, and changes no byte of the disk and nothing of what there is.
fn refused<T>(storage: &MemoryStorage, log: &Log, call: impl FnOnce(&Log) -> Result<T>) -> Error {
    let picture = || (files(storage), log.topics(), format!("{:?}", log.describe_topic("orders")));
    let before = picture();
    let Err(error) = call(log) else { panic!("it is not refused") };
    assert!(picture() == before, "something was changed by what was refused: {error}");
    assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
    error
}

#[test]
fn names_that_no_topic_has() {
    let (storage, log) = with_orders();
    let endless = "n".repeat(250);
    for name in [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "ä",
        "a\0b",
        &endless,
        "__taffrail_x",
        "__taffrail_metadata",
        "__cluster_metadata",
    ] {
        for config in [TopicConfig::new(), TopicConfig::new().partitions(2)] {
            let error = refused(&storage, &log, |log| log.create_topic(name, config.clone()));
            assert!(matches!(&error, Error::InvalidName { name: named, .. } if named == name), "{name:?}: {error}");
            let error = refused(&storage, &log, |log| log.ensure_topic(name, config));
            assert!(matches!(&error, Error::InvalidName { .. }), "{name:?}: {error}");
        }
    }
    log.create_topic(&"n".repeat(249), TopicConfig::new()).expect("the longest that Kafka takes");
}

#[test]
fn names_that_are_taken_or_collide() {
    let (storage, log) = with_orders();
    let error = refused(&storage, &log, |log| log.create_topic("orders", TopicConfig::new()));
    assert!(matches!(&error, Error::TopicExists { name } if name == "orders"), "{error}");
    log.create_topic("a.b", TopicConfig::new()).expect("it is made");
    let error = refused(&storage, &log, |log| log.create_topic("a_b", TopicConfig::new()));
    assert!(
        matches!(&error, Error::TopicNameCollides { name, existing } if name == "a_b" && existing == "a.b"),
        "{error}"
    );
    log.delete_topic("a.b").expect("it goes");
    log.create_topic("a_b", TopicConfig::new()).expect("it is free now");
}

#[test]
fn numbers_of_partitions_that_cannot_be() {
    let (storage, log) = with_orders();
    for partitions in [0, 100_001, u32::MAX] {
        let config = TopicConfig::new().partitions(partitions);
        let error = refused(&storage, &log, |log| log.create_topic("other", config.clone()));
        assert!(matches!(&error, Error::InvalidConfig { setting: "partitions", .. }), "{error}");
        let error = refused(&storage, &log, |log| log.ensure_topic("other", config));
        assert!(matches!(&error, Error::InvalidConfig { setting: "partitions", .. }), "{error}");
    }
    for total in [0, 1, 2, 3] {
        let error = refused(&storage, &log, |log| log.add_partitions("orders", total));
        assert!(
            matches!(error, Error::PartitionCount { partitions: 3, requested, .. } if requested == total),
            "{error}"
        );
    }
    let error = refused(&storage, &log, |log| log.add_partitions("orders", 100_001));
    assert!(matches!(&error, Error::InvalidConfig { setting: "partitions", .. }), "{error}");
    for partitions in [1, 2, 4] {
        let config = TopicConfig::new().partitions(partitions);
        let error = refused(&storage, &log, |log| log.set_topic_config("orders", config.clone()));
        assert!(matches!(error, Error::PartitionCount { partitions: 3, .. }), "{error}");
        let error = refused(&storage, &log, |log| log.ensure_topic("orders", config));
        assert!(matches!(error, Error::PartitionCount { partitions: 3, .. }), "{error}");
    }
}

#[test]
fn settings_that_contradict_each_other() {
    let (storage, log) = with_orders();
    let of = TopicConfig::new().partitions(3);
    let contradicting = [
        ("retention", of.clone().cleanup(Cleanup::Compact).retention(Retention::forever().bytes(1))),
        (
            "timestamp_type",
            of.clone().timestamp_type(TimestampType::LogAppendTime).timestamp_after_max(Some(Duration::from_secs(1))),
        ),
        ("segment_bytes", of.clone().segment_bytes(1)),
        ("min_insync_replicas", of.clone().replication_factor(2).min_insync_replicas(3)),
        ("replication_factor", of.clone().replication_factor(0)),
        ("retention", of.retention(Retention::forever().age(Duration::from_nanos(1)))),
    ];
    for (setting, config) in contradicting {
        for call in [
            &|log: &Log, config| log.create_topic("other", config).map(drop),
            &|log: &Log, config| log.set_topic_config("orders", config),
            &|log: &Log, config| log.ensure_topic("orders", config).map(drop),
        ] as [&dyn Fn(&Log, TopicConfig) -> Result<()>; 3]
        {
            let error = refused(&storage, &log, |log| call(log, config.clone()));
            assert!(
                matches!(error, Error::InvalidConfig { setting: named, .. } if named == setting),
                "{setting}: {error}"
            );
        }
    }
}

#[test]
fn topics_and_partitions_that_are_not_there() {
    let (storage, log) = with_orders();
    log.create_topic("other", TopicConfig::new()).expect("it is made");
    let producer = log.producer().open().expect("it opens");
    let mut reader = log.reader().topics(["orders"]).open().expect("it opens");
    let unknown_topic =
        |error: Error| assert!(matches!(&error, Error::UnknownTopic { name } if name == "none"), "{error}");
    unknown_topic(refused(&storage, &log, |log| log.partition("none", 0)));
    unknown_topic(refused(&storage, &log, |log| log.describe_topic("none")));
    unknown_topic(refused(&storage, &log, |log| log.delete_topic("none")));
    unknown_topic(refused(&storage, &log, |log| log.add_partitions("none", 3)));
    unknown_topic(refused(&storage, &log, |log| log.set_topic_config("none", TopicConfig::new())));
    unknown_topic(refused(&storage, &log, |log| log.reopen("none", 0)));
    unknown_topic(refused(&storage, &log, |_| producer.send("none", Record::new("v"))));
    unknown_topic(refused(&storage, &log, |log| log.reader().topics(["orders", "none"]).open()));
    unknown_topic(refused(&storage, &log, |log| log.reader().partitions([("none", 0)]).open()));
    unknown_topic(refused(&storage, &log, |_| reader.seek("none", 0, Offset(0))));

    let unknown_partition = |error: Error| {
        let named =
            matches!(&error, Error::UnknownPartition { topic, partition: 3, partitions: 3 } if topic == "orders");
        assert!(named, "{error}");
    };
    unknown_partition(refused(&storage, &log, |log| log.partition("orders", 3)));
    unknown_partition(refused(&storage, &log, |log| log.reopen("orders", 3)));
    unknown_partition(refused(&storage, &log, |_| producer.send("orders", Record::new("v").partition(3))));
    unknown_partition(refused(&storage, &log, |log| log.reader().partitions([("orders", 3)]).open()));
    unknown_partition(refused(&storage, &log, |_| reader.seek("orders", 3, Offset(0))));
    let error = refused(&storage, &log, |_| reader.seek("other", 0, Offset(0)));
    assert!(matches!(&error, Error::NotAssigned { topic, partition: Some(0) } if topic == "other"), "{error}");
    let error = refused(&storage, &log, |log| log.reader().open());
    assert!(matches!(error, Error::InvalidConfig { setting: "topics", .. }), "{error}");
    // A seek beyond the log is answered at its turn, and moves nothing.
    reader.seek("orders", 0, Offset(77)).expect("any offset can be asked for");
    let found: Vec<_> = (0..3).map(|_| reader.try_poll()).filter_map(Result::err).collect();
    assert!(
        matches!(
            found[..],
            [Error::OffsetOutOfRange { requested: Offset(77), start: Offset(0), end: Offset(1), .. }, ..]
        ),
        "{found:?}"
    );
}

#[test]
fn records_that_are_too_large() {
    let (storage, log) = with_orders();
    log.create_topic("small", TopicConfig::new().batch_bytes_max(1_000)).expect("it is made");
    let (value, end) = (vec![b'v'; 70_000], log.partition("small", 0).expect("it is there").end());
    let producer = log.producer().memory_bytes(64 << 10).open().expect("it opens");
    let error = refused(&storage, &log, |_| producer.send("orders", Record::new(&value)));
    assert!(matches!(error, Error::RecordTooLarge { size: 70_000.., limit: 65_536 }), "{error}");
    let error = refused(&storage, &log, |_| {
        producer.send("small", Record::new(&value[..2_000])).and_then(taffrail::Delivery::wait)
    });
    assert!(matches!(error, Error::BatchTooLarge { size: 2_000.., limit: 1_000 }), "{error}");
    assert_eq!(log.partition("small", 0).expect("it is there").end(), end);
    let next = producer.send("small", Record::new("fits")).expect("taken").wait().expect("stored");
    assert_eq!(next.offset, end);
    for (setting, builder) in [
        ("batch_bytes", log.producer().batch_bytes(0)),
        ("memory_bytes", log.producer().memory_bytes(1)),
        ("batch_bytes", log.producer().batch_bytes(usize::MAX)),
    ] {
        let error = builder.open().expect_err("it cannot be");
        assert!(matches!(error, Error::InvalidConfig { setting: named, .. } if named == setting), "{error}");
    }
}

#[test]
fn a_full_memory_that_nobody_waits_for() {
    let (storage, log) = with_orders();
    let builder = log.producer().batch_bytes(1_000).memory_bytes(2_000).linger(Duration::from_secs(3600));
    let producer = builder.when_full(WhenFull::Fail).open().expect("it opens");
    let sent: Vec<_> =
        (0..2).map(|n| producer.send("orders", Record::new("v").partition(n)).expect("there is room")).collect();
    let before = files(&storage);
    let error = producer.send("orders", Record::new("v").partition(2)).expect_err("there is no room");
    assert!(matches!(error, Error::MemoryFull { limit: 2_000 }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(files(&storage) == before);
    for delivery in sent {
        delivery.wait().expect("what was taken before is stored");
    }
    producer.send("orders", Record::new("v").partition(2)).expect("there is room again").wait().expect("stored");
}

/// A clock that stands still, and holds up whoever stamps a record until it is let go.
#[derive(Debug)]
struct Gate {
    clock: ManualClock,
    is_shut: AtomicBool,
    reached: Barrier,
    opened: Barrier,
}

impl Clock for Gate {
    fn wall(&self) -> Timestamp {
        let is_slow = std::thread::current().name() == Some("slow");
        if is_slow && self.is_shut.swap(false, Ordering::SeqCst) {
            self.reached.wait();
            self.opened.wait();
        }
        self.clock.wall()
    }

    fn monotonic(&self) -> Moment {
        self.clock.monotonic()
    }
}

/// All memory is in a batch that another thread appends, and does not get done with.
#[test]
fn a_full_memory_that_does_not_become_free_in_time() {
    let gate = Arc::new(Gate {
        clock: ManualClock::at(NOW),
        is_shut: AtomicBool::new(false),
        reached: Barrier::new(2),
        opened: Barrier::new(2),
    });
    let storage = MemoryStorage::new(1);
    let log =
        Log::builder("data").storage(storage.shared()).clock(Arc::clone(&gate) as Arc<_>).open().expect("it opens");
    let stamped = TopicConfig::new().partitions(2).timestamp_type(TimestampType::LogAppendTime);
    log.create_topic("orders", stamped).expect("it is made");
    let builder =
        log.producer().acks(Acks::All).batch_bytes(1_000).memory_bytes(1_000).linger(Duration::from_secs(3600));
    let producer = builder.when_full(WhenFull::Block(Duration::from_millis(150))).open().expect("it opens");
    std::thread::scope(|scope| {
        let slow = producer.send("orders", Record::new("slow").partition(0)).expect("there is room");
        gate.is_shut.store(true, Ordering::SeqCst);
        let slow =
            std::thread::Builder::new().name("slow".to_owned()).spawn_scoped(scope, || slow.wait()).expect("started");
        gate.reached.wait();
        let before = files(&storage);
        let error = producer.send("orders", Record::new("v").partition(1)).expect_err("there is no room in time");
        assert!(matches!(error, Error::MemoryFull { limit: 1_000 }), "{error}");
        assert!(files(&storage) == before);
        gate.opened.wait();
        slow.join().expect("it ends").expect("it is stored");
    });
    producer.send("orders", Record::new("v").partition(1)).expect("there is room again").wait().expect("stored");
    log.close().expect("it closes");
}

/// What is called, and the call.
type Call<'c, T> = (&'c str, &'c dyn Fn(&T) -> Result<()>);
type CallOfReader<'c> = (&'c str, &'c dyn Fn(&mut Reader) -> Result<()>);

/// Every call of every handle answers that the log is closed, and changes nothing.
#[test]
fn handles_of_a_closed_log() {
    let (storage, log) = with_orders();
    let partition = log.partition("orders", 0).expect("it is there");
    let producer = log.producer().linger(Duration::from_secs(3600)).open().expect("it opens");
    let mut reader = log.reader().topics(["orders"]).open().expect("it opens");
    let (delivery, other) = (producer.send("orders", Record::new("v").partition(1)).expect("taken"), log.clone());
    log.close().expect("it closes");
    let before = files(&storage);
    assert_eq!(delivery.try_wait().expect("the close handed it over").expect("stored").offset, Offset(0));
    assert_eq!(delivery.wait().expect("it was stored by the close").offset, Offset(0));

    let config = || TopicConfig::new().partitions(3);
    let of_log: [Call<'_, Log>; 10] = [
        ("create", &|log| log.create_topic("other", config()).map(drop)),
        ("ensure", &|log| log.ensure_topic("orders", config()).map(drop)),
        ("delete", &|log| log.delete_topic("orders")),
        ("add", &|log| log.add_partitions("orders", 4).map(drop)),
        ("configure", &|log| log.set_topic_config("orders", config())),
        ("describe", &|log| log.describe_topic("orders").map(drop)),
        ("partition", &|log| log.partition("orders", 0).map(drop)),
        ("reopen", &|log| log.reopen("orders", 0)),
        ("producer", &|log| log.producer().open().map(drop)),
        ("reader", &|log| log.reader().topics(["orders"]).open().map(drop)),
    ];
    for (what, call) in of_log {
        assert!(matches!(call(&other), Err(Error::Closed)), "{what}: {:?}", call(&other));
    }
    other.tick();
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("late")).expect("small");
    assert!(matches!(partition.append(&mut batch), Err(Error::Closed)));
    let of_partition: [Call<'_, Partition>; 9] = [
        ("read", &|it| it.read(Offset(0), ReadOptions::new()).map(drop)),
        ("try_read", &|it| it.try_read(Offset(0), ReadOptions::new()).map(drop)),
        ("sync", &Partition::sync),
        ("roll", &|it| it.roll().map(drop)),
        ("trim", &|it| it.trim_before(Offset(1)).map(drop)),
        ("reopen", &Partition::reopen),
        ("maintain", &|it| it.maintain(ManualClock::at(NOW).now()).map(drop)),
        ("find", &|it| it.find_timestamp(NOW).map(drop)),
        ("hold", &|it| it.hold(Offset(0)).map(drop)),
    ];
    for (what, call) in of_partition {
        assert!(matches!(call(&partition), Err(Error::Closed)), "{what}: {:?}", call(&partition));
    }
    let of_reader: [CallOfReader<'_>; 5] = [
        ("poll", &|it| it.poll(Duration::MAX).map(drop)),
        ("try_poll", &|it| it.try_poll().map(drop)),
        ("seek", &|it| it.seek("orders", 0, Offset(0))),
        ("seek_to_end", &|it| it.seek_to_end(Which::All)),
        ("pause", &|it| it.pause(Which::All)),
    ];
    for (what, call) in of_reader {
        assert!(matches!(call(&mut reader), Err(Error::Closed)), "{what}");
    }
    assert!(matches!(producer.send("orders", Record::new("late")), Err(Error::Closed)));
    other.close().expect("closing twice is no error");
    drop((producer, reader, partition));
    assert!(files(&storage) == before, "something was changed after the close");
}

/// A partition of a log is the log's to close and to set.
#[test]
fn what_only_the_log_does_to_a_partition() {
    let (storage, log) = with_orders();
    let partition = log.partition("orders", 0).expect("it is there");
    let error = refused(&storage, &log, |_| partition.clone().close());
    assert!(matches!(error, Error::Policy(_)), "{error}");
    let error = refused(&storage, &log, |_| partition.set_config(PartitionConfig::new()));
    assert!(matches!(error, Error::Policy(_)), "{error}");
    append(&partition, "it goes on");
}

#[test]
fn a_directory_that_does_not_belong_there() {
    let home = tempfile::tempdir().expect("a temporary directory");
    for path in [home.path().join("new"), home.path().join("used")] {
        if path.ends_with("used") {
            let log = Log::open(&path).expect("it opens");
            log.create_topic("orders", TopicConfig::new()).expect("it is made");
            log.close().expect("it closes");
        }
        for foreign in ["photos", "orders", "orders-", "orders-x", "-1", "__cluster_metadata-0"] {
            let foreign = path.join(foreign);
            std::fs::create_dir_all(&foreign).expect("created");
            std::fs::write(foreign.join("holiday.txt"), "sun").expect("written");
            let before = tree(&path);
            let error = Log::open(&path).expect_err("it is not ours");
            assert!(matches!(&error, Error::ForeignDirectory { path } if *path == foreign), "{error}");
            assert!(error.to_string().contains(&foreign.display().to_string()));
            assert_eq!(error.kind(), ErrorKind::Fix);
            assert!(tree(&path) == before, "{}: something was changed", foreign.display());
            std::fs::remove_dir_all(&foreign).expect("removed");
        }
        std::fs::create_dir_all(path.join("lost+found")).expect("created");
        std::fs::write(path.join("notes.txt"), "files do not matter").expect("written");
        Log::open(&path).expect("now it opens").close().expect("it closes");
    }
}

#[test]
fn a_file_where_the_directory_should_be() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    std::fs::write(&path, "mine").expect("written");
    for path in [path.clone(), path.join("deeper")] {
        let error = Log::open(&path).expect_err("it is a file");
        assert!(matches!(&error, Error::Io { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
        assert!(error.to_string().contains("data"), "{error}");
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mine");
    let storage = MemoryStorage::new(1);
    storage.set_bytes("data", b"mine").expect("the name is free");
    assert!(matches!(open(&storage), Err(Error::Io { .. })));
    assert_eq!(storage.bytes_of("data").as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_damaged_or_foreign_owner() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    let log = Log::open(&path).expect("it opens");
    log.create_topic("orders", TopicConfig::new()).expect("it is made");
    log.close().expect("it closes");
    let check = |text: &[u8], expected: &dyn Fn(&Error) -> bool| {
        let copy = home.path().join("copy");
        copy_tree(&path, &copy);
        std::fs::write(copy.join("meta.properties"), text).expect("written");
        let before = tree(&copy);
        let error = Log::open(&copy).expect_err("it is refused");
        assert!(expected(&error), "{error}");
        assert!(tree(&copy) == before, "something was changed: {error}");
        std::fs::remove_dir_all(&copy).expect("removed");
    };
    check(b"version=1\n", &|error| matches!(error, Error::CorruptFile { .. }));
    check(b"\xff\xfe", &|error| matches!(error, Error::CorruptFile { .. }));
    check(b"version=9\nnode.id=1\n", &|error| matches!(error, Error::UnsupportedVersion { found: 9, .. }));
}

/// The catalogue names a cluster too: a `meta.properties` of another one does not make the directory that one's.
#[test]
fn an_owner_that_the_catalogue_contradicts() {
    let (storage, log) = with_orders();
    log.close().expect("it closes");
    storage
        .set_bytes("data/meta.properties", b"version=1\nnode.id=0\ncluster.id=AAECAwQFBgcICQoLDA0ODw\n")
        .expect("replaced");
    let error = open(&storage).expect_err("who is right?");
    assert!(matches!(&error, Error::WrongCluster { .. }), "{error}");
    assert!(storage.bytes_of("data/.kafka_cleanshutdown").is_some(), "it is closed still");
}

#[test]
fn a_partition_is_opened_alone_or_in_a_log() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = Log::open(home.path()).expect("it opens");
    log.create_topic("orders", TopicConfig::new()).expect("it is made");
    let path = home.path().join("orders-0");
    let before = tree(home.path());
    let error = Partition::open(&path, PartitionConfig::new()).expect_err("the log has it");
    let own = std::process::id();
    assert!(matches!(&error, Error::Locked { owner: Some(owner), .. } if *owner == own), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
    let mut after = tree(home.path());
    after.remove(&path.join(".lock"));
    assert!(after == before, "something was changed");
    let id = log.describe_topic("orders").expect("it is there").id;
    log.close().expect("it closes");

    let alone = Partition::open(&path, PartitionConfig::new()).expect("now it opens");
    let before = tree(home.path());
    let error = Log::open(home.path()).expect_err("the partition is in use");
    assert!(matches!(&error, Error::Locked { owner: Some(_) | None, .. }), "{error}");
    assert!(tree(home.path()) == before, "something was changed");
    alone.close().expect("it closes");
    let log = Log::open(home.path()).expect("it opens");
    assert_eq!(log.describe_topic("orders").expect("it is there").id, id);
    let mut reader = log.reader().topics(["orders"]).start_at(StartAt::Earliest).open().expect("it opens");
    assert!(reader.try_poll().expect("it reads").is_empty());
}
