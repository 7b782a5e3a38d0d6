//! What lies in a log's directory and is not in its catalogue is taken in, as it is: a topic of a broker, and partitions
//! that were opened alone.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use support::kafka::{check_content, check_epochs, check_timestamps, copy};
use support::seeds;
use support::trees::{files, tree};
use taffrail::{
    BatchBuilder, Durability, Error, LeaderEpoch, Log, ManualClock, MemoryStorage, Offset, Partition, PartitionConfig,
    ReadOptions, Record, Retention, Timestamp, TopicConfig, UpTo,
};

const CLUSTER: &str = "ASNFZ4mrze_-3LqYdlQyEA";
const OTHER: &str = "AAECAwQFBgcICQoLDA0ODw";
/// Centuries after every record.
const LATER: Timestamp = Timestamp(20_000_000_000_000);

fn open_later(path: &Path) -> (Log, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(LATER));
    let builder = Log::builder(path).clock(Arc::clone(&clock) as Arc<_>).background(false);
    (builder.open().expect("it opens"), clock)
}

/// Lets everything fall due that ever does.
fn run_maintenance(log: &Log, clock: &ManualClock) {
    for _ in 0..5 {
        clock.advance(Duration::from_secs(86_400));
        log.tick();
    }
}

fn append(partition: &Partition, value: &str) -> Offset {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value).key("later")).expect("small");
    let appended = partition.append(&mut batch).expect("it goes on");
    let offset = appended.offsets.start;
    appended.wait().expect("it is stored");
    offset
}

/// The id in the fixture's `partition.metadata`.
fn id_in(partition: &Path) -> String {
    let text = std::fs::read_to_string(partition.join("partition.metadata")).expect("it is there");
    text.trim().rsplit(' ').next().expect("an id").to_owned()
}

#[test]
fn a_brokers_topic_is_taken_in_and_kept_until_it_has_settings() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), true);
    let (log, clock) = open_later(directory.path());
    assert_eq!(log.topics(), ["orders"]);
    let described = log.describe_topic("orders").expect("it is there");
    assert!(described.adopted && described.partitions.len() == 1);
    assert_eq!(described.id.to_string(), id_in(&path));
    let partition = log.partition("orders", 0).expect("it is open");
    check_content(&partition);
    check_timestamps(&partition);
    run_maintenance(&log, &clock);
    check_content(&partition);
    assert_eq!(append(&partition, "one"), Offset(354));
    run_maintenance(&log, &clock);
    assert_eq!(partition.start(), Offset(0), "nothing of an adopted topic goes");
    assert!(matches!(log.compact("orders", 0), Err(Error::Policy(_))), "nor is it compacted");
    assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(355)));
    log.close().expect("it closes");

    let (log, clock) = open_later(directory.path());
    let again = log.describe_topic("orders").expect("the catalogue knows it");
    assert!(again.adopted && again.id == described.id);
    let partition = log.partition("orders", 0).expect("it is open");
    assert!(partition.recovery().clean && !partition.recovery().adopted);
    assert_eq!(partition.leader_epoch(), LeaderEpoch(6), "its last owner's, for every end was a clean one");
    run_maintenance(&log, &clock);
    assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(355)));
    let hour = Retention::forever().age(Duration::from_secs(3600));
    log.set_topic_config("orders", again.config.retention(hour)).expect("it is taken");
    assert!(!log.describe_topic("orders").expect("it is there").adopted);
    run_maintenance(&log, &clock);
    assert!(partition.start() > Offset(0), "now the retention applies");
    log.close().expect("it closes");
    let (log, _) = open_later(directory.path());
    assert!(!log.describe_topic("orders").expect("it is there").adopted, "for ever");
}

/// A broker that was stopped well has left its marker: nothing need be verified, and no epoch begins.
#[test]
fn a_brokers_clean_marker_counts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(directory.path(), true);
    let (log, _) = open_later(directory.path());
    let partition = log.partition("orders", 0).expect("it is open");
    assert!(partition.recovery().clean && partition.recovery().adopted);
    assert_eq!(partition.leader_epoch(), LeaderEpoch(6));
    check_content(&partition);
    check_epochs(&partition);
}

/// One that was killed has left none.
#[test]
fn a_killed_brokers_topic_is_recovered() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(directory.path(), true);
    std::fs::remove_file(directory.path().join(".kafka_cleanshutdown")).expect("it is there");
    let (log, _) = open_later(directory.path());
    let partition = log.partition("orders", 0).expect("it is open");
    assert!(!partition.recovery().clean && partition.recovery().adopted && partition.recovery().cut.is_none());
    assert_eq!(partition.leader_epoch(), LeaderEpoch(7));
    assert_eq!(partition.epoch_end(LeaderEpoch(6)), Some((LeaderEpoch(6), Offset(354))));
    check_content(&partition);
    check_timestamps(&partition);
}

fn write_owner(directory: &Path, cluster: &str) {
    let text = format!("#\n#Mon Nov 30 10:00:00 UTC 2026\nnode.id=3\nversion=1\ncluster.id={cluster}\n");
    std::fs::write(directory.join("meta.properties"), text).expect("written");
}

#[test]
fn the_brokers_cluster_is_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(directory.path(), true);
    write_owner(directory.path(), CLUSTER);
    let properties = std::fs::read(directory.path().join("meta.properties")).expect("readable");
    for _ in 0..2 {
        let log = Log::builder(directory.path()).cluster_id(CLUSTER).open().expect("it is this one");
        assert_eq!(log.cluster_id(), CLUSTER);
        log.close().expect("it closes");
    }
    assert_eq!(std::fs::read(directory.path().join("meta.properties")).expect("readable"), properties);
}

/// Refused before anything is touched: whether it is a broker's directory, which no log had open yet, a closed one, or
/// one that was killed.
#[test]
fn a_directory_of_another_cluster_is_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(directory.path(), true);
    write_owner(directory.path(), CLUSTER);
    let marker = directory.path().join(".kafka_cleanshutdown");
    std::fs::write(&marker, "").expect("written");
    let refused = |what: &str| {
        let before = tree(directory.path());
        let error = Log::builder(directory.path()).cluster_id(OTHER).open().expect_err("it is another's");
        assert!(
            matches!(&error, Error::WrongCluster { path, found, expected }
                if path == directory.path() && found.contains(CLUSTER) && expected.contains(OTHER)),
            "{error}"
        );
        assert!(tree(directory.path()) == before, "{what}: something was changed");
    };
    refused("a broker's");
    Log::open(directory.path()).expect("it opens").close().expect("it closes");
    assert!(marker.exists());
    refused("a closed one");
    std::fs::remove_file(&marker).expect("it is there");
    refused("a killed one");
}

/// The catalogue says whose the directory is where `meta.properties` is lost.
#[test]
fn a_lost_properties_file_does_not_make_it_anybodys() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = Log::open(directory.path()).expect("it opens");
    let cluster = log.cluster_id();
    log.close().expect("it closes");
    std::fs::remove_file(directory.path().join("meta.properties")).expect("it is there");
    let error = Log::builder(directory.path()).cluster_id(OTHER).open().expect_err("it is another's");
    assert!(matches!(&error, Error::WrongCluster { found, .. } if found.contains(&cluster)), "{error}");
    assert!(!directory.path().join("meta.properties").exists());
    assert!(directory.path().join(".kafka_cleanshutdown").exists(), "it is closed still");
    let log = Log::builder(directory.path()).cluster_id(cluster.clone()).open().expect("it is this one");
    assert_eq!(log.cluster_id(), cluster);
}

const CHECKPOINTS: [&str; 3] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"];

fn open_in(storage: &MemoryStorage) -> taffrail::Result<Log> {
    Log::builder("data").storage(storage.shared()).background(false).seed(1).open()
}

fn values(partition: &Partition) -> Vec<String> {
    let mut values = Vec::new();
    let mut at = partition.start();
    while at < partition.end() {
        let fetched = partition.try_read(at, ReadOptions::new().up_to(UpTo::LogEnd)).expect("it reads");
        values.extend(fetched.records().map(|record| record.value_str().expect("text").to_owned()));
        at = fetched.next_offset();
    }
    values
}

/// A log with 6 records in `orders-0`, opened alone afterwards: 4 more, and the first 7 are removed. The log's own
/// checkpoints know nothing of that. `None` where the log is not to know the topic before.
fn opened_alone(known: bool, clean: bool) -> MemoryStorage {
    let storage = MemoryStorage::new(1);
    if known {
        let log = open_in(&storage).expect("it opens");
        log.create_topic("orders", TopicConfig::new().durability(Durability::Sync)).expect("it is made");
        let partition = log.partition("orders", 0).expect("it is open");
        for number in 0..6 {
            append(&partition, &number.to_string());
        }
        log.close().expect("it closes");
    }
    let config = PartitionConfig::new().durability(Durability::Sync).segment_bytes(300);
    let alone = Partition::builder("data/orders-0").config(config).storage(storage.shared()).open().expect("it opens");
    for number in alone.end().0..10 {
        append(&alone, &number.to_string());
    }
    alone.trim_before(Offset(7)).expect("trimmed");
    if clean {
        alone.close().expect("it closes");
    } else {
        std::mem::forget(alone);
    }
    storage.kill()
}

fn inner_files(storage: &MemoryStorage) -> Vec<String> {
    let inner = [".lock", ".kafka_cleanshutdown"].into_iter().chain(CHECKPOINTS);
    let inner = inner.filter(|name| storage.bytes_of(format!("data/orders-0/{name}")).is_some());
    inner.map(str::to_owned).collect()
}

fn check_taken_over(storage: &MemoryStorage, what: &str) {
    let log = open_in(storage).unwrap_or_else(|error| panic!("{what}: {error}"));
    let partition = log.partition("orders", 0).expect("it is open");
    assert_eq!(values(&partition), ["7", "8", "9"], "{what}");
    assert_eq!((partition.start(), partition.end()), (Offset(7), Offset(10)), "{what}");
    assert_eq!(inner_files(storage), Vec::<String>::new(), "{what}");
    assert_eq!(append(&partition, "10"), Offset(10), "{what}");
    log.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = open_in(storage).unwrap_or_else(|error| panic!("{what}: {error}"));
    let partition = log.partition("orders", 0).expect("it is open");
    assert_eq!(values(&partition), ["7", "8", "9", "10"], "{what}: the log's own checkpoints say the same");
}

/// Crashes at every operation of the open that takes it over: power lost, and killed.
fn check_every_crash(known: bool, clean: bool) {
    let before = opened_alone(known, clean);
    assert!(inner_files(&before).contains(&".lock".to_owned()) && inner_files(&before).len() >= 2);
    let whole = before.snapshot();
    let log = open_in(&whole).expect("it opens");
    let recovered_cleanly = log.partition("orders", 0).expect("it is open").recovery().clean;
    assert_eq!(recovered_cleanly, clean, "the inner marker counts");
    drop(log);
    let operations = {
        let counted = before.snapshot();
        std::mem::forget(open_in(&counted).expect("it opens"));
        counted.operations()
    };
    check_taken_over(&before.snapshot(), "no crash");
    let seeds = 1.max(seeds().end.min(4 * seeds().end / 200 + 4)).min(16);
    for at in 0..operations {
        let crashed = before.snapshot();
        crashed.crash_at(at);
        let outcome = open_in(&crashed);
        assert!(outcome.is_err(), "the power went at operation {at}");
        for seed in 0..seeds {
            let left = crashed.crash(seed);
            let what = format!("known {known}, clean {clean}, crash at {at} of {operations}, seed {seed}");
            let inner = inner_files(&left);
            assert!(inner.is_empty() || inner[0] == ".lock", "{what}: the lock went before {inner:?}");
            check_taken_over(&left, &what);
        }
    }
}

#[test]
fn a_closed_partition_that_was_opened_alone_is_taken_over() {
    check_every_crash(true, true);
    check_every_crash(false, true);
}

#[test]
fn a_killed_partition_that_was_opened_alone_is_taken_over() {
    check_every_crash(true, false);
    check_every_crash(false, false);
}

/// Somebody has it open: the log does not open, and touches nothing.
#[test]
fn a_partition_that_is_open_alone_stays_so() {
    let storage = opened_alone(true, true);
    let alone = Partition::builder("data/orders-0").storage(storage.shared()).open().expect("it opens");
    let before = files(&storage);
    let error = open_in(&storage).expect_err("it is in use");
    assert!(matches!(&error, Error::Locked { path, .. } if path.ends_with(".lock")), "{error}");
    let changed: Vec<_> = files(&storage).into_iter().filter(|(path, bytes)| before.get(path) != Some(bytes)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    alone.close().expect("it closes");
    check_taken_over(&storage, "afterwards");
}

fn made(path: &Path) {
    let log = Log::open(path).expect("it opens");
    log.create_topic("orders", TopicConfig::new().partitions(2)).expect("it is made");
    log.create_topic("bills", TopicConfig::new()).expect("it is made");
    for number in 0..2 {
        append(&log.partition("orders", number).expect("it is there"), "value");
    }
    log.close().expect("it closes");
}

/// A number at the end of a name makes no partition: thousands were made for `photos-20231`.
#[test]
fn a_directory_without_a_partition_in_it_is_named_and_not_touched() {
    for name in ["photos-20231", "backup-3", "orders-00", "orders-007", "orders-100000"] {
        for is_new in [true, false] {
            let home = tempfile::tempdir().expect("a temporary directory");
            let path = home.path().join("data");
            if is_new {
                std::fs::create_dir(&path).expect("it is made");
            } else {
                made(&path);
            }
            std::fs::create_dir(path.join(name)).expect("it is made");
            std::fs::write(path.join(name).join("letter.txt"), "dear").expect("it is written");
            let before = is_new.then(|| tree(&path));
            let refused = Log::open(&path).expect_err("it does not belong there");
            assert!(refused.to_string().contains(name), "{refused}");
            assert_eq!(std::fs::read(path.join(name).join("letter.txt")).expect("it is there"), b"dear");
            if let Some(before) = before {
                assert_eq!(tree(&path), before);
            }
            std::fs::remove_dir_all(path.join(name)).expect("it is there");
            let log = Log::open(&path).expect("it opens again");
            assert_eq!(log.topics().len(), if is_new { 0 } else { 2 });
        }
    }
}

/// Partitions that were copied later used to lie there unseen.
#[test]
fn more_partitions_of_a_topic_that_is_there_are_taken_in() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    made(&from);
    std::fs::create_dir(&to).expect("it is made");
    std::fs::rename(from.join("orders-0"), to.join("orders-0")).expect("it moves");
    Log::open(&to).expect("it opens").close().expect("it closes");
    std::fs::rename(from.join("orders-1"), to.join("orders-1")).expect("it moves");
    let log = Log::open(&to).expect("it opens");
    let described = log.describe_topic("orders").expect("it is there");
    assert!(described.adopted);
    let ends: Vec<_> = described.partitions.iter().map(|stats| stats.end.0).collect();
    assert_eq!(ends, [1, 1]);
    log.close().expect("it closes");
    // Another topic's is not: it is named.
    std::fs::rename(from.join("bills-0"), to.join("orders-2")).expect("it moves");
    let refused = Log::open(&to).expect_err("it is no partition of that topic");
    assert!(matches!(&refused, Error::WrongCluster { path, .. } if path.ends_with("orders-2")), "{refused}");
    std::fs::remove_dir_all(to.join("orders-2")).expect("it is there");
    assert_eq!(Log::open(&to).expect("it opens").describe_topic("orders").expect("it is there").partitions.len(), 2);
}

/// What was refused had been written down, and every later open wanted it.
#[test]
fn partitions_of_several_topics_under_one_name_are_taken_in_by_no_means() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    made(&from);
    std::fs::create_dir(&to).expect("it is made");
    std::fs::rename(from.join("orders-0"), to.join("mixed-0")).expect("it moves");
    std::fs::rename(from.join("bills-0"), to.join("mixed-1")).expect("it moves");
    assert!(matches!(Log::open(&to), Err(Error::WrongCluster { .. })));
    std::fs::remove_dir_all(to.join("mixed-0")).expect("it is there");
    std::fs::remove_dir_all(to.join("mixed-1")).expect("it is there");
    assert!(Log::open(&to).expect("it opens").topics().is_empty());
}

#[test]
fn what_is_in_the_way_of_new_partitions_is_named_before_anything_is_written_down() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    made(&path);
    let log = Log::open(&path).expect("it opens");
    std::fs::write(path.join("files-1"), "in the way").expect("it is written");
    std::fs::create_dir(path.join("orders-3")).expect("it is made");
    std::fs::copy(path.join("bills-0/partition.metadata"), path.join("orders-3/partition.metadata")).expect("copied");
    let is_in_the_way = |error: &Error, name: &str| matches!(error, Error::InTheWay { path } if path.ends_with(name));
    let refused = log.create_topic("files", TopicConfig::new().partitions(2)).expect_err("there is a file");
    assert!(is_in_the_way(&refused, "files-1"), "{refused}");
    let refused = log.ensure_topic("files", TopicConfig::new().partitions(2)).expect_err("there is a file");
    assert!(is_in_the_way(&refused, "files-1"), "{refused}");
    let refused = log.add_partitions("orders", 4).expect_err("there is a directory");
    assert!(is_in_the_way(&refused, "orders-3"), "{refused}");
    assert_eq!(log.topics(), ["bills", "orders"]);
    assert_eq!(log.add_partitions("orders", 3).expect("nothing is in the way").before, 2);
    log.close().expect("it closes");
    std::fs::remove_dir_all(path.join("orders-3")).expect("it is there");
    assert_eq!(Log::open(&path).expect("it opens").topics(), ["bills", "orders"]);
}

/// Something that nobody knows in a directory that is to go keeps that topic's files, and nothing else, from going.
#[test]
fn what_is_left_of_a_deleted_topic_holds_up_no_other() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    made(&path);
    let log = Log::open(&path).expect("it opens");
    std::fs::create_dir(path.join("orders-1/notes")).expect("it is made");
    assert!(log.delete_topic("orders").is_err());
    assert!(log.partition("bills", 0).is_ok());
    log.close().expect("it closes");
    let log = Log::open(&path).expect("it opens");
    assert_eq!(log.topics(), ["bills"]);
    assert!(path.join("orders-1/notes").exists());
    std::fs::remove_dir(path.join("orders-1/notes")).expect("it is empty");
    log.close().expect("it closes");
    drop(Log::open(&path).expect("it opens"));
    assert!(!path.join("orders-1").exists());
}

/// A log that was opened in a partition of another made a directory there that this one never got rid of.
#[test]
fn a_partitions_directory_is_no_log() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    made(&path);
    let before = tree(&path);
    assert!(matches!(Log::open(path.join("orders-0")), Err(Error::NotALog { .. })));
    assert_eq!(tree(&path), before);
    let log = Log::open(&path).expect("it opens");
    assert!(matches!(Log::open(path.join("orders-0")), Err(Error::Locked { .. })));
    assert!(matches!(Log::open(path.join("new")), Err(Error::Locked { .. })));
    assert!(!path.join("new").exists());
    log.close().expect("it closes");
}

#[test]
fn a_cluster_that_has_no_name_changes_nothing() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    for name in ["", "two words"] {
        assert!(matches!(Log::builder(&path).cluster_id(name).open(), Err(Error::InvalidName { .. })));
        assert!(!path.exists());
    }
}
