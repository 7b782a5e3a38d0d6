//! Segments to test on: three storages, batches of a wanted size, files put and taken.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use taffrail::{
    BatchBuilder, BatchHeader, FileStorage, LeaderEpoch, MemoryStorage, Offset, ReadBounds, Reads, Record, Segment,
    SegmentConfig, SegmentReader, Storage, Timestamp,
};

/// The epoch of every batch that [`batch`] makes.
pub(crate) const EPOCH: LeaderEpoch = LeaderEpoch(7);

/// A directory on some storage.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) directory: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

/// Memory, mapped files, files read by system calls.
pub(crate) fn rigs() -> Vec<Rig> {
    let files = |name, reads| {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        Rig { name, storage: Arc::new(FileStorage::new().reads(reads)), directory, _temporary: Some(temporary) }
    };
    vec![memory(), files("mapped", Reads::Mapped), files("buffered", Reads::Buffered)]
}

pub(crate) fn memory() -> Rig {
    on(&MemoryStorage::new(1))
}

/// The root directory of `storage`.
pub(crate) fn on(storage: &MemoryStorage) -> Rig {
    Rig { name: "memory", storage: storage.shared(), directory: PathBuf::from("/"), _temporary: None }
}

impl Rig {
    pub(crate) fn path(&self, base: u64, extension: &str) -> PathBuf {
        self.directory.join(format!("{base:020}.{extension}"))
    }

    /// The bytes of a file, if it is there.
    pub(crate) fn take(&self, base: u64, extension: &str) -> Option<Vec<u8>> {
        let file = self.storage.open(&self.path(base, extension), 0).ok()?;
        Some(file.read(0..file.len().unwrap()).unwrap().to_vec())
    }

    /// Makes a file consist of `bytes`; another file than the one that was there.
    pub(crate) fn put(&self, base: u64, extension: &str, bytes: &[u8]) {
        self.remove(base, extension);
        let file = self.storage.create(&self.path(base, extension), 0).unwrap();
        file.write(0, &[IoSlice::new(bytes)]).unwrap();
    }

    pub(crate) fn remove(&self, base: u64, extension: &str) {
        let _ = self.storage.remove(&self.path(base, extension));
    }

    pub(crate) fn create(&self, base: u64, config: &SegmentConfig) -> Segment {
        Segment::create(&self.storage, &self.directory, Offset(base), config, Timestamp(0)).unwrap()
    }

    pub(crate) fn load(&self, base: u64, config: &SegmentConfig) -> Segment {
        let path = self.path(base, "log");
        let len = self.storage.list(&self.directory).unwrap().into_iter();
        let len = len.filter(|e| Path::new(&e.name) == path.file_name().unwrap()).map(|e| e.len).sum();
        Segment::load(&self.storage, &self.directory, Offset(base), len, config).unwrap()
    }
}

pub(crate) fn config(interval: u32) -> SegmentConfig {
    SegmentConfig { index_interval_bytes: interval, ..SegmentConfig::default() }
}

/// A batch of `records` records from `base` on, all with `timestamp`, that is at least `size` bytes long.
pub(crate) fn batch(base: u64, records: u64, size: usize, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.base_offset(Offset(base));
    builder.leader_epoch(EPOCH);
    for number in 1..=records {
        let missing = if number == records { size.saturating_sub(builder.size_bytes() + 7) } else { 0 };
        let mut value = vec![b'v'; missing];
        if missing > 56 {
            value.truncate(missing - 2);
        }
        builder.push(&Record::new(&value).timestamp(Timestamp(timestamp))).unwrap();
    }
    builder.encode().unwrap().to_vec()
}

pub(crate) fn header(bytes: &[u8]) -> BatchHeader {
    BatchHeader::parse(bytes).unwrap()
}

/// Appends one batch and returns its header.
pub(crate) fn append(segment: &mut Segment, bytes: &[u8]) -> BatchHeader {
    let header = header(bytes);
    segment.append(bytes, &[header]).unwrap();
    header
}

/// Everything that can be read from `from` on, in answers of at most `max_bytes`.
pub(crate) fn read_all(
    reader: &SegmentReader,
    from: Offset,
    max_bytes: usize,
    bounds: &ReadBounds<'_>,
) -> taffrail::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut next = from;
    loop {
        let found = reader.read(next, max_bytes, bounds)?;
        all.extend(found.batches.iter().map(|batch| batch.bytes().to_vec()));
        if found.end_of_segment || found.batches.is_empty() {
            return Ok(all);
        }
        next = found.next;
    }
}
