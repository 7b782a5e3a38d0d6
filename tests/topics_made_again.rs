//! Calls about topics that are there, or were: what they answer, and what a crash leaves of them.

use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    Acks, Clock, Durability, Error, Fault, Log, ManualClock, MemoryStorage, Offset, OperationKind, Record, Timestamp,
    TopicConfig, TopicId,
};

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Log {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let builder = Log::builder("data").storage(storage.shared()).clock(clock);
    builder.background(false).open().expect("it opens")
}

fn send(log: &Log, count: u64) {
    let producer = log.producer().acks(Acks::All).open().expect("it opens");
    for number in 0..count {
        let sent = producer.send("orders", Record::new(&number.to_string())).expect("it is taken");
        assert_eq!(sent.wait().expect("it is stored").offset, Offset(number));
    }
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

/// The log start of a deleted topic stood in the checkpoint file until the next save, five seconds later. A topic that
/// was made under the same name meanwhile was, after a crash, taken to begin there, and lost its records.
#[test]
fn a_topic_made_again_keeps_its_records_over_a_kill() {
    for durability in [Durability::Sync, Durability::Os] {
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let storage = MemoryStorage::new(1);
        let log = open(&storage, &clock);
        let config = TopicConfig::new().durability(durability);
        log.create_topic("orders", config.clone()).expect("it is made");
        send(&log, 20);
        let start = log.partition("orders", 0).expect("it is there").delete_records(Some(Offset(16)));
        assert_eq!(start.expect("they go"), Offset(16));
        clock.advance(Duration::from_secs(10));
        log.tick();

        log.delete_topic("orders").expect("it goes");
        log.create_topic("orders", config).expect("it is made again");
        send(&log, 8);
        let survivor = storage.kill();
        drop(log);
        let log = open(&survivor, &clock);
        let partition = log.partition("orders", 0).expect("it is there");
        assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(8)), "{durability:?}");
    }
}

/// A topic whose removal a crash had cut short was taken for one that somebody had copied in: the log did not open any
/// more, or had the topic again.
#[test]
fn a_removal_that_was_cut_short_is_gone_on_with() {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let operations = |cut: Option<u64>| {
        let storage = MemoryStorage::new(1);
        let log = open(&storage, &clock);
        log.create_topic("orders", TopicConfig::new().partitions(2)).expect("it is made");
        send(&log, 1);
        let before = storage.operations();
        if let Some(cut) = cut {
            storage.crash_at(before + cut);
        }
        let deleted = log.delete_topic("orders");
        (storage, deleted.is_ok(), before)
    };
    let (whole, _, before) = operations(None);
    let mut removed = 0;
    for cut in 0..whole.operations() - before {
        for seed in 0..4 {
            let survivor = operations(Some(cut)).0.crash(seed);
            let log = open(&survivor, &clock);
            let there = log.describe_topic("orders");
            assert!(there.as_ref().is_ok_and(|topic| !topic.adopted) || log.topics().is_empty(), "{cut}: {there:?}");
            let left = survivor.paths().iter().any(|path| path.starts_with("data/orders-0"));
            assert_eq!(left, there.is_ok(), "cut at operation {cut} (seed {seed})");
            removed += u64::from(there.is_err());
        }
    }
    assert!(removed > 0);
}

/// A directory that a killed process had removed was back after a loss of power: that it was gone was taken for durable,
/// and the log did not open any more once there was another topic of its name.
#[test]
fn a_removal_by_a_killed_process_is_made_durable() {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let config = || TopicConfig::new().partitions(2);
    for cut in 0..120 {
        for seed in 0..8 {
            let storage = MemoryStorage::new(1);
            let log = open(&storage, &clock);
            log.create_topic("orders", config()).expect("it is made");
            storage.fail_from(storage.operations() + cut, Fault::Io);
            let _ = log.delete_topic("orders");
            let next = storage.kill();
            drop(log);
            let log = open(&next, &clock);
            let _ = log.delete_topic("orders");
            next.crash_at(next.operations() + cut % 40);
            let _ = log.create_topic("orders", config());
            drop(open(&next.crash(seed), &clock));
        }
    }
}

/// The coordinators forgot the positions in a deleted topic when they were told so, by the next tick or by whoever asked
/// them next. A topic that was made under the same name before had them after a crash: what lay below was never read.
#[test]
fn a_topic_made_again_has_no_positions_of_the_one_before() {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let storage = MemoryStorage::new(1);
    let log = open(&storage, &clock);
    let config = TopicConfig::new().durability(Durability::Sync);
    log.create_topic("orders", config.clone()).expect("it is made");
    send(&log, 8);
    let mut consumer = log.consumer("billing").assign([("orders", 0)]).open().expect("it opens");
    consumer.commit_offsets([(("orders", 0), Offset(5))]).expect("it is stored");
    log.delete_topic("orders").expect("it goes");
    log.create_topic("orders", config).expect("it is made again");
    send(&log, 8);
    let survivor = storage.kill();
    drop(log);

    let log = open(&survivor, &clock);
    let mut consumer = log.consumer("billing").assign([("orders", 0)]).open().expect("it opens");
    assert!(consumer.committed([("orders", 0)]).expect("it is known").is_empty());
    assert_eq!(consumer.try_poll().expect("it reads").records().count(), 8);
}

/// Nobody has a position in a topic that is not there, which the one that comes would have.
#[test]
fn positions_in_a_topic_that_is_not_there_are_not_committed() {
    let log = open(&MemoryStorage::new(1), &Arc::new(ManualClock::at(Timestamp(0))));
    log.create_topic("bills", TopicConfig::new()).expect("it is made");
    let mut consumer = log.consumer("billing").assign([("bills", 0)]).open().expect("it opens");
    let refused = consumer.commit_offsets([(("orders", 0), Offset(5))]);
    assert!(matches!(refused, Err(Error::UnknownTopic { name }) if name == "orders"));
    log.create_topic("orders", TopicConfig::new()).expect("it is made");
    assert!(consumer.committed([("orders", 0)]).expect("it is known").is_empty());
}

/// A log whose topic "orders", with a position in it, was deleted half-way: the catalogue has it, and could not sync it.
fn deleted_half_way() -> (MemoryStorage, Arc<ManualClock>, Log, TopicId) {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let storage = MemoryStorage::new(1);
    let log = open(&storage, &clock);
    let id = log.create_topic("orders", TopicConfig::new()).expect("it is made");
    let mut consumer = log.consumer("billing").assign([("orders", 0)]).open().expect("it opens");
    consumer.commit_offsets([(("orders", 0), Offset(5))]).expect("it is stored");
    storage.fail_when(|operation| {
        let is_catalogue = operation.path.to_string_lossy().contains("__taffrail_metadata");
        (is_catalogue && operation.kind == OperationKind::Sync).then_some(Fault::SyncFails)
    });
    assert!(log.delete_topic("orders").is_err(), "its sync fails");
    storage.clear_faults();
    (storage, clock, log, id)
}

/// Whether the topic "orders" that is not the one of `id` is there; it has no positions then.
fn has_another_without_positions(log: &Log, id: TopicId) -> bool {
    let is_another = log.describe_topic("orders").is_ok_and(|described| described.id != id);
    if is_another {
        let consumer = log.consumer("billing").assign([("orders", 0)]).open().expect("it opens");
        assert!(consumer.committed([("orders", 0)]).expect("it is known").is_empty(), "a position is inherited");
    }
    is_another
}

/// A deletion that had failed half-way came to light with the creation of the next topic of that name, which had the
/// positions of the one before after a restart, wherever that creation was cut short.
#[test]
fn a_deletion_that_comes_to_light_late_takes_its_positions_with_it() {
    let mut made = 0;
    for number in 0.. {
        let (storage, clock, log, id) = deleted_half_way();
        storage.crash_at(storage.operations() + number);
        let outcome = log.create_topic("orders", TopicConfig::new());
        let is_over = !storage.has_lost_power();
        let survivor = if is_over { storage.kill() } else { storage.crash(number) };
        drop(log);
        let is_made = has_another_without_positions(&open(&survivor, &clock), id);
        assert!(is_made || outcome.is_err());
        made += u32::from(is_made);
        if is_over {
            break;
        }
    }
    assert!(made > 3, "{made}");
}

/// The same where one thing fails at that creation, and it is tried again.
#[test]
fn a_creation_that_fails_where_a_deletion_came_to_light_inherits_nothing() {
    for fault in [Fault::SyncFails, Fault::NoSpace, Fault::Io] {
        let mut failed = 0;
        for number in 0.. {
            let (storage, clock, log, id) = deleted_half_way();
            let at = storage.operations() + number;
            storage.fail_at(at, fault);
            let is_over = log.create_topic("orders", TopicConfig::new()).is_ok();
            failed += u32::from(!is_over);
            if is_over && storage.operations() <= at {
                break;
            }
            storage.clear_faults();
            let again = log.create_topic("orders", TopicConfig::new());
            assert!(matches!(again, Ok(_) | Err(Error::TopicExists { .. })), "{again:?}");
            assert!(has_another_without_positions(&log, id));
            let survivor = storage.kill();
            drop(log);
            assert!(has_another_without_positions(&open(&survivor, &clock), id));
        }
        assert!(failed > 3, "{failed}");
    }
}
