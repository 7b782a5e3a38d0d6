//! Commits that nobody waits for count in the order in which they were made, also while the members of the group are led
//! from one epoch to the next: one that came with an old epoch is sent again, and once overtook those behind it.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::env_count;
use taffrail::{GroupConfig, Log, MemoryStorage, Offset, Record, TopicConfig, Which};

const COMMITS: u64 = 30;

/// `TAFFRAIL_SEEDS` says how many rounds there are.
#[test]
fn the_last_of_many_commits_is_the_one_that_counts() {
    let groups = GroupConfig::new().heartbeat_interval(Duration::from_millis(20));
    let builder = Log::builder("data").storage(MemoryStorage::new(1).shared()).groups(groups);
    let log = builder.open().expect("it opens");
    log.create_topic("t", TopicConfig::new().partitions(2)).expect("it is new");
    let producer = log.producer().open().expect("it opens");
    for number in 0..200 {
        producer.send("t", Record::new("v").partition(number % 2)).expect("it is taken");
    }
    producer.flush().expect("it is stored");
    let is_over = Arc::new(AtomicBool::new(false));
    // Others come and go, and commit nothing: each time the one that commits is led on.
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (log, is_over) = (log.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let mut other = log.consumer("g").subscribe(["t", "none"]).open().expect("it opens");
                    // Where it begins there is nothing yet.
                    drop(other.poll(Duration::from_millis(10)));
                }
            })
        })
        .collect();
    let mut consumer = log.consumer("g").subscribe(["t"]).max_bytes(100).open().expect("it opens");
    let (mut offset, mut checked) = (0, 0);
    for _ in 0..env_count("TAFFRAIL_SEEDS", 20) * 20 {
        consumer.pause(Which::All).expect("it pauses");
        drop(consumer.try_poll());
        let mine = consumer.assignment();
        let stored = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..COMMITS {
            offset += 1;
            for one in &mine {
                consumer.seek(&one.topic, one.partition, Offset(offset)).expect("it is assigned");
            }
            let stored = Arc::clone(&stored);
            consumer.commit_async(move |outcome| stored.lock().expect("nobody panics").push(outcome.is_ok()));
        }
        // It waits for all of them.
        let committed = consumer.commit();
        let stored = std::mem::take(&mut *stored.lock().expect("nobody panics"));
        if committed.is_err() || stored.len() as u64 != COMMITS || stored.contains(&false) {
            continue; // it was out of the group
        }
        for one in &mine {
            let found = consumer.committed([one.clone()]).expect("it is known");
            assert_eq!(found.get(one).map(|found| found.offset), Some(Offset(offset)), "{one}");
            checked += 1;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for other in others {
        other.join().expect("it ends");
    }
    assert!(checked > 0, "nothing was committed");
    log.close().expect("it closes");
}
