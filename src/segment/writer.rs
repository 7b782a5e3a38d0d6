//! The one writer's handle of a segment.
//!
//! An append is one write, an index entry per batch that is due one (`indexer.rs`), and then the new size is
//! published. A write that failed is taken back to the published size before the error is returned.
//!
//! ```text
//!  .log   | batches ............... | zeros ...... |
//!         0                       size          file_end
//!                                   `-- the window: filled and synced ahead, so that a sync need not wait for the
//!                                       filesystem's journal; cut off when the segment is sealed
//! ```
//!
//! The file's length says nothing about the log in it while the segment is open.
//!
//! What the writer needs to know about a loaded segment (where its indexes stand, its greatest timestamp) is looked
//! up before the first append, not when it is opened. The final entry of its time index is taken back then, so that
//! the indexes of a log that was closed in between are those that a recovery would build.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::files::{self, Files, Kind};
use super::index::Index;
use super::indexer::Indexer;
use super::offset_index::OffsetIndex;
use super::reader::{Picture, SegmentReader, written};
use super::roll::{self, Fill};
use super::rules::Rules;
use super::time_index::TimeIndex;
use super::{Incoming, RollReason, SegmentConfig};
use crate::error::{Error, Result};
use crate::record::batch::BatchHeader;
use crate::storage::{FileStorage, Storage};
use crate::types::{Offset, Timestamp};

/// A segment's file holds at most as many bytes as an index entry can point to.
const SEGMENT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;
/// How much is zeroed or written again at once.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

/// One `.log` file with its indexes, as its one writer holds it. Readers hold its [`SegmentReader`].
///
/// ```
/// use std::path::Path;
/// use taffrail::{BatchBuilder, BatchHeader, MemoryStorage, Offset, ReadBounds, Record, Segment, SegmentConfig, Timestamp};
///
/// let storage = MemoryStorage::new(1).shared();
/// let mut segment =
///     Segment::create(&storage, Path::new("/"), Offset(0), &SegmentConfig::default(), Timestamp(0))?;
/// let mut batch = BatchBuilder::new();
/// batch.push(&Record::new("placed").key("customer-7"))?;
/// let bytes = batch.encode()?;
/// let header = BatchHeader::parse(bytes).expect("it was just made");
/// segment.append(bytes, &[header])?;
///
/// let found = segment.reader().read(Offset(0), 1 << 20, &ReadBounds::default())?;
/// assert_eq!(found.next, Offset(1));
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Debug)]
pub struct Segment {
    pub(super) reader: Arc<SegmentReader>,
    pub(super) config: SegmentConfig,
    created: Option<Timestamp>,
    pub(super) file_end: u64,
    pub(super) live: Option<Live>,
    /// It was cut, so that its time index may lack the final entry.
    pub(super) was_cut: bool,
    /// The transaction index's file may have bytes behind its last entry.
    pub(super) transactions_torn: bool,
}

/// What the writer knows once it appends.
#[derive(Debug)]
pub(super) struct Live {
    offsets: Arc<OffsetIndex>,
    times: Arc<TimeIndex>,
    indexer: Indexer,
    first_timestamp: Option<Timestamp>,
}

impl Segment {
    /// Opens the segment whose `.log` is at `path`, by itself, with default settings: to look into it. The file's
    /// length is taken for the log's.
    ///
    /// # Errors
    /// [`Error::InvalidName`] where the file is not named by its base offset in twenty digits; [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(base) = files::base_of(&name) else {
            return Err(Error::InvalidName {
                name,
                reason: "a segment is named by its base offset, in 20 digits, and .log",
            });
        };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new());
        let len = storage.open(path, 0).and_then(|file| file.len()).map_err(|e| Error::io("open", path, e))?;
        Self::load(&storage, directory, base, len, &SegmentConfig::default())
    }

    /// Begins an empty segment with the given base offset. `created` is the wall time: what its age is counted from
    /// where records have no timestamps.
    pub fn create(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        config: &SegmentConfig,
        created: Timestamp,
    ) -> Result<Self> {
        let segment = Self::new(storage, directory, base, 0, config, true)?;
        Ok(segment.begun(created))
    }

    /// It is empty, and is appended to from now on.
    pub(super) fn begun(mut self, created: Timestamp) -> Self {
        let base = self.base_offset();
        self.created = Some(created);
        self.go_live(
            Arc::new(OffsetIndex(Index::in_files(base, &self.reader.files))),
            Arc::new(TimeIndex(Index::in_files(base, &self.reader.files))),
            Indexer::new(self.config.index_interval_bytes),
            None,
        );
        self
    }

    /// Opens a segment that is there. `len`, the length of its `.log` file, is taken for the log's; no record and no
    /// index is read.
    pub fn load(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        len: u64,
        config: &SegmentConfig,
    ) -> Result<Self> {
        Self::new(storage, directory, base, len, config, false)
    }

    fn new(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        len: u64,
        config: &SegmentConfig,
        create: bool,
    ) -> Result<Self> {
        let capacity = len.max(config.segment_bytes.into());
        let files = Files::new(storage, directory, base, capacity, config.index_bytes_max.into(), create)?;
        Ok(Self::of_files(files, base, len, config))
    }

    pub(super) fn of_files(files: Files, base: Offset, len: u64, config: &SegmentConfig) -> Self {
        let reader = SegmentReader::new(Arc::new(files), base, *config, len, Picture::default());
        Self::of_reader(Arc::new(reader), len)
    }

    pub(super) fn of_reader(reader: Arc<SegmentReader>, file_end: u64) -> Self {
        Self {
            config: reader.config,
            reader,
            created: None,
            file_end,
            live: None,
            was_cut: false,
            transactions_torn: false,
        }
    }

    /// What readers share. [`Segment::truncate`] and [`Segment::cut`] replace it.
    #[must_use]
    pub fn reader(&self) -> &Arc<SegmentReader> {
        &self.reader
    }

    /// The offset in the file's name.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.reader.base
    }

    /// The bytes of log in the segment.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.reader.size()
    }

    /// The offset index, opened where it is not. It is a hint: one that cannot be opened or built is empty.
    ///
    /// ```no_run
    /// use taffrail::{Offset, Segment};
    /// let segment = Segment::open("./data/orders-2/00000000000002000000.log")?;
    /// let entry = segment.index().lookup(Offset(2_350_000));
    /// # Ok::<(), taffrail::Error>(())
    /// ```
    #[must_use]
    pub fn index(&self) -> Arc<OffsetIndex> {
        let found = self.reader.offsets(&Rules::bare(self.reader.base));
        found.unwrap_or_else(|_| Arc::new(OffsetIndex::new(self.reader.base)))
    }

    /// The time index, opened where it is not. It is a hint: one that cannot be opened or built is empty.
    #[must_use]
    pub fn time_index(&self) -> Arc<TimeIndex> {
        let found = self.reader.times(&Rules::bare(self.reader.base));
        found.unwrap_or_else(|_| Arc::new(TimeIndex::new(self.reader.base)))
    }

    /// Appends batches with one write; `headers` are those of the batches in `bytes`, in order, with the offsets that
    /// they have there. Readers see all of them or none.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`] where the file would grow beyond 2^31 − 1 bytes. [`Error::Io`] where the write failed:
    /// the log is as before. [`Error::Poisoned`] where that could not be made true: the segment takes no more writes.
    pub fn append(&mut self, bytes: &[u8], headers: &[BatchHeader]) -> Result<()> {
        let position = self.size();
        let size = bytes.len() as u64;
        debug_assert_eq!(headers.iter().map(BatchHeader::size).sum::<u64>(), size);
        if position + size > SEGMENT_BYTES_MAX {
            return Err(Error::BatchTooLarge { size, limit: SEGMENT_BYTES_MAX - position.min(SEGMENT_BYTES_MAX) });
        }
        self.ready()?;
        if let Err(error) = self.reader.files.log().write(position, &[IoSlice::new(bytes)]) {
            return Err(self.take_back(position, size, error));
        }
        self.file_end = self.file_end.max(position + size);
        self.index_batches(position, headers);
        self.reader.publish(position + size);
        Ok(())
    }

    fn index_batches(&mut self, position: u64, headers: &[BatchHeader]) {
        let Some(live) = &mut self.live else { return };
        if position == 0 {
            live.first_timestamp = headers.first().and_then(BatchHeader::max_timestamp);
        }
        let mut at = position;
        let mut added = false;
        for header in headers {
            added |= live.indexer.batch(at, header, &live.offsets, &live.times);
            at += header.size();
        }
        if added {
            live.offsets.0.write_blocks();
            live.times.0.write_blocks();
        }
    }

    /// Makes the file what it was before a write of `size` bytes failed; the error to answer with.
    fn take_back(&mut self, position: u64, size: u64, error: io::Error) -> Error {
        let restored = if self.file_end > position {
            self.zero(position..self.file_end.min(position + size)).and_then(|()| self.cut_file(self.file_end))
        } else {
            self.cut_file(position)
        };
        let error = self.reader.files.error("write", Kind::Log, error);
        match restored {
            Ok(()) => error,
            Err(_) => Error::Poisoned { path: self.reader.files.directory().to_owned(), cause: Arc::new(error) },
        }
    }

    fn zero(&self, range: std::ops::Range<u64>) -> io::Result<()> {
        let zeros = vec![0; usize::try_from((range.end - range.start).min(CHUNK_BYTES)).unwrap_or(0)];
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(zeros.len());
            self.reader.files.log().write(at, &[IoSlice::new(&zeros[..len])])?;
            at += len as u64;
        }
        Ok(())
    }

    pub(super) fn cut_file(&self, len: u64) -> io::Result<()> {
        self.reader.files.log().truncate(len)
    }

    /// Looks up where the indexes stand, once.
    fn ready(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let log = self.reader.files.log();
        log.unshare().map_err(|e| self.reader.files.error("copy", Kind::Log, e))?;
        let rules = Rules::bare(self.reader.base);
        let times = self.reader.times(&rules)?;
        let offsets = self.reader.offsets(&rules)?;
        let last = offsets.last();
        let end = last.map_or(self.reader.base, |entry| entry.offset.plus(1));
        let times = match times.last() {
            Some(last) if last.offset >= end => Arc::new(TimeIndex(times.0.truncated(|entry| entry.offset < end))),
            _ => times,
        };
        let mut indexer = Indexer::new(self.config.index_interval_bytes);
        indexer.last_position = last.map_or(0, |entry| entry.position);
        indexer.max = times.last();
        self.see_tail(&mut indexer, &rules)?;
        let first_timestamp = self.reader.first_timestamp()?;
        self.go_live(offsets, times, indexer, first_timestamp);
        Ok(())
    }

    /// Takes in the timestamps behind the offset index's last entry.
    fn see_tail(&self, indexer: &mut Indexer, rules: &Rules<'_>) -> Result<()> {
        let mut cursor = self.reader.headers(self.size());
        let (mut at, mut due) = (indexer.last_position, rules.anywhere());
        while at < self.size() {
            let header = cursor.header(at, rules, due).map_err(|e| self.reader.files.error("read", Kind::Log, e))?;
            let Ok(header) = header else { break };
            indexer.see(&header);
            at += header.size();
            due = rules.behind(&header);
        }
        Ok(())
    }

    fn go_live(
        &mut self,
        offsets: Arc<OffsetIndex>,
        times: Arc<TimeIndex>,
        indexer: Indexer,
        first_timestamp: Option<Timestamp>,
    ) {
        let picture = Picture { offsets: Some(Arc::clone(&offsets)), times: Some(Arc::clone(&times)), built: false };
        self.reader.set_picture(picture, true);
        self.live = Some(Live { offsets, times, indexer, first_timestamp });
        self.was_cut = false;
    }

    /// Why the segment should be closed before `incoming` is appended, if it should. `segment_age` bounds the
    /// distance of the incoming timestamp from that of the segment's first batch.
    pub fn roll_reason(
        &mut self,
        incoming: &Incoming,
        segment_age: Option<Duration>,
        now: Timestamp,
    ) -> Option<RollReason> {
        let ready = self.ready();
        let live = self.live.as_ref().filter(|_| ready.is_ok());
        let fill = Fill {
            base: self.reader.base,
            size: self.size(),
            first_timestamp: live.and_then(|live| live.first_timestamp),
            offset_entries: live.map_or(0, |live| live.offsets.len()),
            time_entries: live.map_or(0, |live| live.times.len()),
            created: self.created(now),
        };
        roll::roll_reason(&fill, incoming, &self.config, segment_age, now)
    }

    /// The greatest timestamp of the first batch, as far as it is known without looking.
    pub(crate) fn first_timestamp(&self) -> Option<Timestamp> {
        self.live.as_ref().and_then(|live| live.first_timestamp)
    }

    /// When the segment was begun; of one that was loaded, when its file was last written before that.
    fn created(&mut self, now: Timestamp) -> Timestamp {
        *self.created.get_or_insert_with(|| self.reader.modified().unwrap_or(now))
    }

    /// Where fewer than `at_least` bytes of zeros are left behind the log's end, makes them `window`, but the file no
    /// longer than a segment gets. Says whether the file has grown.
    pub fn fill_window(&mut self, at_least: u64, window: u64) -> Result<bool> {
        let size = self.size();
        let limit = u64::from(self.config.segment_bytes).min(SEGMENT_BYTES_MAX);
        let wanted = size.saturating_add(window).min(limit);
        if self.file_end - size >= at_least || wanted <= self.file_end {
            return Ok(false);
        }
        self.ready()?;
        let extended = self.reader.files.log().extend(wanted);
        if extended.is_ok() {
            self.file_end = wanted;
        } else {
            self.file_end = self.reader.files.log().len().unwrap_or(wanted).max(self.file_end);
        }
        extended.map(|()| true).map_err(|e| self.reader.files.error("extend", Kind::Log, e))
    }

    /// Cuts the file to the log's end. Says whether it has shrunk.
    pub fn cut_window(&mut self) -> Result<bool> {
        if self.file_end <= self.size() {
            return Ok(false);
        }
        self.cut_file(self.size()).map_err(|e| self.reader.files.error("truncate", Kind::Log, e))?;
        self.file_end = self.size();
        Ok(true)
    }

    /// Closes the segment: the time index gets its final entry, the indexes are written out and let go of, the window
    /// is cut off. Nothing is synced. Appending goes on from here as if it had not been closed. An index that cannot
    /// be written stays in memory; that fails nothing.
    pub fn seal(&mut self) -> Result<()> {
        self.cut_window()?;
        if self.was_cut {
            self.ready()?;
        }
        if let Some(live) = self.live.take() {
            live.indexer.finish(&live.times);
            self.reader.set_picture(written(live.offsets, live.times, false), false);
        }
        Ok(())
    }

    /// Writes the indexes out and lets go of their memory: from here on the files are searched. An index that cannot
    /// be written stays in memory.
    pub fn drop_index_memory(&mut self) -> Result<()> {
        if let Some(live) = self.live.take() {
            let picture = written(live.offsets, live.times, false);
            self.reader.set_picture(picture.clone(), true);
            if let (Some(offsets), Some(times)) = (picture.offsets, picture.times) {
                self.live = Some(Live { offsets, times, ..live });
            }
        }
        if !self.transactions_torn {
            self.reader.set_transactions(None);
        }
        Ok(())
    }

    /// Makes the `.log`, and the transaction index, durable. [`SegmentReader::sync`] does the same without the writer.
    pub fn sync(&self) -> Result<()> {
        self.reader.sync()
    }
}
