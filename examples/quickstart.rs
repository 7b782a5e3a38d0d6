//! Publishes real events to one partition, reads them back, and replays from the middle.
//!
//! ```text
//! cargo run --release --example quickstart                       the flights of examples/data
//! cargo run --release --example quickstart -- PATH               another file of that shape
//! cargo run --release --example quickstart -- --data DIR         keeps the log in DIR/flights-0
//! ```
//!
//! Each flight is a record: the key is the aircraft (`tail`), the time is the scheduled departure, the value is the
//! line. What was published must come back whole, and each aircraft's flights in the order in which they were sent.
//! Run again on the same directory it appends the file behind what is there, and reads and checks its own part.

#[path = "shared/flights.rs"]
mod flights;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;

use flights::Flight;
use taffrail::{BatchBuilder, Offset, Partition, PartitionConfig, ReadOptions, Record, RecordView};

type Outcome<T> = Result<T, Box<dyn Error>>;

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");
const BATCH_RECORDS: usize = 100;

fn main() -> Outcome<()> {
    let (path, data) = arguments()?;
    let flights = flights::read(&path)?;
    // Dropped at the end, a temporary directory goes with all that is in it.
    let temporary = tempfile::tempdir()?;
    let directory = data.unwrap_or_else(|| temporary.path().to_owned()).join("flights-0");

    // The default keeps records for ever. (These are of 2013: an age limit would take them at once.)
    let partition = Partition::open(&directory, PartitionConfig::default())?;
    let published = publish(&partition, &flights)?;
    println!("published offsets {} to {} in {}", published.start, published.end, directory.display());

    let (read, keys) = check(&partition, &published, &flights)?;
    replay_by_offset(&partition, &published, &flights)?;
    replay_by_time(&partition, &flights)?;

    let end = partition.end();
    partition.close()?;
    let reopened = Partition::open(&directory, PartitionConfig::default())?;
    ensure(reopened.end() == end && reopened.recovery().clean, || "the log does not end where it was closed".into())?;
    println!("closed and opened again: offsets {} to {}", reopened.start(), reopened.end());

    println!("published {}, read {read}, keys {keys}, order kept", flights.len());
    Ok(())
}

/// The file to publish, and the directory to keep the log in.
fn arguments() -> Outcome<(PathBuf, Option<PathBuf>)> {
    let (mut path, mut data) = (None, None);
    let mut arguments = std::env::args().skip(1);
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

/// Appends all flights in batches, and waits once until the last one is stored: then all are.
fn publish(partition: &Partition, flights: &[Flight]) -> Outcome<Range<Offset>> {
    let first = partition.end();
    let mut batch = BatchBuilder::new();
    for flights in flights.chunks(BATCH_RECORDS) {
        for flight in flights {
            let record = Record::new(&flight.line).timestamp(flight.scheduled);
            match &flight.tail {
                Some(tail) => batch.push(&record.key(tail))?,
                None => batch.push(&record)?,
            }
        }
        let _has_its_offsets = partition.append(&mut batch)?;
    }
    partition.sync()?;
    Ok(first..partition.end())
}

/// Shows every record of a range of offsets to `visit`, and says how many there were.
fn read_range(
    partition: &Partition,
    range: Range<Offset>,
    mut visit: impl FnMut(&RecordView<'_>) -> Outcome<()>,
) -> Outcome<usize> {
    let (mut offset, mut count) = (range.start, 0);
    while offset < range.end {
        let fetched = partition.read(offset, ReadOptions::default())?;
        for record in fetched.records().take_while(|record| record.offset() < range.end) {
            visit(&record)?;
            count += 1;
        }
        ensure(fetched.next_offset() > offset, || format!("reading stops at offset {offset}"))?;
        offset = fetched.next_offset();
    }
    Ok(count)
}

/// Reads what was published and checks it aircraft by aircraft: nothing is missing, added, changed or out of order.
/// Says how many records there were, and how many keys.
fn check(partition: &Partition, published: &Range<Offset>, flights: &[Flight]) -> Outcome<(usize, usize)> {
    let mut expected: BTreeMap<Option<String>, VecDeque<&Flight>> = BTreeMap::new();
    for flight in flights {
        expected.entry(flight.tail.clone()).or_default().push_back(flight);
    }
    let keys = expected.keys().flatten().count();
    let read = read_range(partition, published.clone(), |record| {
        let tail = record.key().map(|key| String::from_utf8(key.to_vec())).transpose()?;
        let flight = expected.get_mut(&tail).and_then(VecDeque::pop_front);
        ensure(flight.is_some_and(|flight| is(record, flight)), || {
            format!("offset {} is not the next flight of {tail:?}", record.offset())
        })
    })?;
    let missing: usize = expected.values().map(VecDeque::len).sum();
    ensure(missing == 0, || format!("{missing} flights did not come back"))?;
    Ok((read, keys))
}

fn is(record: &RecordView<'_>, flight: &Flight) -> bool {
    record.value_str() == Some(&flight.line) && record.timestamp() == Some(flight.scheduled)
}

/// Reads the second half again, by its offset.
fn replay_by_offset(partition: &Partition, published: &Range<Offset>, flights: &[Flight]) -> Outcome<()> {
    let middle = flights.len() / 2;
    let first = Offset(published.start.0 + u64::try_from(middle)?);
    let mut rest = flights[middle..].iter();
    let count = read_range(partition, first..published.end, |record| {
        ensure(rest.next().is_some_and(|flight| is(record, flight)), || {
            format!("offset {} is another flight than before", record.offset())
        })
    })?;
    println!("replayed from offset {first}: {count} records");
    ensure(rest.next().is_none(), || "the replay by offset ends early".into())
}

/// Reads again from the scheduled departure of the flight in the middle: no earlier record is at or after it.
fn replay_by_time(partition: &Partition, flights: &[Flight]) -> Outcome<()> {
    let Some(middle) = flights.get(flights.len() / 2) else { return Ok(()) };
    let time = middle.scheduled;
    let found = partition.find_timestamp(time)?.ok_or("no record is as late as the flight in the middle")?;
    read_range(partition, partition.start()..found.offset, |record| {
        ensure(record.timestamp() < Some(time), || format!("offset {} is late enough already", record.offset()))
    })?;
    let mut first = None;
    let count = read_range(partition, found.offset..partition.end(), |record| {
        first = first.or(record.timestamp());
        Ok(())
    })?;
    println!("replayed from time {time}: {count} records, from offset {}", found.offset);
    ensure(first == Some(found.timestamp) && first >= Some(time), || "the replay by time begins early".into())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what().into()) }
}
