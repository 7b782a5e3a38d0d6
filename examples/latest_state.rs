//! The latest state of many things as a log: of each aircraft its last flight, whatever came before.
//!
//! ```text
//! cargo run --release --example latest_state                     the flights of examples/data
//! cargo run --release --example latest_state -- PATH             another file of that shape
//! ```
//!
//! The topic is compacted: of each key (the aircraft) the log keeps the last record, at the offset that it always had. A
//! reader that begins at the start of the log, and knows nothing, comes to the same state as one that has seen every
//! record; it only has less to read. Flights without an aircraft have no key, and are left out. In a program that goes on
//! compaction happens in the background; here it is asked for, so that there is something to look at.

#[path = "shared/flights.rs"]
pub(crate) mod flights;
#[path = "shared/program.rs"]
pub(crate) mod program;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use program::Outcome;
use taffrail::{Cleanup, Log, Record, TopicConfig};

pub(crate) const USAGE: &str = "\
usage: latest_state [PATH]

Publishes the flights in PATH, a JSON object a line (without it those of examples/data), to a compacted topic, and builds
the last flight of each aircraft from what compaction leaves.";

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");
const TOPIC: &str = "aircraft";
const PARTITIONS: u32 = 4;
/// Small, so that a week of flights fills several.
const SEGMENT_BYTES: u32 = 128 << 10;

/// The last flight of each aircraft.
type State = BTreeMap<String, String>;

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

pub(crate) fn work(arguments: Vec<String>) -> Outcome<()> {
    let mut path = None;
    for argument in arguments {
        if argument.starts_with('-') {
            return Err(format!("{argument} is not known: PATH is").into());
        }
        if path.is_some() {
            return Err(format!("one file at a time: what is {argument:?} for?").into());
        }
        path = Some(PathBuf::from(argument));
    }
    let path = path.unwrap_or_else(|| FLIGHTS.into());
    let temporary = tempfile::tempdir()?;
    run(&path, &temporary.path().join("log"), &mut io::stdout())
}

/// Publishes, compacts, and proves that a new reader comes to the same state.
pub(crate) fn run(path: &Path, directory: &Path, out: &mut impl Write) -> Outcome<()> {
    let log = Log::open(directory)?;
    let config = TopicConfig::new().partitions(PARTITIONS).cleanup(Cleanup::Compact).segment_bytes(SEGMENT_BYTES);
    log.ensure_topic(TOPIC, config)?;
    let (published, expected) = publish(&log, path)?;
    writeln!(out, "published {published} flights of {} aircraft", expected.len())?;
    compact(&log, out)?;
    log.close()?;

    // Whoever comes now has seen nothing of it.
    let log = Log::open(directory)?;
    let (read, state) = rebuild(&log)?;
    log.close()?;
    if state != expected {
        return Err(format!("of {} aircraft {} came back, or other flights", expected.len(), state.len()).into());
    }
    if read != state.len() {
        return Err(format!("{read} records are left, {} are needed", state.len()).into());
    }
    let count = state.len();
    writeln!(out, "rebuilt the last flight of {count} aircraft from {read} records of {published}: all as published")?;
    Ok(())
}

/// Sends all flights that have an aircraft; answers how many, and the last of each aircraft.
fn publish(log: &Log, path: &Path) -> Outcome<(usize, State)> {
    let producer = log.producer().open()?;
    let mut last = State::new();
    let mut count = 0;
    for flight in flights::read(path)? {
        let Some(tail) = flight.tail else { continue };
        drop(producer.send(TOPIC, Record::new(&flight.line).key(&tail).timestamp(flight.scheduled))?);
        last.insert(tail, flight.line);
        count += 1;
    }
    producer.close()?;
    Ok((count, last))
}

/// Compacts every partition to its end.
fn compact(log: &Log, out: &mut impl Write) -> Outcome<()> {
    for number in 0..PARTITIONS {
        let partition = log.partition(TOPIC, number)?;
        // What is appended to is not compacted: it is closed, and another segment begun.
        partition.roll()?;
        let done = log.compact(TOPIC, number)?;
        writeln!(out, "partition {number}: {done}")?;
    }
    Ok(())
}

/// Reads the topic from its start to its end; answers how many records there were, and the last of each aircraft.
fn rebuild(log: &Log) -> Outcome<(usize, State)> {
    let mut reader = log.reader().topics([TOPIC]).open()?;
    let mut state = State::new();
    let mut count = 0;
    loop {
        let polled = reader.try_poll()?;
        if polled.is_empty() {
            return Ok((count, state));
        }
        for record in &polled {
            count += 1;
            let key = record.key().ok_or("a compacted topic has keys")?;
            let tail = String::from_utf8(key.to_vec())?;
            match record.value_str() {
                Some(line) => state.insert(tail, line.to_owned()),
                None => state.remove(&tail),
            };
        }
    }
}
