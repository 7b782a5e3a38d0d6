//! The rows: their names, what each moves, and which loops it sets beside each other.

use std::fs;
use std::path::{Path, PathBuf};

use taffrail::Reads;
use tempfile::TempDir;

use crate::arguments::Arguments;
use crate::beside::{self, Beside, Work};
use crate::measure::{Prepared, Row, Side, Unit};
use crate::work::{Shape, SyncShape};
use crate::{compaction, groups, ours, raw, raw_sync, topics, transactions};

/// Every row, in the order in which they are printed.
pub(crate) fn all(arguments: &Arguments) -> Vec<Row> {
    let noise = arguments.noise;
    let append_bytes = arguments.choose(256 << 20, 64 << 20);
    let append = |name, record_bytes, batch_records, bytes: usize| {
        let shape = Shape { record_bytes, batch_records, batches: bytes / (record_bytes * batch_records) };
        append_row(name, shape, noise)
    };
    let sync_operations = arguments.choose(4096, 512);
    let sync = |name, threads, files, operations| {
        let window = (threads > 1 && !arguments.filled).then_some(WINDOW_BYTES);
        sync_row(name, SyncShape { record_bytes: 1024, threads, files, operations, window }, noise)
    };
    let log_bytes = arguments.choose(256 << 20, 64 << 20);
    let read =
        |name, record_bytes, reads, visit| read_row(name, ReadShape { record_bytes, log_bytes, reads, visit }, noise);
    let batches = arguments.choose(2000, 500);
    vec![
        append("append 1 KiB batch 100", 1024, 100, append_bytes),
        append("append 1 KiB batch 1", 1024, 1, append_bytes),
        append("append 100 B batch 100", 100, 100, append_bytes),
        append("append 100 B batch 1", 100, 1, append_bytes / 8),
        sync("sync 1 thread", 1, 1, sync_operations),
        sync("sync 8 threads 1 partition", 8, 1, sync_operations * 2),
        sync("sync 32 threads 1 partition", 32, 1, sync_operations * 8),
        sync("sync 8 threads 8 partitions", 8, 8, sync_operations * 2),
        sync("sync 32 threads 8 partitions", 32, 8, sync_operations * 4),
        read("read 1 KiB", 1024, Reads::Mapped, Visit::Touch),
        read("read 1 KiB buffered", 1024, Reads::Buffered, Visit::Touch),
        read("iterate 1 KiB", 1024, Reads::Mapped, Visit::Look),
        read("iterate 100 B", 100, Reads::Mapped, Visit::Look),
        open_row("open after crash", log_bytes, noise),
        producer_row("producer 1 KiB batch 1", 1, arguments.choose(256 << 10, 64 << 10), noise),
        producer_row("producer 1 KiB 200 partitions", 200, arguments.choose(1 << 20, 256 << 10), noise),
        transactions_row(arguments.choose(200, 50), noise),
        synced_transactions_row(arguments.choose(512, 128), noise),
        idempotent_row("append idempotent against plain 1 KiB batch 100", 1024, 100, append_bytes, noise),
        idempotent_row("append idempotent against plain 100 B batch 1", 100, 1, append_bytes / 8, noise),
        producers_row("producer idempotent against plain", 1, arguments.choose(256 << 10, 64 << 10), noise),
        producers_row("producer idempotent against plain 200", 200, arguments.choose(1 << 20, 256 << 10), noise),
        compaction_row(arguments.choose(256 << 10, 64 << 10), noise),
        group_read_row(log_bytes / 1024, noise),
        commit_row("commit 1 member, synced", 1, sync_operations, noise),
        commit_row("commit 32 threads, synced", 32, sync_operations * 8, noise),
        commit_async_row(sync_operations * 4, noise),
        beside_row("append beside a scan", batches, Work::Append, [Beside::Scan, Beside::RawScan], noise),
        beside_row("tail beside a scan", batches, Work::Tail, [Beside::Scan, Beside::RawScan], noise),
        beside_row("append beside a held batch", batches, Work::Append, [Beside::Held, Beside::Nothing], noise),
    ]
}

/// The names of all rows.
pub(crate) fn names(arguments: &Arguments) -> Vec<&'static str> {
    all(arguments).iter().map(|row| row.name).collect()
}

/// What is done with each record that was read.
#[derive(Clone, Copy)]
enum Visit {
    /// Every byte of it is touched.
    Touch,
    /// Its key and value are looked at as slices.
    Look,
}

/// How a row reads a log.
#[derive(Clone, Copy)]
struct ReadShape {
    record_bytes: usize,
    log_bytes: usize,
    reads: Reads,
    visit: Visit,
}

/// The window of zeros that a synced partition keeps in front of its end.
const WINDOW_BYTES: u64 = 512 << 10;
/// What is read at a time. Mapped, little enough that who visits the records finds them in the cache.
pub(crate) const fn read_bytes(reads: Reads) -> usize {
    if matches!(reads, Reads::Buffered) { 1 << 20 } else { 256 << 10 }
}

fn temporary() -> TempDir {
    TempDir::new().expect("a temporary directory can be made")
}

fn bytes_in(path: &Path) -> u64 {
    fs::metadata(path).expect("the file is there").len()
}

/// A side that keeps its directory as long as it lives.
fn keeping(directory: TempDir, mut side: Side) -> Side {
    Box::new(move || {
        let _kept = &directory;
        side()
    })
}

/// A side in a directory of its own.
fn side_in(make: impl FnOnce(PathBuf) -> Side) -> Side {
    let directory = temporary();
    let side = make(directory.path().to_owned());
    keeping(directory, side)
}

fn compaction_row(records: usize, noise: bool) -> Row {
    let prepare = move || {
        let directory = temporary();
        let (work, ours) = compaction::ours(directory.path(), records);
        let raw = || side_in(move |directory| compaction::raw(&directory, work));
        let ours = if noise { raw() } else { ours };
        Prepared { work, ours: keeping(directory, ours), raw: raw() }
    };
    Row { name: compaction::NAME, unit: Unit::Bytes, rounds: (11, 5), prepare: Box::new(prepare) }
}

fn append_row(name: &'static str, shape: Shape, noise: bool) -> Row {
    let raw = move |directory: PathBuf| raw::append(directory, shape);
    let ours = move |directory: PathBuf| if noise { raw(directory) } else { ours::append(&directory, shape) };
    Row {
        name,
        unit: Unit::Bytes,
        rounds: (21, 7),
        prepare: Box::new(move || Prepared { work: shape.payload(), ours: side_in(ours), raw: side_in(raw) }),
    }
}

fn sync_row(name: &'static str, shape: SyncShape, noise: bool) -> Row {
    let raw = move |directory| raw_sync::appends(directory, shape);
    let ours = move |directory| if noise { raw(directory) } else { ours::appends(directory, shape) };
    let work = shape.operations as u64;
    Row {
        name,
        unit: Unit::Operations,
        rounds: (15, 5),
        prepare: Box::new(move || Prepared { work, ours: side_in(ours), raw: side_in(raw) }),
    }
}

/// Records one by one through a producer, beside the raw loop that writes one by one, or to as many files.
fn producer_row(name: &'static str, partitions: u32, records: usize, noise: bool) -> Row {
    let shape = Shape { record_bytes: 1024, batch_records: 1, batches: records };
    let raw = move |directory: PathBuf| match partitions {
        1 => raw::append(directory, shape),
        files => topics::write(&directory, files as usize, records),
    };
    let ours = move |path: PathBuf| if noise { raw(path) } else { topics::send(&path, partitions, records, true) };
    Row {
        name,
        unit: Unit::Operations,
        rounds: (15, 5),
        prepare: Box::new(move || Prepared { work: records as u64, ours: side_in(ours), raw: side_in(raw) }),
    }
}

/// Transactions of 1,000 records, beside plain sends of the same.
fn transactions_row(count: usize, noise: bool) -> Row {
    let plain = move |directory: PathBuf| transactions::plain(&directory, count);
    let ours = move |path: PathBuf| if noise { plain(path) } else { transactions::transactions(&path, count) };
    Row {
        name: "transactions of 1000 records",
        unit: Unit::Operations,
        rounds: (15, 5),
        prepare: Box::new(move || Prepared { work: count as u64, ours: side_in(ours), raw: side_in(plain) }),
    }
}

/// Transactions of one record, beside one synced write each.
fn synced_transactions_row(operations: usize, noise: bool) -> Row {
    let shape = SyncShape { record_bytes: 1024, threads: 1, files: 1, operations, window: None };
    let raw = move |directory: PathBuf| raw_sync::appends(directory, shape);
    let ours = move |path: PathBuf| if noise { raw(path) } else { transactions::synced(&path, operations) };
    Row {
        name: transactions::SYNCED,
        unit: Unit::Operations,
        rounds: (9, 3),
        prepare: Box::new(move || Prepared { work: operations as u64, ours: side_in(ours), raw: side_in(raw) }),
    }
}

/// Batches of an idempotent producer, beside the same without one.
fn idempotent_row(name: &'static str, record_bytes: usize, batch_records: usize, bytes: usize, noise: bool) -> Row {
    let shape = Shape { record_bytes, batch_records, batches: bytes / (record_bytes * batch_records) };
    let plain = move |directory: PathBuf| ours::append(&directory, shape);
    let idempotent = move |path: PathBuf| if noise { plain(path) } else { ours::append_idempotent(&path, shape) };
    Row {
        name,
        unit: Unit::Bytes,
        rounds: (21, 7),
        prepare: Box::new(move || Prepared { work: shape.payload(), ours: side_in(idempotent), raw: side_in(plain) }),
    }
}

/// Records through an idempotent producer, beside the same through one that is not.
fn producers_row(name: &'static str, partitions: u32, records: usize, noise: bool) -> Row {
    let side = move |idempotent| move |path: PathBuf| topics::send(&path, partitions, records, idempotent);
    Row {
        name,
        unit: Unit::Operations,
        rounds: (21, 7),
        prepare: Box::new(move || Prepared {
            work: records as u64,
            ours: side_in(side(!noise)),
            raw: side_in(side(false)),
        }),
    }
}

/// Reading through a group, beside reading the same partitions directly.
fn group_read_row(records: usize, noise: bool) -> Row {
    let prepare = move || {
        let directory = temporary();
        let log = groups::topic_to_read(directory.path(), records);
        let by = if noise { groups::By::Reader } else { groups::By::Group };
        let ours = groups::read(log.clone(), records, by);
        let raw = groups::read(log, records, groups::By::Reader);
        Prepared { work: (records * 1024) as u64, ours: keeping(directory, ours), raw }
    };
    Row { name: "read through a group 1 KiB", unit: Unit::Bytes, rounds: (15, 7), prepare: Box::new(prepare) }
}

/// Commits, each waited for and synced, beside the raw loop of as many threads.
fn commit_row(name: &'static str, threads: usize, operations: usize, noise: bool) -> Row {
    let window = (threads > 1).then_some(WINDOW_BYTES);
    let shape = SyncShape { record_bytes: groups::COMMIT_BYTES, threads, files: 1, operations, window };
    let raw = move |directory: PathBuf| raw_sync::appends(directory, shape);
    let ours = move |path: PathBuf| match threads {
        _ if noise => raw(path),
        1 => groups::commits(&path, operations),
        threads => groups::commits_at_once(&path, threads, operations),
    };
    let work = operations as u64;
    let prepare = move || Prepared { work, ours: side_in(ours), raw: side_in(raw) };
    Row { name, unit: Unit::Operations, rounds: (15, 5), prepare: Box::new(prepare) }
}

/// Commits that nobody waits for, one behind each poll, beside the raw loop that waits for each sync.
fn commit_async_row(operations: usize, noise: bool) -> Row {
    let window = None;
    let shape = SyncShape { record_bytes: groups::COMMIT_BYTES, threads: 1, files: 1, operations, window };
    let raw = move |directory: PathBuf| raw_sync::appends(directory, shape);
    let ours = move |path: PathBuf| if noise { raw(path) } else { groups::commits_async(&path, operations) };
    let work = operations as u64;
    let prepare = move || Prepared { work, ours: side_in(ours), raw: side_in(raw) };
    Row { name: "commit not waited for, synced", unit: Unit::Operations, rounds: (9, 3), prepare: Box::new(prepare) }
}

/// The same work on a partition of ours, beside two different things.
fn beside_row(name: &'static str, batches: usize, work: Work, beside: [Beside; 2], noise: bool) -> Row {
    const OLD_BYTES: usize = 128 << 20;
    let [ours, other] = beside;
    let side = move |what| move |path: PathBuf| beside::side(&path, OLD_BYTES, batches, work, what);
    let ours = if noise { other } else { ours };
    Row {
        name,
        unit: Unit::Operations,
        rounds: (15, 5),
        prepare: Box::new(move || Prepared {
            work: batches as u64,
            ours: side_in(side(ours)),
            raw: side_in(side(other)),
        }),
    }
}

/// Both sides read one file: the log that ours wrote.
fn read_row(name: &'static str, shape: ReadShape, noise: bool) -> Row {
    let prepare = move || {
        let directory = temporary();
        let log = ours::log_to_read(directory.path(), shape.record_bytes, shape.log_bytes);
        let raw = || match shape.reads {
            Reads::Buffered => raw::scan_buffered(&log, read_bytes(Reads::Buffered)),
            _ => raw::scan_mapped(&log),
        };
        let ours = match shape.visit {
            _ if noise => raw(),
            Visit::Touch => ours::read(&log, shape.reads),
            Visit::Look => ours::iterate(&log, shape.reads),
        };
        Prepared { work: bytes_in(&log), ours, raw: keeping(directory, raw()) }
    };
    Row { name, unit: Unit::Bytes, rounds: (15, 7), prepare: Box::new(prepare) }
}

/// Both sides work through one file: the log whose tail was not synced.
fn open_row(name: &'static str, tail_bytes: usize, noise: bool) -> Row {
    let prepare = move || {
        let directory = temporary();
        let crashed = ours::Crashed::new(directory.path(), tail_bytes);
        let tail = crashed.tail_log();
        let ours = if noise { raw::check(&tail) } else { crashed.open() };
        Prepared { work: bytes_in(&tail), ours, raw: keeping(directory, raw::check(&tail)) }
    };
    Row { name, unit: Unit::Bytes, rounds: (15, 5), prepare: Box::new(prepare) }
}
