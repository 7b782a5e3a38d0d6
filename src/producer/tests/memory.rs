//! The bound on memory, and what is done where it is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{HOUR, House, START, batch_sizes, unsynced};
use crate::clock::{Clock as _, SystemClock};
use crate::error::Error;
use crate::node::Node;
use crate::producer::{Producer, ProducerBuilder, WhenFull};
use crate::record::builder::Record;
use crate::storage::OperationKind;
use crate::types::Compression;

/// Room for two batches.
fn small(house: &House, when_full: WhenFull) -> Producer {
    let builder = house.builder().batch_bytes(100).memory_bytes(200).linger(HOUR);
    builder.when_full(when_full).open().expect("it opens")
}

fn to(number: u32) -> Record<'static> {
    Record::new("a").partition(number)
}

#[test]
fn fail_answers_at_once_and_touches_nothing() {
    let house = House::unsynced(3);
    let waiting = small(&house, WhenFull::Block(HOUR));
    let failing = small(&house, WhenFull::Fail);
    let by_try = |record| waiting.try_send("orders", record);
    let by_setting = |record| failing.send("orders", record);
    for send in [&by_try as &dyn Fn(Record<'static>) -> _, &by_setting] {
        for number in [0, 1, 0] {
            send(to(number)).expect("there is room");
        }
        let operations = house.storage.operations();
        assert!(matches!(send(to(2)), Err(Error::MemoryFull { limit: 200 })));
        assert_eq!((house.storage.operations(), house.counts()), (operations, vec![0, 0, 0]));
        send(to(1)).expect("an open batch takes more");
    }
    failing.flush().expect("it is stored");
    by_setting(to(2)).expect("what was appended takes no memory");
}

#[test]
fn block_appends_the_oldest_batches_first() {
    let house = House::unsynced(4);
    let producer = small(&house, WhenFull::Block(Duration::ZERO));
    for number in [1, 0, 1, 2] {
        producer.send("orders", to(number)).expect("it is sent");
        house.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(house.counts(), [0, 2, 0, 0]);
    producer.send("orders", to(3)).expect("it is sent");
    assert_eq!(house.counts(), [1, 2, 0, 0]);
    // One that takes all of it.
    let large = "L".repeat(120);
    producer.send("orders", Record::new(&large).partition(3)).expect("it is sent");
    assert_eq!(house.counts(), [1, 2, 1, 2]);
    assert_eq!(producer.accumulator.memory_used(), 0);
}

/// The disk goes on when this is dropped, also by a test that fails.
struct Hangs(Arc<AtomicBool>);

impl Drop for Hangs {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A disk that hangs holds a batch's memory: who needs it waits, by the clock, and is woken when the disk goes on.
#[test]
fn block_waits_for_what_another_thread_appends() {
    let house = House::unsynced(2);
    let node = Node::new(Arc::new(SystemClock));
    node.publish(house.topics.clone());
    let open = |when_full| {
        let builder = ProducerBuilder::new(Arc::clone(&node)).batch_bytes(100).memory_bytes(100).linger(HOUR);
        builder.when_full(when_full).open().expect("it opens")
    };
    let hangs = Hangs(Arc::new(AtomicBool::new(true)));
    let is_reached = Arc::new(AtomicBool::new(false));
    let (rule_hangs, rule_is_reached) = (Arc::clone(&hangs.0), Arc::clone(&is_reached));
    house.storage.fail_when(move |operation| {
        while operation.kind == OperationKind::Write && rule_hangs.load(Ordering::Acquire) {
            rule_is_reached.store(true, Ordering::Release);
            std::thread::yield_now();
        }
        None
    });
    let time = Duration::from_millis(40);
    let short = open(WhenFull::Block(time));
    std::thread::scope(|scope| {
        let hangs = hangs;
        let delivery = short.send("orders", to(0)).expect("it is sent");
        let stuck = scope.spawn(move || delivery.wait());
        while !is_reached.load(Ordering::Acquire) && !stuck.is_finished() {
            std::thread::yield_now();
        }
        let begun = SystemClock.monotonic();
        assert!(matches!(short.send("orders", to(1)), Err(Error::MemoryFull { limit: 100 })));
        let waited = SystemClock.monotonic().since(begun);
        assert!(waited >= time && waited < HOUR, "{waited:?}");
        let blocked = scope.spawn(|| short.send_as("orders", &to(1), WhenFull::Block(HOUR)));
        std::thread::sleep(time);
        assert!(!blocked.is_finished());
        drop(hangs);
        assert!(stuck.join().expect("it does not panic").is_ok());
        assert!(blocked.join().expect("it does not panic").is_ok());
    });
}

/// Memory is taken before its batch is open: who finds nothing to append meanwhile is told when there is.
#[test]
fn block_takes_what_is_opened_later() {
    let house = House::unsynced(2);
    let time = Duration::from_secs(20);
    let producer = house.builder().batch_bytes(100).memory_bytes(100).linger(HOUR).when_full(WhenFull::Block(time));
    let producer = producer.open().expect("it opens");
    let begun = SystemClock.monotonic();
    let mut buffer = Some(producer.accumulator.buffer(1, 100, WhenFull::Fail).expect("there is room"));
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| producer.send("orders", to(1)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!blocked.is_finished());
        let route = producer.routes.route("orders").expect("it is there");
        let lane = route.lane(0).expect("it is there");
        assert!(lane.push(&to(0), START, Compression::None, &mut buffer).is_ok());
        blocked.join().expect("it does not panic").expect("it is sent");
    });
    assert!(SystemClock.monotonic().since(begun) < time / 2, "it is told, and does not only look when time is up");
    assert_eq!(house.counts(), [1, 0]);
}

#[test]
fn what_never_fits_is_refused() {
    let house = House::unsynced(1);
    let producer = small(&house, WhenFull::Block(HOUR));
    let large = "L".repeat(300);
    let refused = producer.send("orders", Record::new(&large));
    assert!(matches!(refused, Err(Error::RecordTooLarge { limit: 200, .. })), "{refused:?}");
}

/// Many partitions, little memory: everything arrives, in order, and the bound holds at every step.
#[test]
fn little_memory_is_enough_for_many_partitions() {
    let house = House::unsynced(20);
    let producer = small(&house, WhenFull::Block(Duration::ZERO));
    for count in 0..1000_u32 {
        let value = count.to_string();
        producer.send("orders", Record::new(&value).partition(count * 7 % 20)).expect("it is sent");
        assert!(producer.accumulator.memory_used() <= 200);
        house.clock.advance(Duration::from_millis(1));
    }
    producer.flush().expect("it is stored");
    assert_eq!(house.counts(), [50; 20]);
    for number in 0..20 {
        let values: Vec<u32> = house.values(number).iter().map(|value| value.parse().expect("a number")).collect();
        assert!(values.is_sorted(), "{values:?}");
    }
}

/// A batch is charged with what it can be filled to, where its topic takes less than the producer would send.
#[test]
fn an_open_batch_takes_no_more_than_its_topic_takes() {
    let mut house = House::new(1, &unsynced().batch_bytes_max(1000));
    house.create("refunds", 2, 1, &unsynced().batch_bytes_max(2000));
    let builder = house.builder().batch_bytes(1 << 30).memory_bytes(1 << 30).linger(HOUR);
    let producer = builder.when_full(WhenFull::Fail).open().expect("it opens");
    producer.send("orders", to(0)).expect("it is sent");
    assert_eq!(producer.accumulator.memory_used(), 1000);
    producer.send("refunds", to(0)).expect("there is room");
    assert_eq!(producer.accumulator.memory_used(), 3000);
    // Of a topic that takes more meanwhile, a batch that is open does not.
    house.partition(0).set_config(unsynced().batch_bytes_max(5000)).expect("it is changed");
    let value = "v".repeat(100);
    for _ in 0..100 {
        producer.send("orders", Record::new(&value)).expect("it is sent");
    }
    producer.flush().expect("it is stored");
    let sizes = batch_sizes(house.partition(0));
    assert!(sizes[0] < 10 && sizes[1] > 30, "{sizes:?}");
}
