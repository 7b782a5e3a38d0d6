//! Topics that change while a producer sends to them.

use super::{House, read, unsynced};
use crate::error::Error;
use crate::producer::{Choice, Murmur2, Partitioner};
use crate::record::builder::Record;

fn own(key: &str, partitions: u32) -> u32 {
    Murmur2.partition(&Choice { topic: "orders", key: Some(key.as_bytes()), value: None, partitions, sticky: 0 })
}

#[test]
fn a_topic_that_grows_keeps_its_open_batches_and_gets_more() {
    let mut house = House::unsynced(8);
    let producer = house.lingering();
    let find = |moves| {
        let mut keys = (0..100).map(|number: u32| number.to_string());
        keys.find(|key| (own(key, 8) != own(key, 10)) == moves).expect("there is one")
    };
    let [key, staying] = [true, false].map(find);
    let send = |key: &str| producer.send("orders", Record::new("a").key(key)).expect("it is sent");
    let before = [send(&key), send(&staying)];
    house.grow("orders", 10);
    let after = [send(&key), send(&staying)];
    let [before, after] = [before, after].map(|both| both.map(|delivery| delivery.wait().expect("it is stored")));
    assert_eq!([before[0].partition, after[0].partition], [own(&key, 8), own(&key, 10)]);
    assert_eq!(after[1].offset, before[1].offset.plus(1), "one batch holds both");
    let stored = producer.send("orders", Record::new("a").partition(9)).expect("it is there now").wait();
    assert_eq!(stored.expect("it is stored").partition, 9);
    assert_eq!(house.counts().iter().sum::<u64>(), 5);
}

#[test]
fn what_is_open_of_a_deleted_topic_fails() {
    let mut house = House::unsynced(1);
    let producer = house.lingering();
    let [waited, flushed] = ["a", "b"].map(|value| producer.send("orders", Record::new(value)).expect("it is sent"));
    let partition = house.partition(0).clone();
    house.delete("orders");
    let unknown = |error: &Error| matches!(error, Error::UnknownTopic { name } if name == "orders");
    assert!(waited.wait().is_err_and(|error| unknown(&error)));
    assert!(flushed.try_wait().expect("it has ended").is_err_and(|error| unknown(&error)));
    assert!(producer.send("orders", Record::new("c")).is_err_and(|error| unknown(&error)));
    assert_eq!((partition.end().0, producer.accumulator.memory_used()), (0, 0));
    assert!(producer.flush().is_err_and(|error| unknown(&error)));
    producer.flush().expect("it was told once");
}

#[test]
fn a_send_to_a_deleted_topic_ends_what_was_open_of_it() {
    let mut house = House::unsynced(1);
    let producer = house.lingering();
    let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
    house.delete("orders");
    assert!(producer.send("orders", Record::new("b")).is_err());
    assert!(matches!(delivery.try_wait(), Some(Err(Error::UnknownTopic { .. }))));
}

#[test]
fn a_topic_that_was_created_again_gets_nothing_of_the_old_one() {
    let mut house = House::unsynced(2);
    let producer = house.lingering();
    let old = producer.send("orders", Record::new("old").partition(0)).expect("it is sent");
    let partition = house.partition(0).clone();
    house.create("orders", 2, 1, &unsynced());
    let new = producer.send("orders", Record::new("new").partition(0)).expect("it is sent");
    assert!(matches!(old.try_wait(), Some(Err(Error::UnknownTopic { .. }))));
    assert_eq!(new.wait().expect("it is stored").offset.0, 0);
    assert_eq!((partition.end().0, read(house.partition(0))), (0, vec![(String::new(), "new".to_owned())]));
    let gone = producer.send("orders", Record::new("a").partition(1));
    assert!(matches!(gone, Err(Error::UnknownPartition { partitions: 1, .. })), "{gone:?}");
}

/// The partition is closed by the deletion before its sync was waited for.
#[test]
fn a_sync_that_a_deletion_overtakes_is_answered_by_the_deletion() {
    let mut house = House::new(1, &crate::config::PartitionConfig::new());
    let producer = house.producer();
    let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
    house.node.tick();
    let partition = house.partition(0).clone();
    house.storage.fill_up();
    house.storage.fail_when(|operation| {
        (operation.kind == crate::storage::OperationKind::Sync).then_some(crate::storage::Fault::Io)
    });
    assert!(partition.close().is_err(), "nothing is synced by the close");
    house.delete("orders");
    assert!(matches!(delivery.try_wait(), Some(Err(Error::UnknownTopic { .. }))));
    assert!(matches!(delivery.wait(), Err(Error::UnknownTopic { .. })));
}

/// The files of a topic that is deleted stay open as long as somebody has its partitions.
#[test]
fn a_topic_that_is_gone_is_forgotten() {
    type Look = fn(&House, &crate::producer::Producer);
    let looks: [Look; 3] = [
        |house, _| house.node.tick(),
        |_, producer| assert!(producer.flush().is_err_and(|error| matches!(error, Error::UnknownTopic { .. }))),
        |_, producer| drop(producer.send("refunds", Record::new("a")).expect("it is sent")),
    ];
    for look in looks {
        let mut house = House::unsynced(2);
        house.create("refunds", 2, 1, &unsynced());
        let producer = house.lingering();
        let stored = producer.send("orders", Record::new("a").partition(0)).expect("it is sent").wait();
        stored.expect("it is stored");
        let open = producer.send("orders", Record::new("b").partition(1)).expect("it is sent");
        drop(producer.send("refunds", Record::new("a")).expect("it is sent"));
        let partitions = [0, 1].map(|number| house.partition(number).downgrade());
        house.delete("orders");
        look(&house, &producer);
        assert!(matches!(open.try_wait(), Some(Err(Error::UnknownTopic { .. }))));
        drop(open);
        assert!(partitions.iter().all(|partition| partition.upgrade().is_none()));
        drop(producer.flush());
        assert_eq!(read(&house.topics["refunds"].partitions[0])[0].1, "a", "others are left alone");
    }
}

/// Without threads those who wait do what falls due, also what is due earlier than they were to look again.
#[test]
fn who_waits_without_threads_hears_of_what_is_due() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    let signal = crate::sync::Arc::new(crate::sync::Signal::new());
    let _listening = house.node.listen(&signal);
    assert!(!signal.wait(std::time::Duration::ZERO));
    drop(producer.send("orders", Record::new("a")).expect("it is sent"));
    assert!(signal.wait(std::time::Duration::ZERO));
}
