//! A real process is killed at a random moment, again and again, over the same files: every record it had
//! acknowledged is there, in order, once.
//!
//! The child writes each acknowledged offset to its standard output after `wait` has returned. `TAFFRAIL_KILLS` says
//! how many rounds.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use support::env_count;
use taffrail::{
    BatchBuilder, Durability, Isolation, Offset, Partition, PartitionConfig, ReadOptions, Record, Result, Retention,
};

const CHILD: &str = "TAFFRAIL_KILL9_CHILD";

fn config(durability: Durability) -> PartitionConfig {
    PartitionConfig::new().durability(durability).segment_bytes(64 << 10).retention(Retention::forever().bytes(1 << 20))
}

fn durability_of(round: u64) -> Durability {
    if round.is_multiple_of(2) { Durability::Sync } else { Durability::Os }
}

/// Appends until it is killed. The value of each record is its offset.
fn child(directory: &str, round: u64) -> Result<()> {
    let partition = Partition::open(directory, config(durability_of(round)))?;
    let mut out = std::io::stdout().lock();
    let mut batch = BatchBuilder::new();
    let clock = taffrail::SystemClock;
    for turn in 0_u64.. {
        let start = partition.end();
        for record in 0..=turn % 5 {
            let value = format!("{:0width$}", start.0 + record, width = 20 + usize::try_from(turn % 300).unwrap_or(0));
            batch.push(&Record::new(&value).key("k"))?;
        }
        let appended = partition.append(&mut batch)?;
        let end = appended.offsets.end;
        appended.wait()?;
        if turn % 50 == 49 {
            partition.maintain(taffrail::Clock::now(&clock))?;
        }
        if writeln!(out, "{} {}", partition.start(), end).is_err() {
            break;
        }
    }
    Ok(())
}

/// Runs a child until it has acknowledged `enough` appends, kills it, and answers what it said last.
fn run_and_kill(directory: &Path, round: u64, enough: u64) -> (u64, u64) {
    let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args(["a_killed_process_loses_nothing", "--exact", "--nocapture"])
        .env(CHILD, format!("{round} {}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test starts itself");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut said = (0, 0);
    let mut count = 0;
    let parse = |line: &str| {
        let (start, end) = line.split_once(' ')?;
        Some((start.parse::<u64>().ok()?, end.parse::<u64>().ok()?))
    };
    while let Some(Ok(line)) = lines.next() {
        if let Some(now) = parse(&line) {
            said = now;
            count += 1;
        }
        if count == enough {
            child.kill().expect("it is running");
        }
    }
    child.wait().expect("it was started");
    assert!(count >= enough, "round {round}: the child ended by itself after {count} appends");
    said
}

fn check(directory: &Path, round: u64, (start_said, end_said): (u64, u64)) {
    let partition = Partition::open(directory, config(durability_of(round))).expect("it reopens");
    assert!(partition.end().0 >= end_said, "round {round}: ends at {}, {end_said} was acknowledged", partition.end());
    let options = ReadOptions::new().isolation(Isolation::Uncommitted);
    let mut at = partition.start();
    assert!(at.0 >= start_said, "round {round}: removed records are back");
    let mut due = at.0;
    while at < partition.end() {
        let fetched = partition.read(at, options).expect("a recovered log reads");
        for record in &fetched {
            assert_eq!(record.offset(), Offset(due), "round {round}");
            let value: u64 = record.value_str().expect("digits").parse().expect("digits");
            assert_eq!(value, due, "round {round}");
            due += 1;
        }
        at = fetched.next_offset();
    }
    assert_eq!(due, partition.end().0);
    // The check is a kill as well: every other round leaves the partition unclosed.
    if round.is_multiple_of(3) {
        partition.close().expect("it closes");
    }
}

#[test]
fn a_killed_process_loses_nothing() {
    if let Ok(told) = std::env::var(CHILD) {
        let (round, directory) = told.split_once(' ').expect("the parent says both");
        child(directory, round.parse().expect("a number")).expect("the child appends until it is killed");
        return;
    }
    let rounds = env_count("TAFFRAIL_KILLS", 10);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("wal-0");
    let mut random = 0x9e37_79b9_u64;
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let said = run_and_kill(&path, round, 1 + (random >> 33) % 300);
        check(&path, round, said);
    }
}
