//! What the readers of a segment share.
//!
//! Invariants: nothing here takes a lock that an append takes. The published size is one atomic, stored (`Release`)
//! after the bytes it covers were written; the indexes of the segment that is appended to are lists that grow while
//! they are read; whole indexes are exchanged by one pointer. The lock `loading` is for whoever opens or rebuilds
//! indexes, and for the writer only before its first append.
//!
//! A segment's indexes are opened when they are first needed, checked against the log's headers (`check.rs`), and
//! rebuilt from the log where they are missing or wrong. An index that cannot be written stays in memory.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::check;
use super::files::{Files, Kind};
use super::index::Index;
use super::indexer::{index_damaged_log, index_log};
use super::offset_index::OffsetIndex;
use super::rules::Rules;
use super::time_index::TimeIndex;
use super::txn_index::{AbortedTransaction, ENTRY_BYTES, TxnIndex};
use super::{SegmentConfig, scan};
use crate::error::{Corruption, Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc as SwapArc, Mutex, Swap};
use crate::types::{Offset, Timestamp};

/// A transaction index of so many bytes is read whatever the log's length says of it.
const TRANSACTIONS_BYTES_LEAST: u64 = 1 << 20;

/// The indexes as they are now; `None` where they have not been opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) offsets: Option<Arc<OffsetIndex>>,
    pub(super) times: Option<Arc<TimeIndex>>,
    /// They were built from the log, so where they disagree with it the log is damaged.
    pub(super) built: bool,
}

/// The transaction index, and the copy of it that readers were given.
#[derive(Clone, Debug, Default)]
struct Transactions {
    index: Option<Arc<TxnIndex>>,
    listed: Arc<Vec<AbortedTransaction>>,
}

/// One segment as readers see it: its published bytes and its indexes. It is shared by `Arc`, and stays readable when
/// the segment is retired, and with its old size when it is cut.
#[derive(Debug)]
pub struct SegmentReader {
    pub(super) files: Arc<Files>,
    pub(super) base: Offset,
    pub(super) config: SegmentConfig,
    /// In place of the one in `config`: it may change while the segment is open.
    decompressed_bytes_max: AtomicUsize,
    size: AtomicU64,
    pictures: Swap<Picture>,
    loading: Mutex<()>,
    transactions: Swap<Transactions>,
    /// The writer appends to the indexes, so nobody else replaces them.
    live: AtomicBool,
}

impl SegmentReader {
    pub(super) fn new(files: Arc<Files>, base: Offset, config: SegmentConfig, size: u64, picture: Picture) -> Self {
        Self {
            files,
            base,
            config,
            decompressed_bytes_max: AtomicUsize::new(config.decompressed_bytes_max),
            size: AtomicU64::new(size),
            pictures: Swap::new(SwapArc::new(picture)),
            loading: Mutex::new(()),
            transactions: Swap::new(SwapArc::new(Transactions::default())),
            live: AtomicBool::new(false),
        }
    }

    /// The offset in the file's name: no batch of the segment begins before it.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.base
    }

    /// The bytes of log that are published. The file may be longer.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// What one compressed batch may decompress to, in bytes.
    pub(super) fn decompressed_bytes_max(&self) -> usize {
        self.decompressed_bytes_max.load(Ordering::Acquire)
    }

    /// Changes what one compressed batch may decompress to, in bytes.
    pub(crate) fn set_decompressed_bytes_max(&self, bytes: usize) {
        self.decompressed_bytes_max.store(bytes, Ordering::Release);
    }

    /// Publishes that the log has `size` bytes.
    pub(super) fn publish(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The `.log` file under the name it has now.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path(Kind::Log)
    }

    /// When the `.log` was last written, in wall time: what retention goes by where no record has a timestamp.
    pub fn modified(&self) -> Result<Timestamp> {
        let path = self.path();
        self.files.storage().modified(&path).map_err(|e| Error::io("look at", path, e))
    }

    /// Makes the published bytes of the `.log` durable, and the transaction index with them. It waits for nobody who
    /// appends, and nobody who appends waits for it.
    pub fn sync(&self) -> Result<()> {
        self.files.sync_transactions().map_err(|e| self.files.error("sync", Kind::TxnIndex, e))?;
        self.files.log().sync().map_err(|e| self.files.error("sync", Kind::Log, e))
    }

    /// Renames the segment's files to `<name>.<serial>.deleted`. They stay readable through this object, and are
    /// removed when its last holder lets go.
    pub fn retire(&self, serial: u64) -> Result<()> {
        self.files.retire(serial)
    }

    /// Whether its files have left the log: another segment may have their names.
    pub(crate) fn is_retired(&self) -> bool {
        self.files.is_retired()
    }

    /// The aborted transactions whose marker lies in this segment, in the order of their markers.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] where the transaction index is damaged: it cannot be rebuilt from this segment alone.
    pub fn aborted(&self) -> Result<Arc<Vec<AbortedTransaction>>> {
        let index = self.transactions()?;
        let known = self.transactions.load();
        if known.listed.len() == index.len() {
            return Ok(Arc::clone(&known.listed));
        }
        let listed = Arc::new(index.entries());
        self.transactions.store(SwapArc::new(Transactions { index: Some(index), listed: Arc::clone(&listed) }));
        Ok(listed)
    }

    /// The transaction index, opened where it is not.
    pub(super) fn transactions(&self) -> Result<Arc<TxnIndex>> {
        if let Some(index) = &self.transactions.load().index {
            return Ok(Arc::clone(index));
        }
        let _guard = self.loading.lock();
        if let Some(index) = &self.transactions.load().index {
            return Ok(Arc::clone(index));
        }
        let damaged = |reason| Error::CorruptFile { path: self.files.path(Kind::TxnIndex), reason };
        let bytes = self.files.index(Kind::TxnIndex).and_then(|file| {
            let Some(file) = file else { return Ok(Ok(bytes::Bytes::new())) };
            let most = self.files.entries_max()?.saturating_mul(ENTRY_BYTES as u64).max(TRANSACTIONS_BYTES_LEAST);
            let len = file.len()?;
            if len > most {
                return Ok(Err(Corruption::Form(format!("it has {len} bytes, beside this log at most {most}"))));
            }
            file.read(0..len).map(Ok)
        });
        let bytes = bytes.map_err(|e| self.files.error("read", Kind::TxnIndex, e))?.map_err(damaged)?;
        let index = TxnIndex::from_bytes(self.base, &bytes).map_err(damaged)?;
        let index = Arc::new(index);
        self.set_transactions(Some(Arc::clone(&index)));
        Ok(index)
    }

    /// Replaces the transaction index; `None` has it opened again when it is needed.
    pub(super) fn set_transactions(&self, index: Option<Arc<TxnIndex>>) {
        self.transactions.store(SwapArc::new(Transactions { index, listed: Arc::default() }));
    }

    /// The offset index, opened, checked and if need be rebuilt.
    pub(super) fn offsets(&self, rules: &Rules<'_>) -> Result<Arc<OffsetIndex>> {
        if let Some(offsets) = &self.pictures.load().offsets {
            return Ok(Arc::clone(offsets));
        }
        let loaded = self.open_index(rules, |picture| {
            if picture.offsets.is_none() {
                let found = Index::load(self.base, &self.files)?.map(OffsetIndex);
                picture.offsets = match found {
                    Some(found) if check::offsets_agree(self, &found)? => Some(Arc::new(found)),
                    _ => None,
                };
            }
            Ok(picture.offsets.is_some())
        })?;
        loaded.offsets.clone().map_or_else(|| Ok(Arc::new(OffsetIndex::new(self.base))), Ok)
    }

    /// The time index, opened, checked and if need be rebuilt.
    pub(super) fn times(&self, rules: &Rules<'_>) -> Result<Arc<TimeIndex>> {
        if let Some(times) = &self.pictures.load().times {
            return Ok(Arc::clone(times));
        }
        let offsets = self.offsets(rules)?;
        let loaded = self.open_index(rules, |picture| {
            if picture.times.is_none() {
                let found = Index::load(self.base, &self.files)?.map(TimeIndex);
                picture.times = match found {
                    Some(found) if check::times_agree(self, &found, &offsets)? => Some(Arc::new(found)),
                    _ => None,
                };
            }
            Ok(picture.times.is_some())
        })?;
        loaded.times.clone().map_or_else(|| Ok(Arc::new(TimeIndex::new(self.base))), Ok)
    }

    /// Has `open` fill in the picture; where it cannot, both indexes are rebuilt.
    fn open_index(
        &self,
        rules: &Rules<'_>,
        open: impl Fn(&mut Picture) -> io::Result<bool>,
    ) -> Result<SwapArc<Picture>> {
        let _guard = self.loading.lock();
        let mut picture = Picture::clone(&self.pictures.load());
        match open(&mut picture) {
            Ok(true) => {}
            Ok(false) | Err(_) => picture = self.build(rules)?,
        }
        self.pictures.store(SwapArc::new(picture));
        Ok(self.pictures.load())
    }

    /// Builds the indexes anew because one of them led to a wrong place. Says whether that was done: not a second
    /// time, and not under the writer's hands.
    pub(super) fn rebuild(&self, rules: &Rules<'_>) -> Result<bool> {
        let _guard = self.loading.lock();
        if self.pictures.load().built || self.live.load(Ordering::Acquire) {
            return Ok(false);
        }
        let picture = self.build(rules)?;
        self.pictures.store(SwapArc::new(picture));
        Ok(true)
    }

    /// Indexes built from the log, written out where that works.
    fn build(&self, rules: &Rules<'_>) -> Result<Picture> {
        let (log, end, interval) = (self.files.log(), self.size(), self.config.index_interval_bytes);
        let read = |e| self.files.error("read", Kind::Log, e);
        let empty = || {
            let (offsets, times) = (Index::in_files(self.base, &self.files), Index::in_files(self.base, &self.files));
            (OffsetIndex(offsets), TimeIndex(times))
        };
        let (mut offsets, mut times) = empty();
        if !index_log(log.as_ref(), end, interval, rules, &offsets, &times).map_err(read)? {
            (offsets, times) = empty();
            index_damaged_log(log.as_ref(), end, interval, rules, &offsets, &times).map_err(read)?;
        }
        Ok(written(Arc::new(offsets), Arc::new(times), true))
    }

    /// Publishes indexes that the writer has changed or replaced; `live` while it appends to them.
    pub(super) fn set_picture(&self, picture: Picture, live: bool) {
        let _guard = self.loading.lock();
        self.live.store(live, Ordering::Release);
        self.pictures.store(SwapArc::new(picture));
    }

    /// A cursor over the log's headers.
    pub(super) fn headers(&self, end: u64) -> scan::Cursor<'_> {
        scan::Cursor::new(self.files.log().as_ref(), end, scan::HEADER_CHUNK_BYTES)
    }
}

/// Writes indexes out and lets go of their memory; one that cannot be written stays in memory.
pub(super) fn written(offsets: Arc<OffsetIndex>, times: Arc<TimeIndex>, built: bool) -> Picture {
    let offsets = offsets.0.written().map_or(offsets, |index| Arc::new(OffsetIndex(index)));
    let times = times.0.written().map_or(times, |index| Arc::new(TimeIndex(index)));
    Picture { offsets: Some(offsets), times: Some(times), built }
}
