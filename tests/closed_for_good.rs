//! Once a log's close has returned, its directory belongs to the next owner: nothing of the old handles touches it, and no
//! call of theirs that was under way is half-done behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taffrail::{Error, Fault, Log, ManualClock, MemoryStorage, OperationKind, Timestamp, TopicConfig};

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>, background: bool) -> Log {
    let builder = Log::builder("data").storage(storage.shared()).clock(Arc::clone(clock) as Arc<_>);
    builder.background(background).open().expect("it opens")
}

/// What could not be made before the close used to be made by a tick of a handle that was left.
#[test]
fn a_tick_of_a_closed_log_does_nothing() {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let log = open(&storage, &clock, false);
    storage.fail_when(|operation| (operation.kind == OperationKind::CreateDirectory).then_some(Fault::NoSpace));
    assert!(log.create_topic("a", TopicConfig::new().partitions(3)).is_err());
    let other = log.clone();
    log.close().expect("the disk takes that");
    storage.clear_faults();
    let next = open(&storage, &clock, false);
    next.delete_topic("a").expect("it is there");
    let operations = storage.operations();
    for _ in 0..20 {
        clock.advance(Duration::from_secs(3));
        other.tick();
    }
    assert_eq!(storage.operations(), operations);
    assert!(matches!(other.create_topic("b", TopicConfig::new()), Err(Error::Closed)));
    assert_eq!(storage.operations(), operations);
}

/// A topic that was being made while the log closed used to be made in the next owner's directory.
#[test]
fn administration_beside_a_close_ends_before_it() {
    for round in 0..60_u64 {
        let storage = MemoryStorage::new(round);
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let log = open(&storage, &clock, round % 2 == 0);
        let (other, begun) = (log.clone(), AtomicBool::new(false));
        let made = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let make = |number: u64| other.create_topic(&format!("t{number}"), TopicConfig::new()).is_ok();
                (0..)
                    .inspect(|number| begun.store(*number >= round % 7, Ordering::Release))
                    .take_while(|n| make(*n))
                    .count()
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            log.close().expect("it closes");
            let operations = storage.operations();
            let made = maker.join().expect("it ends");
            assert_eq!(storage.operations(), operations, "round {round}");
            made
        });
        assert_eq!(open(&storage, &clock, false).topics().len(), made, "round {round}");
    }
}

/// The second of two used to answer at once, and a program that ended then had closed nothing.
#[test]
fn every_close_returns_when_the_log_is_closed() {
    for round in 0..40 {
        let storage = MemoryStorage::new(round);
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let log = open(&storage, &clock, true);
        log.create_topic("a", TopicConfig::new().partitions(8)).expect("it is made");
        std::thread::scope(|scope| {
            for log in [log.clone(), log.clone()] {
                let storage = &storage;
                scope.spawn(move || {
                    log.close().expect("it closes");
                    let names = storage.paths();
                    assert!(names.iter().any(|path| path.ends_with(".kafka_cleanshutdown")), "round {round}");
                });
            }
        });
    }
}

/// The same seed gave the same ids in a log that had given them, and no topic could be made any more.
#[test]
fn ids_are_never_given_twice_by_one_seed() {
    let storage = MemoryStorage::new(1);
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..20 {
        let log = Log::builder("data").storage(storage.shared()).background(false).seed(7).open().expect("it opens");
        assert!(ids.insert(log.create_topic(&format!("t{round}"), TopicConfig::new()).expect("it is made")));
        assert!(ids.insert(log.create_topic("short", TopicConfig::new()).expect("it is made")));
        log.delete_topic("short").expect("it goes");
        log.close().expect("it closes");
    }
}

/// Of several who add partitions at once each is told how many there were before its own.
#[test]
fn partitions_are_added_one_behind_the_other() {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let log = open(&storage, &clock, true);
    for round in 0..20 {
        let name = format!("t{round}");
        log.create_topic(&name, TopicConfig::new()).expect("it is made");
        let mut steps: Vec<_> = std::thread::scope(|scope| {
            let add = |total| {
                let (log, name) = (log.clone(), name.clone());
                scope.spawn(move || log.add_partitions(&name, total).ok().map(|added| (added.before, added.after)))
            };
            let adding: Vec<_> = (2..6).map(add).collect();
            adding.into_iter().filter_map(|adding| adding.join().expect("it ends")).collect()
        });
        steps.sort_unstable();
        assert_eq!(steps.first().map(|step| step.0), Some(1));
        assert!(steps.windows(2).all(|pair| pair[0].1 == pair[1].0), "{steps:?}");
    }
}
