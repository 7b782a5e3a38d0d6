//! Transactions through a log: all of one become visible or none, whoever fails and whenever.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    Clock, Durability, Error, ErrorKind, Fault, Isolation, Log, ManualClock, Marker, MemoryStorage, OperationKind,
    Outcome, ProducerEpoch, ProducerId, Record, Timestamp, TopicConfig, Transaction, TransactionVersion,
    TransactionalProducer,
};

struct House {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    log: Log,
}

impl House {
    fn new(durability: Durability) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let house = Self::open(MemoryStorage::new(1), clock).expect("a new log opens");
        for topic in ["orders", "invoices"] {
            house.log.create_topic(topic, TopicConfig::new().partitions(2).durability(durability)).expect("it is new");
        }
        house
    }

    fn open(storage: MemoryStorage, clock: Arc<ManualClock>) -> taffrail::Result<Self> {
        let builder = Log::builder("/log").storage(storage.shared()).clock(Arc::clone(&clock) as _);
        let log = builder.background(false).seed(1).open()?;
        Ok(Self { storage, clock, log })
    }

    /// The same disk, after its power was gone.
    fn crashed(self, seed: u64) -> Self {
        Self::open(self.storage.crash(seed), self.clock).expect("it is recovered")
    }

    fn producer(&self) -> TransactionalProducer {
        self.log.transactional_producer("billing").open().expect("it opens")
    }

    /// All values that readers see, of all partitions of a topic.
    fn values_as(&self, topic: &str, isolation: Isolation) -> BTreeSet<String> {
        let mut reader = self.log.reader().topics([topic]).isolation(isolation).open().expect("it opens");
        let mut values = BTreeSet::new();
        loop {
            let polled = reader.try_poll().expect("it reads");
            if polled.is_empty() {
                return values;
            }
            values.extend(polled.records().filter_map(|record| record.value_str().map(str::to_owned)));
        }
    }

    fn values(&self, topic: &str) -> BTreeSet<String> {
        self.values_as(topic, Isolation::Committed)
    }

    fn tick_for(&self, time: Duration) {
        for _ in 0..20 {
            self.clock.advance(time / 20);
            self.log.tick();
        }
    }
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn what_is_committed_is_seen_and_what_is_aborted_never_is() {
    for durability in [Durability::Os, Durability::Sync] {
        let house = House::new(durability);
        let mut producer = house.producer();
        let first = producer.begin().expect("nothing is open");
        first.send("orders", Record::new("a").partition(0)).expect("it takes it");
        first.send("invoices", Record::new("b").partition(1)).expect("it takes it").wait().expect("it is stored");
        assert!(house.values("invoices").is_empty(), "it is not decided");
        first.commit().expect("it commits");
        for end in ["abort", "drop"] {
            let transaction = producer.begin().expect("nothing is open");
            let stored = transaction.send("orders", Record::new(end).partition(0)).expect("it takes it");
            stored.wait().expect("it is stored");
            let open = transaction.send("orders", Record::new("open").partition(1)).expect("it takes it");
            if end == "abort" {
                transaction.abort().expect("it aborts");
            } else {
                drop(transaction);
            }
            assert!(matches!(open.wait(), Err(Error::TransactionAborted)));
        }
        let last = producer.begin().expect("nothing is open");
        last.send("orders", Record::new("z").partition(0)).expect("it takes it");
        last.commit().expect("it commits");
        house.tick_for(Duration::from_millis(100));
        assert_eq!((house.values("orders"), house.values("invoices")), (set(&["a", "z"]), set(&["b"])));
        assert_eq!(house.values_as("orders", Isolation::Uncommitted), set(&["a", "abort", "drop", "z"]));
        let marked = house.log.partition("orders", 0).expect("it is there");
        assert_eq!(marked.last_stable(), marked.end(), "everything is decided");
    }
}

#[test]
fn an_empty_transaction_costs_nothing() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let before = (producer.producer_id(), producer.epoch());
    producer.begin().expect("nothing is open").commit().expect("nothing is to be done");
    producer.begin().expect("nothing is open").abort().expect("nothing is to be done");
    assert_eq!((producer.producer_id(), producer.epoch()), before);
    assert!(house.storage.paths().iter().all(|path| !path.ends_with("orders-0/00000000000000000000.txnindex")));
}

#[test]
fn a_later_instance_fences_the_earlier_one() {
    let house = House::new(Durability::Os);
    let mut old = house.producer();
    let open = old.begin().expect("nothing is open");
    store(&open, "orders", "old");
    let mut new = house.producer();
    let late = open.send("orders", Record::new("late").partition(0)).expect("it takes it").wait();
    assert!(matches!(late, Err(Error::ProducerFenced { .. })), "{late:?}");
    let refused = open.commit();
    let Err(Error::ProducerFenced { epoch, current, .. }) = refused else { panic!("{refused:?}") };
    assert!(current > epoch);
    assert!(matches!(old.begin(), Err(Error::ProducerFenced { .. })), "for good");
    let transaction = new.begin().expect("it has the id");
    transaction.send("orders", Record::new("new").partition(0)).expect("it takes it");
    transaction.commit().expect("it commits");
    assert_eq!(house.values("orders"), set(&["new"]));
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_the_next_one_goes_on() {
    let house = House::new(Durability::Sync);
    let mut producer = house.producer();
    for is_known_to_the_partition in [false, true] {
        let slow = producer.begin().expect("nothing is open");
        store(&slow, "orders", "slow");
        house.tick_for(Duration::from_secs(59));
        store(&slow, "orders", "still");
        house.tick_for(Duration::from_secs(2));
        if is_known_to_the_partition {
            let late = slow.send("orders", Record::new("late").partition(0)).expect("it takes it").wait();
            assert!(late.is_err());
        }
        let refused = slow.commit();
        assert!(matches!(refused, Err(Error::TransactionTimedOut { ref id, .. }) if id == "billing"), "{refused:?}");
        commit_one(&mut producer, "next");
    }
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), set(&["next"]));
}

#[test]
fn after_a_failed_send_only_an_abort_is_left() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "a");
    assert!(matches!(transaction.send("none", Record::new("b")), Err(Error::UnknownTopic { .. })));
    assert!(matches!(transaction.send("orders", Record::new("c")), Err(Error::TransactionFailed { .. })));
    let refused = transaction.commit();
    let Err(Error::TransactionFailed { cause }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*cause, Error::UnknownTopic { .. }));
    commit_one(&mut producer, "d");
    assert_eq!(house.values("orders"), set(&["d"]));
}

#[test]
fn a_batch_that_the_disk_refused_is_a_failed_send() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    let fails = |path: &Path| path.to_string_lossy().contains("orders-0");
    house.storage.fail_when(move |operation| {
        (operation.kind == OperationKind::Write && fails(&operation.path)).then_some(Fault::NoSpace)
    });
    transaction.send("orders", Record::new("a").partition(0)).expect("it is in its batch");
    let refused = transaction.commit();
    assert!(matches!(refused, Err(Error::TransactionFailed { .. })), "{refused:?}");
    house.storage.clear_faults();
    commit_one(&mut producer, "b");
    house.tick_for(Duration::from_secs(1));
    assert_eq!(house.values("orders"), set(&["b"]));
}

#[test]
fn a_topic_that_is_deleted_does_not_block_the_end() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    for topic in ["orders", "invoices"] {
        store(&transaction, topic, "a");
    }
    house.log.delete_topic("invoices").expect("it is there");
    transaction.commit().expect("it commits");
    commit_one(&mut producer, "b");
    assert_eq!(house.values("orders"), set(&["a", "b"]));
}

#[test]
fn a_fenced_partition_gets_its_marker_once_it_is_reopened() {
    let house = House::new(Durability::Sync);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    for topic in ["orders", "invoices"] {
        store(&transaction, topic, "a");
    }
    let other = house.log.partition("invoices", 0).expect("it is there");
    house.storage.fail_when(|operation| {
        let is_it = operation.path.to_string_lossy().contains("invoices-0");
        (is_it && operation.kind == OperationKind::Sync).then_some(Fault::Io)
    });
    let mut batch = taffrail::BatchBuilder::new();
    batch.push(&Record::new("plain")).expect("it is small");
    other.append(&mut batch).and_then(taffrail::Appended::wait).expect_err("it is not synced");
    house.storage.clear_faults();
    transaction.commit().expect("it is decided");
    house.tick_for(Duration::from_secs(1));
    assert_eq!((house.values("orders"), house.values("invoices")), (set(&["a"]), set(&[])));
    let next = producer.begin().expect("nothing is open");
    let refused = next.send("orders", Record::new("b").partition(0)).expect("it takes it").wait();
    assert!(matches!(refused, Err(Error::ConcurrentTransactions)), "the one before has not ended: {refused:?}");
    assert_eq!(Error::ConcurrentTransactions.kind(), ErrorKind::Retry);
    next.abort().expect("nothing was begun");
    house.log.reopen("invoices", 0).expect("the disk is well");
    house.tick_for(Duration::from_secs(1));
    assert!(house.values("invoices").contains("a"));
    commit_one(&mut producer, "b");
    house.tick_for(Duration::from_secs(1));
    assert_eq!(house.values("orders"), set(&["a", "b"]));
}

#[test]
fn what_was_decided_is_ended_by_the_next_open_without_anybody_asking() {
    let house = House::new(Durability::Sync);
    let mut producer = house.producer();
    for value in ["a", "b", "c"] {
        commit_one(&mut producer, value);
    }
    // The marker of the last one is not synced: the crash may take it.
    drop(producer);
    let house = house.crashed(3);
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), set(&["a", "b", "c"]));
}

#[test]
fn what_was_open_at_a_crash_is_aborted_when_its_time_is_up() {
    let house = House::new(Durability::Sync);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "a");
    std::mem::forget(transaction);
    house.clock.advance(Duration::from_secs(30));
    let house = house.crashed(5);
    let partition = house.log.partition("orders", 0).expect("it is there");
    house.tick_for(Duration::from_secs(29));
    assert!(partition.last_stable() < partition.end());
    house.tick_for(Duration::from_secs(2));
    house.tick_for(Duration::from_secs(2));
    assert_eq!(partition.last_stable(), partition.end());
    assert_eq!((house.values("orders"), partition.end().0), (set(&[]), 2));
}

#[test]
fn the_topic_of_the_coordinators_is_the_logs_own() {
    let house = House::new(Durability::Os);
    assert!(house.log.internal_topics().is_empty());
    let _producer = house.producer();
    let own = "__transaction_state";
    assert_eq!(
        (house.log.topics(), house.log.internal_topics()),
        (vec!["invoices".into(), "orders".into()], vec![own.to_owned()])
    );
    assert_eq!(house.log.describe_topic(own).expect("it is there").partitions.len(), 50);
    assert!(matches!(house.log.delete_topic(own), Err(Error::InvalidName { .. })));
    assert!(matches!(house.log.add_partitions(own, 60), Err(Error::InvalidName { .. })));
    let producer = house.log.producer().open().expect("it opens");
    assert!(matches!(producer.send(own, Record::new("a").key("b")), Err(Error::InvalidName { .. })));
    let config = house.log.describe_topic(own).expect("it is there").config;
    house.log.set_topic_config(own, config.durability(Durability::Os)).expect("it may be");
}

#[test]
fn a_disk_that_fails_under_the_coordinator_fails_what_is_pending_and_no_more() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "a");
    house.storage.fail_when(|operation| {
        let is_it = operation.path.to_string_lossy().contains("__transaction_state");
        (is_it && operation.kind == OperationKind::Write).then_some(Fault::NoSpace)
    });
    transaction.commit().expect_err("it is not decided");
    producer.begin().expect_err("nor is it now");
    house.storage.clear_faults();
    let next = producer.begin().expect("the end that was asked for comes first");
    next.send("orders", Record::new("b").partition(0)).expect("it takes it");
    next.commit().expect("it commits");
    assert_eq!(house.values("orders"), set(&["a", "b"]));
}

#[test]
fn readers_by_time_stop_at_what_is_not_decided() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let begun = house.clock.wall();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "a");
    let partition = house.log.partition("orders", 0).expect("it is there");
    assert_eq!(partition.find_timestamp(begun).expect("it reads"), None);
    let mut reader = house.log.reader().partitions([("orders", 0)]).open().expect("it opens");
    reader.seek_to_time("orders", begun).expect("it seeks");
    assert_eq!(reader.position("orders", 0).expect("it is read").offset.0, 0);
    transaction.commit().expect("it commits");
    assert_eq!(partition.find_timestamp(begun).expect("it reads").map(|found| found.offset.0), Some(0));
    reader.seek_to_time("orders", begun).expect("it seeks");
    assert_eq!(reader.try_poll().expect("it reads").records().count(), 1);
}

/// An instance that was taken over, or whose transaction took too long, and its log.
fn late(house: &House, producer: &mut TransactionalProducer, is_taken_over: bool, late: impl FnOnce(&Transaction<'_>)) {
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "x");
    let other = is_taken_over.then(|| house.producer());
    if other.is_none() {
        house.tick_for(Duration::from_secs(61));
        house.tick_for(Duration::from_secs(1));
    }
    late(&transaction);
    let refused = transaction.commit();
    let is_told = match &refused {
        Err(Error::ProducerFenced { .. }) => is_taken_over,
        Err(Error::TransactionTimedOut { .. }) => !is_taken_over,
        _ => false,
    };
    assert!(is_told, "{refused:?}");
    let mut next = other;
    let next = next.as_mut().unwrap_or(producer).begin().expect("who has the id goes on");
    next.send("orders", Record::new("next").partition(0)).expect("it takes it");
    next.commit().expect("it commits");
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), set(&["next"]));
}

/// A topic that is deleted and made again under its name is another one. A late instance counted it as entered, wrote to
/// it, and readers of committed records waited there, until a later transaction committed the record.
#[test]
fn a_late_instance_writes_nothing_to_a_topic_that_was_made_again() {
    for is_taken_over in [false, true] {
        let house = House::new(Durability::Sync);
        let mut producer = house.producer();
        late(&house, &mut producer, is_taken_over, |transaction| {
            house.log.delete_topic("orders").expect("it is there");
            let config = TopicConfig::new().partitions(2).durability(Durability::Sync);
            house.log.create_topic("orders", config).expect("its name is free");
            let sent = transaction.send("orders", Record::new("y").partition(0)).and_then(taffrail::Delivery::wait);
            assert!(sent.is_err(), "{sent:?}");
            assert_eq!(house.log.partition("orders", 0).expect("it is there").end().0, 0);
        });
    }
}

/// A partition forgets a producer in time. A late instance that nobody there knew any more opened a transaction anew.
#[test]
fn a_late_instance_writes_nothing_where_it_has_been_forgotten() {
    for is_taken_over in [false, true] {
        let house = House::new(Durability::Os);
        let mut producer = house.producer();
        late(&house, &mut producer, is_taken_over, |transaction| {
            for _ in 0..160 {
                house.clock.advance(Duration::from_secs(600));
                house.log.tick();
            }
            let partition = house.log.partition("orders", 0).expect("it is there");
            let end = partition.end();
            let sent = transaction.send("orders", Record::new("y").partition(0)).and_then(taffrail::Delivery::wait);
            assert!(sent.is_err(), "{sent:?}");
            assert_eq!((partition.end(), partition.last_stable()), (end, end));
        });
    }
}

/// Records that were taken back by hand while their transaction was open: what is left is no whole transaction.
#[test]
fn a_transaction_whose_records_were_cut_away_cannot_be_committed() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "a");
    let partition = house.log.partition("orders", 0).expect("it is there");
    partition.truncate_from(taffrail::Offset(0), taffrail::Force::Yes).expect("it is forced");
    let sent = transaction.send("orders", Record::new("b").partition(0)).expect("it takes it").wait();
    assert!(matches!(sent, Err(Error::Superseded { .. })), "{sent:?}");
    assert!(matches!(transaction.commit(), Err(Error::TransactionFailed { .. })));
    assert!(house.values("orders").is_empty());
}

/// Where the power goes, a partition that is not synced may keep the records of a transaction and lose its marker, while
/// its coordinator has noted that all is done. Readers waited there, and the next commit showed what had been aborted.
#[test]
fn what_a_loss_of_power_leaves_open_is_ended_as_it_was_decided() {
    for seed in 0..40 {
        let commits = seed % 2 == 0;
        let house = House::new(Durability::Os);
        let mut producer = house.producer();
        let transaction = producer.begin().expect("nothing is open");
        store(&transaction, "orders", "old");
        house.log.partition("orders", 0).expect("it is there").sync().expect("the disk is well");
        let ended = if commits { transaction.commit() } else { transaction.abort() };
        ended.expect("it is decided");
        house.tick_for(Duration::from_millis(100));
        drop(producer);
        let house = house.crashed(seed);
        house.tick_for(Duration::from_millis(100));
        let partition = house.log.partition("orders", 0).expect("it is there");
        assert_eq!(partition.last_stable(), partition.end(), "seed {seed}: it hangs");
        let mut values = if commits { set(&["old"]) } else { set(&[]) };
        assert_eq!(house.values("orders"), values, "seed {seed}");
        let mut producer = house.producer();
        commit_one(&mut producer, "new");
        values.insert("new".to_owned());
        assert_eq!(house.values("orders"), values, "seed {seed}");
    }
}

/// As above, and the transaction behind it was decided, and its records are lost: its marker commits nothing else.
#[test]
fn a_marker_commits_no_transaction_but_its_own() {
    for seed in 0..40 {
        let house = House::new(Durability::Os);
        let mut producer = house.producer();
        for end in ["aborted", "committed"] {
            let transaction = producer.begin().expect("nothing is open");
            store(&transaction, "orders", end);
            if end == "aborted" {
                house.log.partition("orders", 0).expect("it is there").sync().expect("the disk is well");
                transaction.abort().expect("it is decided");
            } else {
                transaction.commit().expect("it is decided");
            }
        }
        drop(producer);
        let house = house.crashed(seed);
        house.tick_for(Duration::from_millis(100));
        assert!(!house.values("orders").contains("aborted"), "seed {seed}");
        let partition = house.log.partition("orders", 0).expect("it is there");
        assert_eq!(partition.last_stable(), partition.end(), "seed {seed}: it hangs");
    }
}

/// What a host's own coordinator has written, or the one of the log that a partition was copied from.
fn foreign_marker(house: &House, id: i64, epoch: i16) {
    let marker = Marker {
        outcome: Outcome::Committed,
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: 12,
        timestamp: house.clock.wall(),
    };
    let partition = house.log.partition("orders", 0).expect("it is there");
    partition.append_marker(&marker, TransactionVersion::V1).expect("it takes it").wait().expect("it is stored");
}

/// Sends a record of a transaction to partition 0 and waits until it is there.
fn store(transaction: &Transaction<'_>, topic: &str, value: &str) {
    let sent = transaction.send(topic, Record::new(value).partition(0)).expect("it takes it");
    sent.wait().expect("it is stored");
}

fn commit_one(producer: &mut TransactionalProducer, value: &str) {
    let transaction = producer.begin().expect("nothing is open");
    transaction.send("orders", Record::new(value).partition(0)).expect("it takes it");
    transaction.commit().expect("it commits");
}

/// A marker that was refused as that of an earlier coordinator counted as needless: the commit was answered, and its
/// records were never seen.
#[test]
fn a_partition_that_knows_a_later_coordinator_gets_its_markers_all_the_same() {
    let house = House::new(Durability::Os);
    let mut producer = house.producer();
    foreign_marker(&house, producer.producer_id().0, producer.epoch().0);
    commit_one(&mut producer, "a");
    assert_eq!(house.values("orders"), set(&["a"]));
}

#[test]
fn producer_ids_that_partitions_have_from_elsewhere_are_not_given_out() {
    let house = House::new(Durability::Sync);
    foreign_marker(&house, 0, 5);
    let mut producer = house.producer();
    assert_eq!(producer.producer_id(), ProducerId(1));
    commit_one(&mut producer, "a");
    foreign_marker(&house, 4321, 5);
    foreign_marker(&house, i64::MAX, 5);
    drop(producer);
    let house = house.crashed(1);
    let mut producer = house.log.transactional_producer("other").open().expect("it opens");
    assert_eq!(producer.producer_id(), ProducerId(4322));
    commit_one(&mut producer, "b");
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), set(&["a", "b"]));
}

/// A transaction that is open in a partition that was copied from another log is that log's, until somebody says how the
/// topic is to be kept.
#[test]
fn an_open_transaction_of_a_topic_that_was_found_is_left_alone_until_it_is_configured() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let open = |path: &Path| Log::builder(path).background(false).open().expect("it opens");
    {
        let log = open(&from);
        log.create_topic("orders", TopicConfig::new()).expect("it is new");
        let mut producer = log.transactional_producer("theirs").open().expect("it opens");
        let transaction = producer.begin().expect("nothing is open");
        transaction.send("orders", Record::new("a")).expect("it takes it").wait().expect("it is stored");
        std::mem::forget(transaction);
        log.close().expect("it closes");
        let log = open(&to);
        drop(log.transactional_producer("ours").open().expect("it opens"));
        log.close().expect("it closes");
    }
    std::fs::create_dir(to.join("orders-0")).expect("its name is free");
    for file in std::fs::read_dir(from.join("orders-0")).expect("it is there") {
        let file = file.expect("it is listed");
        std::fs::copy(file.path(), to.join("orders-0").join(file.file_name())).expect("there is room");
    }
    let is_open = |log: &Log| {
        let partition = log.partition("orders", 0).expect("it is there");
        partition.sync().expect("the disk is well");
        partition.last_stable() < partition.end()
    };
    let log = open(&to);
    assert!(is_open(&log));
    log.set_topic_config("orders", TopicConfig::new()).expect("it may be");
    log.close().expect("it closes");
    let log = open(&to);
    assert!(!is_open(&log));
    log.close().expect("it closes");
}

/// The owner of a transaction that took too long was told, again and again, that it had ended the other way.
#[test]
fn who_took_too_long_goes_on_also_where_the_coordinator_was_read_anew() {
    let house = House::new(Durability::Sync);
    let mut producer = house.producer();
    let transaction = producer.begin().expect("nothing is open");
    store(&transaction, "orders", "slow");
    house.tick_for(Duration::from_secs(61));
    house.tick_for(Duration::from_secs(1));
    house.storage.fail_when(|operation| {
        let is_it = operation.path.to_string_lossy().contains("__transaction_state");
        (is_it && operation.kind == OperationKind::Write).then_some(Fault::NoSpace)
    });
    house.log.transactional_producer("billing").open().expect_err("the disk is full");
    house.storage.clear_faults();
    let refused = transaction.commit();
    assert!(matches!(refused, Err(Error::TransactionAborted)), "{refused:?}");
    commit_one(&mut producer, "next");
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), set(&["next"]));
}

/// Of each id the last record stays, and that is all that a coordinator needs: who has the id, with which epoch, and what
/// was decided and has not ended.
#[test]
fn what_coordinators_wrote_may_be_compacted() {
    let own = "__transaction_state";
    let house = House::new(Durability::Sync);
    let ids: Vec<String> = (0..12).map(|number| format!("id-{number}")).collect();
    let open = |house: &House, id: &String| house.log.transactional_producer(id).open().expect("it opens");
    let mut producers: Vec<_> = ids.iter().map(|id| open(&house, id)).collect();
    let mut expected = BTreeSet::new();
    for round in 0..10 {
        for (id, producer) in ids.iter().zip(&mut producers) {
            let value = format!("{id} {round}");
            commit_one(producer, &value);
            expected.insert(value);
        }
    }
    // Decided, and its marker is not written before the log is opened again.
    let other = house.log.partition("invoices", 0).expect("it is there");
    let prepared = producers[0].begin().expect("nothing is open");
    prepared.send("invoices", Record::new("late").partition(0)).expect("it takes it").wait().expect("it is stored");
    house.storage.fail_when(|operation| {
        let is_it = operation.path.to_string_lossy().contains("invoices-0");
        (is_it && operation.kind == OperationKind::Sync).then_some(Fault::Io)
    });
    let mut batch = taffrail::BatchBuilder::new();
    batch.push(&Record::new("plain")).expect("it is small");
    other.append(&mut batch).and_then(taffrail::Appended::wait).expect_err("it is not synced");
    house.storage.clear_faults();
    prepared.commit().expect("it is decided");
    let mut dropped = 0;
    for number in 0..50 {
        house.log.partition(own, number).expect("it is there").roll().expect("rolled");
        dropped += house.log.compact(own, number).expect("compacted").records_dropped;
    }
    assert!(dropped > 300, "{dropped} records went");
    let identities: Vec<_> = producers.iter().map(|producer| (producer.producer_id(), producer.epoch())).collect();
    drop(producers);
    let house = house.crashed(7);
    house.tick_for(Duration::from_secs(1));
    assert!(house.values("invoices").contains("late"), "what was prepared is ended");
    for (id, before) in ids.iter().zip(identities) {
        let mut producer = open(&house, id);
        let now = (producer.producer_id(), producer.epoch());
        assert!(now.0 == before.0 && now.1 > before.1, "{id}: {before:?}, then {now:?}");
        commit_one(&mut producer, id);
        expected.insert(id.clone());
    }
    house.tick_for(Duration::from_millis(100));
    assert_eq!(house.values("orders"), expected);
}

/// A seeded sequence of transactions over two topics, and the power goes at some operation: what was committed is there
/// in both topics, what was aborted is in none, and the last one, which nobody was told of, is in both or in none.
#[test]
fn the_loss_of_power_takes_no_half_of_a_transaction() {
    for seed in support::seeds() {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let house = House::new(Durability::Sync);
        let mut producer = house.producer();
        let begun = house.storage.operations();
        house.storage.crash_at(begun + random.below(300));
        let mut committed = BTreeSet::new();
        let mut in_doubt = None;
        for number in 0..40 {
            let value = format!("{number}");
            let commits = random.below(3) > 0;
            let Ok(transaction) = producer.begin() else { break };
            let partitions = [random.below(2), random.below(2)];
            let sent = ["orders", "invoices"].iter().zip(partitions).try_for_each(|(topic, partition)| {
                let partition = u32::try_from(partition).expect("it is small");
                transaction.send(topic, Record::new(&value).partition(partition)).map(drop)
            });
            let ended = sent.and_then(|()| if commits { transaction.commit() } else { transaction.abort() });
            match (ended, commits) {
                (Ok(()), true) => drop(committed.insert(value)),
                (Err(_), true) => in_doubt = Some(value),
                (_, false) => {}
            }
            if house.storage.has_lost_power() {
                break;
            }
            house.clock.advance(Duration::from_millis(1 + random.below(7)));
            house.log.tick();
        }
        drop(producer);
        let house = house.crashed(seed);
        let again = house.producer();
        house.tick_for(Duration::from_secs(1));
        let (orders, invoices) = (house.values("orders"), house.values("invoices"));
        assert_eq!(orders, invoices, "seed {seed}: a half of a transaction");
        let mut with_doubt = committed.clone();
        with_doubt.extend(in_doubt);
        assert!(orders == committed || orders == with_doubt, "seed {seed}: {orders:?}, {committed:?} were committed");
        for topic in ["orders", "invoices"] {
            for number in 0..2 {
                let partition = house.log.partition(topic, number).expect("it is there");
                assert_eq!(partition.last_stable(), partition.end(), "seed {seed}: {topic}-{number} hangs");
            }
        }
        drop(again);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
