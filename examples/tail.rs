//! Follows topics: a line per record, from the beginning, from an offset or from a time on.
//!
//! ```text
//! cargo run --release --example tail                                         shows it: publishes and tails at once
//! cargo run --release --example tail -- --data DIR orders                    all of it, from the beginning
//! cargo run --release --example tail -- --data DIR orders:3@2000 invoices    partition 3 from offset 2000 on; invoices
//! cargo run --release --example tail -- --data DIR orders --since 1357035300000
//! cargo run --release --example tail -- --data DIR orders --latest --follow
//! ```
//!
//! A log is open in one process at a time, so what follows it sees what is published in its own process: `--follow` on
//! a directory shows what is there and then waits. How the two go together shows the run without arguments: one thread
//! publishes flights to a temporary log, another tails them. Its last line says that what was tailed is what was
//! published, in order in each partition; where it is not, the program fails.

#[path = "shared/flights.rs"]
mod flights;
#[path = "shared/place.rs"]
mod place;
#[path = "shared/program.rs"]
pub(crate) mod program;
#[path = "shared/tail.rs"]
pub(crate) mod tail;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use flights::Flight;
use program::Outcome;
use taffrail::{Log, Offset, Reader, Record, Retention, TopicConfig};
use tail::Arguments;

pub(crate) const USAGE: &str = "\
usage: tail                                     publishes flights to a temporary log, and tails them meanwhile
       tail --data DIR WHAT... [--since MILLIS | --latest] [--follow]

WHAT is TOPIC, TOPIC:PARTITION or TOPIC:PARTITION@OFFSET. Without --follow it ends where the log ends.
A line has topic, partition, offset, timestamp, key and value, divided by tabs.";

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");
const TOPIC: &str = "flights";
const PARTITIONS: u32 = 4;
const COUNT: usize = 200;
/// Who tails gives up after as long without a record.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

pub(crate) fn work(words: Vec<String>) -> Outcome<()> {
    let mut out = io::stdout();
    if words.is_empty() {
        let temporary = tempfile::tempdir()?;
        let proof = publish_and_tail(temporary.path(), &mut out)?;
        return Ok(writeln!(out, "{proof}")?);
    }
    let arguments = Arguments::parse(words)?;
    let directory = arguments.directory.display();
    if !arguments.directory.is_dir() {
        return Err(format!("{directory} is no directory").into());
    }
    if !place::is_log(&arguments.directory)? {
        return Err(format!("{directory} holds no log").into());
    }
    let log = Log::open(&arguments.directory)?;
    let count = arguments.open(&log).and_then(|mut reader| tail::run(&mut reader, arguments.follow, &mut out));
    log.close()?;
    Ok(writeln!(out, "{} records", count?)?)
}

/// The values of a partition, each with its offset.
type Values = BTreeMap<u32, Vec<(Offset, String)>>;

/// Publishes some flights to a new log while another thread tails them, and proves that they came as they were sent.
pub(crate) fn publish_and_tail(directory: &Path, out: &mut (impl Write + Send)) -> Outcome<String> {
    let mut flights = flights::read(Path::new(FLIGHTS))?;
    flights.truncate(COUNT);
    let log = Log::open(directory)?;
    // The flights are of 2013: with the 7 days that a topic keeps its records by default they would be removed at once.
    log.create_topic(TOPIC, TopicConfig::new().partitions(PARTITIONS).retention(Retention::forever()))?;
    let reader = log.reader().topics([TOPIC]).open()?;
    let (published, tailed) = thread::scope(|scope| {
        let tailing = scope.spawn(|| tail_until(reader, flights.len(), out));
        let published = publish(&log, &flights);
        (published, tailing.join())
    });
    let (published, tailed) = (published?, tailed.map_err(|_| "the tailing thread has panicked")??);
    log.close()?;
    if published != tailed {
        return Err("what was tailed is not what was published".into());
    }
    let count: usize = tailed.values().map(Vec::len).sum();
    Ok(format!("published {}, tailed {count}, the same in order in each of {} partitions", flights.len(), tailed.len()))
}

/// Publishes the flights, and waits for some on the way, so that there is something to follow.
fn publish(log: &Log, flights: &[Flight]) -> Outcome<Values> {
    let producer = log.producer().open()?;
    let mut published = Values::new();
    for flights in flights.chunks(20) {
        let mut deliveries = Vec::new();
        for flight in flights {
            let record = Record::new(&flight.line).timestamp(flight.scheduled);
            deliveries.push(match &flight.tail {
                Some(tail) => producer.send(TOPIC, record.key(tail))?,
                None => producer.send(TOPIC, record)?,
            });
        }
        for (delivery, flight) in deliveries.into_iter().zip(flights) {
            let stored = delivery.wait()?;
            published.entry(stored.partition).or_default().push((stored.offset, flight.line.clone()));
        }
    }
    producer.close()?;
    Ok(published)
}

/// Writes what comes until so many records have come, and keeps their values.
fn tail_until(mut reader: Reader, total: usize, out: &mut impl Write) -> Outcome<Values> {
    let (mut count, mut tailed) = (0, Values::new());
    while count < total {
        let polled = reader.poll(PATIENCE)?;
        if polled.is_empty() {
            return Err(format!("only {count} of {total} records came").into());
        }
        count += tail::write(&polled, out)?;
        for record in &polled {
            let value = record.value_str().ok_or("a flight without a value")?;
            tailed.entry(polled.partition()).or_default().push((record.offset(), value.to_owned()));
        }
    }
    Ok(tailed)
}
