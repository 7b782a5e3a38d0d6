//! A key-value map that survives kill -9: a `BTreeMap` in memory, and every change in a partition first.
//!
//! ```text
//! cargo run --release --example embedded_wal                     20 rounds
//! cargo run --release --example embedded_wal -- --rounds 200
//! ```
//!
//! It proves it itself. Each round starts this program once more as a child that changes the map and says which
//! changes were acknowledged, kills it (SIGKILL) at a random moment, opens what it left, and compares: all that was
//! acknowledged is there, and at most the one change that was under way besides.

#[path = "shared/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use program::Outcome;
use taffrail::{BatchBuilder, Hold, Partition, PartitionConfig, ReadOptions, Record};

const USAGE: &str = "\
usage: embedded_wal [--rounds N]

Kills a program that changes a map, N times (20), and checks that everything it acknowledged is there.";

type Map = BTreeMap<String, String>;

/// The map and its log. A change is acknowledged when `put` or `remove` returns.
struct Store {
    map: Map,
    log: Partition,
    batch: BatchBuilder,
    /// The map is what the log says from here on: no retention may remove that.
    needed: Hold,
}

impl Store {
    /// Replays what is in the log. The log rolls early here, so that something can be trimmed.
    fn open(directory: &Path) -> taffrail::Result<Self> {
        let log = Partition::open(directory, PartitionConfig::new().segment_bytes(64 << 10))?;
        let (mut map, mut offset) = (Map::new(), log.start());
        while offset < log.end() {
            let fetched = log.read(offset, ReadOptions::new())?;
            let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            for record in &fetched {
                apply(&mut map, &text(record.key()).unwrap_or_default(), text(record.value()));
            }
            offset = fetched.next_offset();
        }
        let needed = log.hold(log.start())?;
        Ok(Self { map, log, batch: BatchBuilder::new(), needed })
    }

    fn put(&mut self, key: &str, value: &str) -> taffrail::Result<()> {
        self.change(key, Some(value))
    }

    fn remove(&mut self, key: &str) -> taffrail::Result<()> {
        self.change(key, None)
    }

    /// To the log, to the disk, then to the map.
    fn change(&mut self, key: &str, value: Option<&str>) -> taffrail::Result<()> {
        self.batch.push(&value.map_or(Record::tombstone(key), |value| Record::new(value).key(key)))?;
        let end = self.log.append(&mut self.batch)?.offsets.end;
        self.log.sync_to(end)?;
        apply(&mut self.map, key, value.map(str::to_owned));
        Ok(())
    }

    /// Repeats the whole map at the end of the log; then nothing before that is needed. A crash on the way does no
    /// harm: what was repeated so far is what the map says anyway.
    fn checkpoint(&mut self) -> taffrail::Result<()> {
        let begin = self.log.end();
        for (key, value) in &self.map {
            self.batch.push(&Record::new(value).key(key))?;
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        let end = self.log.append(&mut self.batch)?.offsets.end;
        self.log.sync_to(end)?;
        self.needed = self.log.hold(begin)?;
        self.log.trim_before(begin)?;
        Ok(())
    }
}

fn apply(map: &mut Map, key: &str, value: Option<String>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

// The proof from here on.

/// The change of this number: every seventh removes a key, the others put one.
fn change(number: u64) -> (String, Option<String>) {
    let key = format!("key-{}", number * number % 83);
    (key, (number % 7 != 6).then(|| format!("value {number}")))
}

/// The child: makes changes until it is killed, and says the number of each once it is acknowledged.
fn write_until_killed(directory: &Path, first: u64) -> Outcome<()> {
    let mut store = Store::open(directory)?;
    let mut out = std::io::stdout().lock();
    for number in first.. {
        match change(number) {
            (key, Some(value)) => store.put(&key, &value)?,
            (key, None) => store.remove(&key)?,
        }
        writeln!(out, "{number}")?;
        if number % 100 == 99 {
            store.checkpoint()?;
        }
    }
    Ok(())
}

/// Starts a child, kills it a random time after its first acknowledged change, and says which was its last.
fn run_and_kill(directory: &Path, first: u64) -> Outcome<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", &first.to_string()])
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("the child's output is piped")?).lines();
    let first_line = lines.next().ok_or("the child ended before its first change")??;
    std::thread::sleep(Duration::from_millis(fastrand::u64(0..150)));
    child.kill()?;
    child.wait()?;
    let last = lines.last().transpose()?.unwrap_or(first_line);
    Ok(last.parse()?)
}

fn prove(rounds: u32) -> Outcome<()> {
    let temporary = tempfile::tempdir()?;
    let directory = temporary.path().join("map-0");
    let (mut expected, mut next) = (Map::new(), 0);
    let (mut under_way, mut out) = (0, io::stdout());
    for round in 1..=rounds {
        let last = run_and_kill(&directory, next)?;
        for number in next..=last {
            let (key, value) = change(number);
            apply(&mut expected, &key, value);
        }
        next = last + 1;
        let store = Store::open(&directory)?;
        if store.map != expected {
            let (key, value) = change(next);
            apply(&mut expected, &key, value);
            (next, under_way) = (next + 1, under_way + 1);
        }
        if store.map != expected {
            return Err(format!("round {round}: after change {last} the map is not what was acknowledged").into());
        }
        let (log, needed) = (&store.log, store.needed.offset());
        let (keys, end) = (store.map.len(), log.end());
        writeln!(out, "round {round}: killed after change {last}, {keys} keys, log {needed} to {end}")?;
    }
    writeln!(
        out,
        "killed {rounds} times, {} acknowledged changes all there, {under_way} came through besides",
        next - under_way
    )?;
    Ok(())
}

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), |arguments| work(&arguments))
}

fn work(arguments: &[String]) -> Outcome<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", first, directory] => write_until_killed(Path::new(directory), first.parse()?),
        ["--rounds", rounds] => prove(rounds.parse()?),
        [] => prove(20),
        _ => Err("--rounds N is all it takes".into()),
    }
}
