//! Publishes real events to a topic, reads them back, and replays from the middle.
//!
//! ```text
//! cargo run --release --example quickstart                       the flights of examples/data
//! cargo run --release --example quickstart -- PATH               another file of that shape
//! cargo run --release --example quickstart -- --data DIR         keeps the log in DIR
//! ```
//!
//! Each flight is a record: the key is the aircraft (`tail`), the time is the scheduled departure, the value is the
//! line. What was published must come back whole, and each aircraft's flights in the order in which they were sent.
//! Run again on the same directory it publishes the file behind what is there, and reads and checks its own part.

#[path = "shared/flights.rs"]
pub(crate) mod flights;
#[path = "shared/place.rs"]
mod place;
#[path = "shared/program.rs"]
pub(crate) mod program;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use flights::Flight;
use program::Outcome;
use taffrail::{Log, Offset, Reader, Record, RecordView, Retention, TopicConfig, TopicPartition};

pub(crate) const USAGE: &str = "\
usage: quickstart [PATH] [--data DIR]

Publishes the flights in PATH, a JSON object a line (without it those of examples/data), reads them back and checks them.
The log is kept in DIR; without it, it goes at the end.";

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");
const TOPIC: &str = "flights";
const PARTITIONS: u32 = 8;
/// Everything is there before it is read: who waits as long as this waits for what does not come.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

pub(crate) fn work(arguments: Vec<String>) -> Outcome<()> {
    let (path, data) = parse(arguments)?;
    if let Some(data) = &data {
        check_is_ours(data)?;
    }
    // Dropped at the end, a temporary directory goes with all that is in it.
    let temporary = tempfile::tempdir()?;
    let directory = data.unwrap_or_else(|| temporary.path().join("log"));
    let mut out = io::stdout();
    let summary = run(&path, &directory, &mut out)?;
    Ok(writeln!(out, "{summary}")?)
}

/// The file to publish, and the directory to keep the log in.
fn parse(arguments: Vec<String>) -> Outcome<(PathBuf, Option<PathBuf>)> {
    let (mut path, mut data) = (None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--data" => data = Some(PathBuf::from(arguments.next().ok_or("--data needs a directory")?)),
            flag if flag.starts_with('-') => return Err(format!("{flag} is not known: PATH and --data DIR are").into()),
            other if path.is_none() => path = Some(PathBuf::from(other)),
            other => return Err(format!("one file at a time: what is {other:?} for?").into()),
        }
    }
    Ok((path.unwrap_or_else(|| FLIGHTS.into()), data))
}

/// A directory becomes a log if it is new or empty.
fn check_is_ours(directory: &Path) -> Outcome<()> {
    if !directory.is_dir() || place::is_log(directory)? || directory.read_dir()?.next().is_none() {
        return Ok(());
    }
    Err(format!("{} holds something else than a log", directory.display()).into())
}

/// What was done, once all of it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) published: usize,
    pub(crate) read: usize,
    pub(crate) keys: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published {}, read {}, keys {}, order kept", self.published, self.read, self.keys)
    }
}

/// Publishes the file to the log in `directory`, checks what comes back, and says on the way what has been done.
pub(crate) fn run(path: &Path, directory: &Path, out: &mut impl Write) -> Outcome<Summary> {
    let flights = flights::read(path)?;
    let log = Log::open(directory)?;
    // A topic keeps its records for 7 days unless told otherwise, and their age goes by their own time: flights of 2013
    // would be removed at once. So this topic keeps them for ever.
    let config = TopicConfig::new().partitions(PARTITIONS).retention(Retention::forever());
    let ensured = log.ensure_topic(TOPIC, config)?;
    ensure(ensured.differences.is_empty(), || format!("{TOPIC:?} is there, with {:?}", ensured.differences))?;

    let published = publish(&log, &flights)?;
    writeln!(out, "published {} flights to {PARTITIONS} partitions in {}", flights.len(), directory.display())?;
    let summary = check(&log, &published, &flights)?;
    let replayed = replay_by_offset(&log, &published)?;
    writeln!(out, "replayed from the middle of each partition, by offset: {replayed} records")?;
    if let Some(replayed) = replay_by_time(&log, &flights)? {
        writeln!(out, "{replayed}")?;
    }

    let ends = ends(&log)?;
    log.close()?;
    let reopened = Log::open(directory)?;
    let clean = (0..PARTITIONS).map(|number| Ok(reopened.partition(TOPIC, number)?.recovery().clean));
    let clean = clean.collect::<taffrail::Result<Vec<_>>>()?;
    ensure(self::ends(&reopened)? == ends && !clean.contains(&false), || "it does not end where it was closed".into())?;
    writeln!(out, "closed and opened again: every partition ends where it did")?;
    reopened.close()?;
    Ok(summary)
}

/// What this run has published to one partition: from which offset on, and in which order.
#[derive(Debug)]
struct Part<'f> {
    first: Offset,
    flights: Vec<&'f Flight>,
}

impl Part<'_> {
    fn offset(&self, index: usize) -> Offset {
        self.first.plus(index as u64)
    }
}

type Parts<'f> = BTreeMap<u32, Part<'f>>;

/// Sends all flights, and returns when they are stored.
fn publish<'f>(log: &Log, flights: &'f [Flight]) -> Outcome<Parts<'f>> {
    let producer = log.producer().open()?;
    let mut deliveries = Vec::with_capacity(flights.len());
    for flight in flights {
        let record = Record::new(&flight.line).timestamp(flight.scheduled);
        deliveries.push(match &flight.tail {
            Some(tail) => producer.send(TOPIC, record.key(tail))?,
            None => producer.send(TOPIC, record)?,
        });
    }
    // One sync for each partition. After it, the deliveries know their offsets without waiting.
    producer.close()?;
    let mut parts = Parts::new();
    for (delivery, flight) in deliveries.into_iter().zip(flights) {
        let stored = delivery.wait()?;
        let part = parts.entry(stored.partition).or_insert(Part { first: stored.offset, flights: Vec::new() });
        ensure(stored.offset == part.offset(part.flights.len()), || format!("{stored:?} is not the next of its part"))?;
        part.flights.push(flight);
    }
    Ok(parts)
}

/// Where each partition ends: the offset that its next record gets.
fn ends(log: &Log) -> Outcome<Vec<Offset>> {
    Ok(log.describe_topic(TOPIC)?.partitions.iter().map(|partition| partition.end).collect())
}

/// Reads what was published: nothing is missing, added or changed, and each aircraft's flights come in order.
fn check(log: &Log, published: &Parts<'_>, flights: &[Flight]) -> Outcome<Summary> {
    let mut expected: BTreeMap<&str, Vec<&Flight>> = BTreeMap::new();
    for (tail, flight) in flights.iter().filter_map(|flight| Some((flight.tail.as_deref()?, flight))) {
        expected.entry(tail).or_default().push(flight);
    }
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    let read = read_from(
        log,
        published,
        |_| 0,
        |record| {
            let Some(key) = record.key() else { return Ok(()) };
            let tail = std::str::from_utf8(key)?;
            let count = came.entry(tail.to_owned()).or_default();
            let flight = expected.get(tail).and_then(|flights| flights.get(*count));
            *count += 1;
            ensure(flight.is_some_and(|flight| is(record, flight)), || {
                format!("offset {} is not the next flight of {tail}", record.offset())
            })
        },
    )?;
    ensure(read == flights.len() && came.len() == expected.len(), || format!("{read} flights came back"))?;
    Ok(Summary { published: flights.len(), read, keys: came.len() })
}

/// Reads the second half of what was published to each partition again, by its offset.
fn replay_by_offset(log: &Log, published: &Parts<'_>) -> Outcome<usize> {
    read_from(log, published, |part| part.flights.len() / 2, |_| Ok(()))
}

/// Reads each partition from the flight on whose index `begin` says to the end, and checks that what comes is what was
/// sent there. Says how many records came.
fn read_from(
    log: &Log,
    published: &Parts<'_>,
    begin: impl Fn(&Part<'_>) -> usize,
    mut visit: impl FnMut(&RecordView<'_>) -> Outcome<()>,
) -> Outcome<usize> {
    let mut next: BTreeMap<u32, usize> = published.iter().map(|(number, part)| (*number, begin(part))).collect();
    let missing: usize = published.iter().map(|(number, part)| part.flights.len() - next[number]).sum();
    if missing == 0 {
        return Ok(0);
    }
    let mut reader = log.reader().partitions(next.keys().map(|number| (TOPIC, *number))).open()?;
    for (number, index) in &next {
        reader.seek(TOPIC, *number, published[number].offset(*index))?;
    }
    let mut count = 0;
    while count < missing {
        let polled = reader.poll(PATIENCE)?;
        ensure(!polled.is_empty(), || format!("{} records do not come", missing - count))?;
        let (part, index) = (&published[&polled.partition()], next.entry(polled.partition()).or_default());
        for record in &polled {
            let flight = part.flights.get(*index);
            ensure(flight.is_some_and(|flight| is(&record, flight) && record.offset() == part.offset(*index)), || {
                format!("partition {}, offset {} is not what was sent there", polled.partition(), record.offset())
            })?;
            visit(&record)?;
            *index += 1;
            count += 1;
        }
    }
    Ok(count)
}

fn is(record: &RecordView<'_>, flight: &Flight) -> bool {
    record.key() == flight.tail.as_deref().map(str::as_bytes)
        && record.value_str() == Some(&flight.line)
        && record.timestamp() == Some(flight.scheduled)
}

/// Reads again from the scheduled departure of the flight in the middle on. In each partition reading begins at the
/// first record that is as late, of whichever run: every record before it is earlier.
fn replay_by_time(log: &Log, flights: &[Flight]) -> Outcome<Option<String>> {
    let Some(middle) = flights.get(flights.len() / 2) else { return Ok(None) };
    let time = middle.scheduled;
    let mut reader = log.reader().topics([TOPIC]).open()?;
    reader.seek_to_time(TOPIC, time)?;
    let begins = positions(&reader)?;
    let mut count = 0;
    visit_all(&mut reader, |number, record| {
        count += 1;
        let is_first = record.offset() == begins[&number];
        ensure(!is_first || record.timestamp() >= Some(time), || format!("partition {number} begins too early"))
    })?;
    reader.seek_to_beginning(TOPIC)?;
    let mut late = 0;
    visit_all(&mut reader, |number, record| {
        late += usize::from(record.timestamp() >= Some(time));
        let is_before = record.offset() < begins[&number];
        ensure(!is_before || record.timestamp() < Some(time), || format!("partition {number} begins too late"))
    })?;
    ensure(late > 0 && count >= late, || format!("{late} records are as late, {count} came"))?;
    Ok(Some(format!("replayed from time {time} on, {} partitions: {count} records", begins.len())))
}

/// Where each partition is read next.
fn positions(reader: &Reader) -> Outcome<BTreeMap<u32, Offset>> {
    let position = |TopicPartition { topic, partition }| Ok((partition, reader.position(&topic, partition)?.offset));
    reader.assignment().into_iter().map(position).collect()
}

/// Shows every record from where the reader is up to the end.
fn visit_all(reader: &mut Reader, mut visit: impl FnMut(u32, &RecordView<'_>) -> Outcome<()>) -> Outcome<()> {
    loop {
        let polled = reader.try_poll()?;
        if polled.is_empty() {
            return Ok(());
        }
        polled.records().try_for_each(|record| visit(polled.partition(), &record))?;
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what().into()) }
}
