//! A real process that many threads publish in is killed at a random moment, again and again, over the same log: every
//! record that was acknowledged is there once, in order per key, and the log opens.
//!
//! The child writes a line for each record after `wait` has returned. `TAFFRAIL_LOG_KILLS` says how many rounds (3).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::env_count;
use taffrail::{Compression, Delivery, Durability, Log, Record, Result, TopicConfig};

const CHILD: &str = "TAFFRAIL_KILL9_LOG_CHILD";
const TEST: &str = "a_killed_log_loses_nothing";
const TOPICS: [(&str, u32); 3] = [("orders", 4), ("payments", 1), ("visits", 3)];
const THREADS: u64 = 4;
const KEYS: u64 = 5;
/// How many deliveries a thread has under way.
const WINDOW: usize = 20;

fn config(topic: &str, partitions: u32) -> TopicConfig {
    let config = TopicConfig::new().partitions(partitions).segment_bytes(64 << 10);
    match topic {
        "payments" => config.durability(Durability::Sync),
        "visits" => config.compression(Compression::Lz4),
        _ => config,
    }
}

/// One record: thread and key say who, the number rises.
fn publish(log: &Log, round: u64, thread: u64) -> Result<()> {
    let producer = log.producer().linger(Duration::from_millis(thread % 2)).batch_bytes(2_000).open()?;
    let mut under_way: Vec<(Delivery, String)> = Vec::new();
    for number in 0_u64.. {
        let (topic, _) = TOPICS[usize::try_from((number + thread) % TOPICS.len() as u64).unwrap_or(0)];
        let key = format!("{thread}-{}", number % KEYS);
        let value = format!("{round}:{number}");
        let delivery = producer.send(topic, Record::new(&value).key(&key))?;
        under_way.push((delivery, format!("{topic} {key} {value}")));
        if under_way.len() >= WINDOW {
            for (delivery, line) in under_way.drain(..) {
                delivery.wait()?;
                if writeln!(std::io::stdout(), "acknowledged {line}").is_err() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Publishes on several threads until it is killed.
fn child(directory: &str, round: u64) -> Result<()> {
    let log = Log::open(directory)?;
    for (topic, partitions) in TOPICS {
        log.ensure_topic(topic, config(topic, partitions))?;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || publish(log, round, thread).expect("the child publishes until it is killed"));
        }
        // Topics come and go meanwhile.
        for number in 0.. {
            let name = format!("short-lived-{}", number % 3);
            log.create_topic(&name, TopicConfig::new()).expect("it is made");
            std::thread::sleep(Duration::from_millis(5));
            log.delete_topic(&name).expect("it goes");
        }
    });
    Ok(())
}

/// A record that was sent: topic, key, then round and number.
type Sent = (String, String, (u64, u64));

fn parse(line: &str) -> Option<Sent> {
    // A line of another thread, or of the test's harness, may stand before it.
    let (_, line) = line.split_once("acknowledged ")?;
    let mut fields = line.split(' ');
    let (topic, key) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let (round, number) = fields.next()?.split_once(':')?;
    Some((topic, key, (round.parse().ok()?, number.parse().ok()?)))
}

/// Runs a child until it has acknowledged `enough` records, kills it, and answers what it acknowledged.
fn run_and_kill(directory: &Path, round: u64, enough: usize) -> Vec<Sent> {
    let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, format!("{round} {}", directory.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test starts itself");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut acknowledged = Vec::new();
    for line in lines.map_while(std::result::Result::ok) {
        acknowledged.extend(parse(&line));
        if acknowledged.len() == enough {
            child.kill().expect("it is running");
        }
    }
    child.wait().expect("it was started");
    let count = acknowledged.len();
    assert!(count >= enough, "round {round}: the child ended by itself after {count} records");
    acknowledged
}

/// Reads everything; answers how long the log took to open.
fn check(directory: &Path, round: u64, acknowledged: &BTreeSet<Sent>) -> Duration {
    let began = Instant::now();
    let log = Log::open(directory).unwrap_or_else(|error| panic!("round {round}: {error}"));
    let took = began.elapsed();
    for (name, partitions) in TOPICS {
        assert_eq!(log.describe_topic(name).expect("it was made").partitions.len(), partitions as usize);
    }
    let mut reader = log.reader().topics(TOPICS.map(|(name, _)| name)).open().expect("it opens");
    let mut missing = acknowledged.clone();
    let mut seen = BTreeSet::new();
    let mut last: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    loop {
        let polled = reader.try_poll().expect("a recovered log reads");
        if polled.is_empty() {
            break;
        }
        for record in &polled {
            let key = record.key().map(|key| String::from_utf8_lossy(key).into_owned()).expect("it has one");
            let (sent, number) = record.value_str().and_then(|value| value.split_once(':')).expect("round and number");
            let at = (sent.parse().expect("digits"), number.parse().expect("digits"));
            let one = (polled.topic().to_owned(), key, at);
            missing.remove(&one);
            let before = last.insert((one.0.clone(), one.1.clone()), at);
            assert!(before.is_none_or(|before| before < at), "round {round}: {one:?} follows {before:?}");
            assert!(seen.insert(one.clone()), "round {round}: {one:?} is there twice");
        }
    }
    assert!(missing.is_empty(), "round {round}: {} acknowledged records are gone: {missing:?}", missing.len());
    // The check is a kill as well, but for every third.
    if round.is_multiple_of(3) {
        log.close().expect("it closes");
    } else {
        std::mem::forget(log);
    }
    took
}

/// Checks in a process of its own, so that it can leave the log unclosed.
fn check_elsewhere(directory: &Path, round: u64, acknowledged: &BTreeSet<Sent>) {
    let file = directory.with_extension("acknowledged");
    let line = |(topic, key, (round, number)): &Sent| format!("acknowledged {topic} {key} {round}:{number}\n");
    std::fs::write(&file, acknowledged.iter().map(line).collect::<String>()).expect("written");
    let status = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, format!("check {round} {}", directory.display()))
        .status()
        .expect("the test starts itself");
    assert!(status.success(), "round {round}: {status}");
}

#[test]
fn a_killed_log_loses_nothing() {
    if let Ok(told) = std::env::var(CHILD) {
        if let Some((round, directory)) = told.strip_prefix("check ").and_then(|told| told.split_once(' ')) {
            let known = std::fs::read_to_string(Path::new(directory).with_extension("acknowledged")).expect("written");
            let acknowledged: BTreeSet<Sent> = known.lines().filter_map(parse).collect();
            let took = check(Path::new(directory), round.parse().expect("a number"), &acknowledged);
            println!("round {round}: {} records acknowledged so far, opened in {took:?}", acknowledged.len());
            return;
        }
        let (round, directory) = told.split_once(' ').expect("the parent says both");
        child(directory, round.parse().expect("a number")).expect("the child publishes until it is killed");
        return;
    }
    let rounds = env_count("TAFFRAIL_LOG_KILLS", 3);
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    let mut acknowledged = BTreeSet::new();
    let mut random = 0x9e37_79b9_u64;
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let enough = 1 + usize::try_from((random >> 33) % 1_500).expect("small");
        acknowledged.extend(run_and_kill(&path, round, enough));
        check_elsewhere(&path, round, &acknowledged);
    }
}
