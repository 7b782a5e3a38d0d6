//! The rows: their names, what each moves, and which loops it sets beside each other.

use tempfile::TempDir;

use crate::arguments::Arguments;
use crate::measure::{Prepared, Row, Side, Unit};
use crate::work::{Shape, SyncShape};
use crate::{ours, raw, raw_sync};

/// Every row, in the order in which they are printed.
pub(crate) fn all(arguments: &Arguments) -> Vec<Row> {
    let noise = arguments.noise;
    let append_bytes = arguments.choose(256 << 20, 64 << 20);
    let append = |name, record_bytes, batch_records, bytes: usize| {
        let shape = Shape { record_bytes, batch_records, batches: bytes / (record_bytes * batch_records) };
        append_row(name, shape, noise)
    };
    let sync_operations = arguments.choose(4096, 1024);
    let sync = |name, threads, files, operations| {
        sync_row(name, SyncShape { record_bytes: 1024, threads, files, operations }, noise)
    };
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
    ]
}

/// The names of all rows.
pub(crate) fn names(arguments: &Arguments) -> Vec<&'static str> {
    all(arguments).iter().map(|row| row.name).collect()
}

/// A directory that goes when the side does.
fn side_in(make: impl Fn(std::path::PathBuf) -> Side) -> Side {
    let directory = TempDir::new().expect("a temporary directory can be made");
    let mut side = make(directory.path().to_owned());
    Box::new(move || {
        let _ = &directory;
        side()
    })
}

fn append_row(name: &'static str, shape: Shape, noise: bool) -> Row {
    Row {
        name,
        unit: Unit::Bytes,
        rounds: (21, 7),
        prepare: Box::new(move || {
            let raw = |directory| raw::append(directory, shape);
            let ours = side_in(|directory| if noise { raw(directory) } else { ours::append(directory, shape) });
            Prepared { work: shape.payload(), ours, raw: side_in(raw) }
        }),
    }
}

fn sync_row(name: &'static str, shape: SyncShape, noise: bool) -> Row {
    Row {
        name,
        unit: Unit::Operations,
        rounds: (15, 5),
        prepare: Box::new(move || {
            let raw = |directory| raw_sync::appends(directory, shape);
            let ours = side_in(|directory| if noise { raw(directory) } else { ours::appends(directory, shape) });
            Prepared { work: shape.operations as u64, ours, raw: side_in(raw) }
        }),
    }
}
