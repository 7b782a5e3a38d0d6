//! Order per key, whoever sends, fills and appends.

use super::House;
use crate::record::builder::Record;
use crate::sync::Mutex;
use crate::types::Compression;

const KEYS: usize = 6;
const THREADS: usize = 4;
const RECORDS: u64 = 1500;

#[test]
fn records_of_a_key_are_stored_in_the_order_in_which_send_returned() {
    in_order(Compression::None);
}

/// Sealing takes longer, and longer for some batches than for others.
#[cfg(feature = "gzip")]
#[test]
fn so_they_are_where_batches_are_compressed() {
    in_order(Compression::Gzip);
}

/// Threads take turns at each key, so that its `send` calls return in the order of their numbers.
fn in_order(compression: Compression) {
    let house = House::unsynced(3);
    let producer = house.builder().batch_bytes(300).compression(compression).open().expect("it opens");
    let next: Vec<Mutex<u64>> = (0..KEYS).map(|_| Mutex::new(0)).collect();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (producer, next) = (&producer, &next);
                scope.spawn(move || {
                    for turn in 0..RECORDS {
                        send_next(producer, next, thread, turn);
                    }
                })
            })
            .collect();
        while senders.iter().any(|sender| !sender.is_finished()) {
            house.node.tick();
        }
        for sender in senders {
            sender.join().expect("no sender panics");
        }
    });
    producer.flush().expect("everything is stored");
    let mut due = [0; KEYS];
    for (key, value) in (0..3).flat_map(|number| house.records(number)) {
        let key: usize = key.parse().expect("it is a number");
        assert_eq!(value.parse(), Ok(due[key]), "of key {key}");
        due[key] += 1;
    }
    assert_eq!(due.iter().sum::<u64>(), RECORDS * THREADS as u64);
}

/// Sends the next number of one key; some wait, so that they append what is open.
fn send_next(producer: &crate::producer::Producer, next: &[Mutex<u64>], thread: usize, turn: u64) {
    let key = (thread + usize::try_from(turn).expect("it is small")) % KEYS;
    let delivery = {
        let mut number = next[key].lock();
        let (name, value) = (key.to_string(), number.to_string());
        *number += 1;
        producer.send("orders", Record::new(&value).key(&name)).expect("it is sent")
    };
    if turn.is_multiple_of(7) {
        delivery.wait().expect("it is stored");
    }
}
