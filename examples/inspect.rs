//! Shows what lies in a partition's directory: segments, batches, index entries, and what is wrong.
//!
//! ```text
//! cargo run --release --example inspect -- DIR                  for a person
//! cargo run --release --example inspect -- DIR --json           one JSON object per batch, a line each
//! cargo run --release --example inspect -- DIR --export COPY    a copy for a broker
//! cargo run --release --example inspect                         writes a small partition and inspects that
//! ```
//!
//! It never writes into what it inspects: it takes no lock, opens nothing for writing and repairs nothing, so it can
//! be used on a broker's directory, on a partition that is open elsewhere, and on one that was damaged. It ends with
//! a failure where something is wrong.
//!
//! To hand a topic to a broker: close the log, create the topic there with as many partitions, stop the broker, export
//! each partition (`<log>/<topic>-<number>`) into the broker's directory of it (`<log.dir>/<topic>-<number>`), start the
//! broker. The way back needs no tool: a copy of a broker's partition directory opens as it is, and a log adopts it.

#[path = "shared/inspect/mod.rs"]
mod inspect;
#[path = "shared/program.rs"]
pub(crate) mod program;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use inspect::{Event, Printer, batch_as_json};
use program::Outcome;
use taffrail::{BatchBuilder, Compression, Offset, Partition, PartitionConfig, Record, RecordView, Timestamp};

pub(crate) const USAGE: &str = "\
usage: inspect                     writes a small partition, and inspects that
       inspect DIR [--json]        shows what lies in a partition's directory; as JSON, an object a line for each batch
       inspect DIR --export COPY   copies it for a broker

Nothing is written into DIR. It ends with a failure where something is wrong.";

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

pub(crate) fn work(arguments: Vec<String>) -> Outcome<ExitCode> {
    let (mut directory, mut json, mut copy) = (None, false, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--export" => copy = Some(PathBuf::from(arguments.next().ok_or("--export needs a directory")?)),
            flag if flag.starts_with('-') => return Err(format!("{flag} is not known: --json and --export are").into()),
            other => directory = Some(PathBuf::from(other)),
        }
    }
    match (directory, copy) {
        (None, None) if !json => demonstrate(),
        (None, _) => Err("which directory?".into()),
        (Some(directory), Some(copy)) => export(&directory, &copy),
        (Some(directory), None) if json => print_json(&directory),
        (Some(directory), None) => print_text(&directory),
    }
}

fn code(is_sound: bool) -> ExitCode {
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_text(directory: &Path) -> Outcome<ExitCode> {
    let mut printer = Printer::new(io::BufWriter::new(io::stdout().lock()));
    let summary = inspect::inspect(directory, |event| printer.event(&event))?;
    printer.summary(&summary)?;
    Ok(code(summary.wrong.is_empty()))
}

/// Batches go to the standard output, what is wrong to the standard error.
fn print_json(directory: &Path) -> Outcome<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut outcome = Ok(());
    let summary = inspect::inspect(directory, |event| {
        if let (Event::Batch { segment, position, batch }, Ok(())) = (event, &outcome) {
            outcome = writeln!(out, "{}", batch_as_json(segment, position, &batch));
        }
    })?;
    outcome?;
    out.flush()?;
    for wrong in &summary.wrong {
        eprintln!("wrong: {wrong}");
    }
    Ok(code(summary.wrong.is_empty()))
}

fn export(directory: &Path, copy: &Path) -> Outcome<ExitCode> {
    let mut out = io::stdout();
    for note in inspect::export(directory, copy)? {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "copied {} to {}", directory.display(), copy.display())?;
    Ok(ExitCode::SUCCESS)
}

/// A record as the demonstration writes it, and as it is read back.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    offset: Offset,
    timestamp: Option<Timestamp>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Written {
    fn of(record: &RecordView<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = record.headers().map(|header| (header.name().to_vec(), owned(header.value())));
        Self {
            offset: record.offset(),
            timestamp: record.timestamp(),
            key: owned(record.key()),
            value: owned(record.value()),
            headers: headers.collect(),
        }
    }
}

/// Writes a small partition, inspects it while it is open, and compares.
fn demonstrate() -> Outcome<ExitCode> {
    let temporary = tempfile::tempdir()?;
    let directory = temporary.path().join("orders-0");
    let partition = Partition::open(&directory, PartitionConfig::new().index_interval_bytes(512))?;
    let (mut batches, mut written) = (0, Vec::new());
    for (number, codec) in codecs().into_iter().cycle().take(10).enumerate() {
        let mut batch = BatchBuilder::new().compression(codec);
        fill(&mut batch, number, partition.end(), &mut written)?;
        partition.append(&mut batch)?.wait()?;
        batches += 1;
        if number == 5 {
            partition.roll()?;
        }
    }

    let (mut read_batches, mut read) = (0, Vec::new());
    let mut printer = Printer::new(io::stdout().lock());
    let summary = inspect::inspect(&directory, |event| {
        printer.event(&event);
        if let Event::Batch { batch, .. } = event {
            read_batches += 1;
            read.extend(batch.records().map(|record| Written::of(&record)));
        }
    })?;
    printer.summary(&summary)?;
    if read_batches != batches || read != written || !summary.wrong.is_empty() {
        return Err("what was read is not what was written".into());
    }
    writeln!(io::stdout(), "read {read_batches} batches with {} records: equal to what was written", read.len())?;
    Ok(ExitCode::SUCCESS)
}

/// Those that are compiled in.
fn codecs() -> Vec<Compression> {
    let all = [
        (true, Compression::None),
        (cfg!(feature = "gzip"), Compression::Gzip),
        (cfg!(feature = "snappy"), Compression::Snappy),
        (cfg!(feature = "lz4"), Compression::Lz4),
        (cfg!(feature = "zstd"), Compression::Zstd),
    ];
    all.into_iter().filter_map(|(is_there, codec)| is_there.then_some(codec)).collect()
}

/// A few records of each kind: with a key and headers, without a key, and a tombstone.
fn fill(batch: &mut BatchBuilder, number: usize, end: Offset, written: &mut Vec<Written>) -> Outcome<()> {
    let first_time = 1_700_000_000_000 + 1000 * i64::try_from(number)?;
    for (place, time) in (0..6_u64).zip(first_time..) {
        let (key, value) = (format!("order-{place}"), format!("state {number} of order {place}, ").repeat(8));
        let (offset, timestamp) = (end.plus(place), Timestamp(time));
        let record = match place {
            4 => Record::new(&value),
            5 => Record::tombstone(&key),
            _ => Record::new(&value).key(&key).header("source", "web").null_header("trace"),
        };
        batch.push(&record.timestamp(timestamp))?;
        let with_headers = place < 4;
        written.push(Written {
            offset,
            timestamp: Some(timestamp),
            key: (place != 4).then(|| key.into_bytes()),
            value: (place != 5).then(|| value.into_bytes()),
            headers: if with_headers {
                vec![(b"source".to_vec(), Some(b"web".to_vec())), (b"trace".to_vec(), None)]
            } else {
                Vec::new()
            },
        });
    }
    Ok(())
}
