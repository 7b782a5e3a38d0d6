//! A consumer that is cut off from its group, or stands still, hands out nothing that another may own by then.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{Place, Told, arrive};
use taffrail::{Clock, Fault, Log, ManualClock, MemoryStorage, Moment, Offset, Record, Timestamp, TopicConfig};

/// The coordinator's disk fails, so that nobody is heard.
#[test]
fn whoever_is_cut_off_reads_until_its_lease_is_over_and_then_goes_on() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 100);
    let told = Told::default();
    let mut one = place.member("orders").max_bytes(1).on_rebalance(told.clone()).open().unwrap();
    assert_eq!(one.poll(Duration::ZERO).unwrap().records().count(), 1);
    told.take();
    place.storage.fail_when(|operation| {
        let is_coordinators = operation.path.to_string_lossy().contains("__consumer_offsets");
        (is_coordinators && operation.kind.changes()).then_some(Fault::Io)
    });
    // Somebody comes, which cannot be written: the coordinator is gone with that.
    let mut two = place.member("orders").open().unwrap();
    two.try_poll().unwrap();
    let mut read = 1;
    for second in 1..=60 {
        place.clock.advance(Duration::from_secs(1));
        place.log.tick();
        let count = one.try_poll().unwrap().records().count();
        read += count;
        match second {
            0..40 => assert_eq!(count, 1, "{second}"),
            50.. => assert_eq!(count, 0, "{second}"),
            _ => {}
        }
    }
    assert_eq!(one.position("orders", 0).unwrap().offset, Offset(read as u64));
    assert!(one.commit().is_err());
    place.storage.clear_faults();
    let seen = place.pass(&mut [&mut one, &mut two], 10);
    let rest: Vec<_> = seen[0].iter().map(|(_, offset)| *offset).collect();
    assert_eq!(rest, (read as u64..100).collect::<Vec<_>>(), "nothing was given away meanwhile");
    assert_eq!(told.take(), Vec::<String>::new());
    one.commit().unwrap();
}

/// A clock during one of whose reads a minute goes by.
#[derive(Debug)]
struct Halting {
    time: ManualClock,
    reads: AtomicU64,
    halts_at: AtomicU64,
}

impl Clock for Halting {
    fn wall(&self) -> Timestamp {
        self.time.wall()
    }

    fn monotonic(&self) -> Moment {
        if self.reads.fetch_add(1, Ordering::Relaxed) + 1 == self.halts_at.load(Ordering::Relaxed) {
            self.time.advance(Duration::from_secs(60));
        }
        self.time.monotonic()
    }
}

/// The process stands still for longer than its lease, at any point of a poll. It is looked at before the read and after it.
#[test]
fn whoever_stands_still_within_a_poll_looks_again_whether_it_may_read() {
    let mut held_back = 0;
    for halt in 1.. {
        let time = ManualClock::at(Timestamp(1_000_000));
        let clock = Arc::new(Halting { time, reads: AtomicU64::new(0), halts_at: AtomicU64::new(0) });
        let builder = Log::builder("data").storage(MemoryStorage::new(1).shared()).clock(Arc::clone(&clock) as _);
        let log = builder.background(false).open().unwrap();
        log.create_topic("orders", TopicConfig::new()).unwrap();
        let mut consumer = log.consumer("g").subscribe(["orders"]).open().unwrap();
        assert!(arrive(&mut consumer).is_empty());
        log.producer().open().unwrap().send("orders", Record::new("v")).unwrap().wait().unwrap();

        clock.reads.store(0, Ordering::Relaxed);
        clock.halts_at.store(halt, Ordering::Relaxed);
        let polled = consumer.try_poll().unwrap();
        if clock.reads.load(Ordering::Relaxed) < halt {
            break;
        }
        if polled.is_empty() {
            held_back += 1;
            // Its lease goes on: nobody has taken anything, and no record is passed over.
            assert_eq!(arrive(&mut consumer), [("orders-0".to_owned(), 0)]);
        }
    }
    assert_eq!(held_back, 2);
}
