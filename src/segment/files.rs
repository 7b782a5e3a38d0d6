//! The four files of a segment: their names, their handles, and their end.
//!
//! The `.log` is open from the start; the indexes are opened when they are first needed. A retired segment's
//! files are renamed at once (`<name>.<serial>.deleted`) and removed when the last holder lets go.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::record::batch::HEADER_BYTES;
use crate::storage::{Storage, StorageFile};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::trace;
use crate::types::Offset;

/// Which of a segment's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Log, Self::OffsetIndex, Self::TimeIndex, Self::TxnIndex];

    const fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::TxnIndex => "txnindex",
        }
    }
}

/// The files, shared by everything that reads or writes the segment.
#[derive(Debug)]
pub(super) struct Files {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    base: Offset,
    log: Arc<dyn StorageFile>,
    indexes: [OnceLock<Arc<dyn StorageFile>>; 3],
    index_bytes_max: u64,
    /// The transaction index has entries that were not synced.
    unsynced_transactions: AtomicBool,
    retired: OnceLock<u64>,
}

/// The name of one of the files of the segment with this base (FORMATS 2).
fn name(base: Offset, kind: Kind) -> String {
    format!("{:020}.{}", base.0, kind.extension())
}

/// Its name once the segment is retired.
fn retired_name(base: Offset, kind: Kind, serial: u64) -> String {
    format!("{}.{serial}.deleted", name(base, kind))
}

/// The base offset in the name of a `.log` file.
pub(super) fn base_of(log: &str) -> Option<Offset> {
    let digits = log.strip_suffix(".log")?;
    let numeric = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().map(Offset).filter(|base| numeric && *base <= Offset::MAX)
}

impl Files {
    /// Creates the `.log` of a new segment, or opens that of one that is there.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        capacity: u64,
        index_bytes_max: u64,
        create: bool,
    ) -> Result<Self> {
        let path = directory.join(name(base, Kind::Log));
        let log = if create {
            storage.create(&path, capacity).map_err(|e| Error::io("create", path, e))?
        } else {
            storage.open(&path, capacity).map_err(|e| Error::io("open", path, e))?
        };
        Ok(Self {
            storage: Arc::clone(storage),
            directory: directory.to_owned(),
            base,
            log,
            indexes: [const { OnceLock::new() }; 3],
            index_bytes_max,
            unsynced_transactions: AtomicBool::new(false),
            retired: OnceLock::new(),
        })
    }

    pub(super) fn log(&self) -> &Arc<dyn StorageFile> {
        &self.log
    }

    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// How many entries an index of this segment can have: one for each batch, and a last one.
    pub(super) fn entries_max(&self) -> io::Result<u64> {
        /// Positions in a `.log` are such numbers.
        const LOG_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;
        Ok(self.log.len()?.min(LOG_BYTES_MAX) / HEADER_BYTES as u64 + 1)
    }

    /// The path that a file has now.
    pub(super) fn path(&self, kind: Kind) -> PathBuf {
        self.directory.join(match self.retired.get() {
            Some(serial) => retired_name(self.base, kind, *serial),
            None => name(self.base, kind),
        })
    }

    /// Wraps an error of one of the files.
    pub(super) fn error(&self, operation: &'static str, kind: Kind, error: io::Error) -> Error {
        Error::io(operation, self.path(kind), error)
    }

    /// An index file that is there.
    pub(super) fn index(&self, kind: Kind) -> io::Result<Option<&Arc<dyn StorageFile>>> {
        let Some(slot) = self.slot(kind) else { return Ok(Some(&self.log)) };
        if slot.get().is_none() {
            match self.storage.open(&self.path(kind), self.index_bytes_max) {
                Ok(file) => drop(slot.set(file)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(slot.get())
    }

    /// An index file, created where it is missing.
    pub(super) fn index_for_writing(&self, kind: Kind) -> io::Result<&Arc<dyn StorageFile>> {
        if let Some(file) = self.index(kind)? {
            return Ok(file);
        }
        let created = self.storage.create(&self.path(kind), self.index_bytes_max)?;
        Ok(self.slot(kind).map_or(&self.log, |slot| slot.get_or_init(|| created)))
    }

    /// Notes that the transaction index has to be synced.
    pub(super) fn transactions_changed(&self) {
        self.unsynced_transactions.store(true, Ordering::Release);
    }

    /// Syncs the transaction index where that is due.
    pub(super) fn sync_transactions(&self) -> io::Result<()> {
        if !self.unsynced_transactions.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = self.index(Kind::TxnIndex).and_then(|file| file.map_or(Ok(()), |file| file.sync()));
        if synced.is_err() {
            self.transactions_changed();
        }
        synced
    }

    fn slot(&self, kind: Kind) -> Option<&OnceLock<Arc<dyn StorageFile>>> {
        match kind {
            Kind::Log => None,
            Kind::OffsetIndex => self.indexes.first(),
            Kind::TimeIndex => self.indexes.get(1),
            Kind::TxnIndex => self.indexes.get(2),
        }
    }

    /// Renames all files; the `.log` last, so that a half-done retirement leaves a segment without indexes.
    pub(super) fn retire(&self, serial: u64) -> Result<()> {
        for kind in Kind::ALL.into_iter().rev() {
            let path = self.directory.join(name(self.base, kind));
            let to = self.directory.join(retired_name(self.base, kind, serial));
            match self.rename(kind, &path, &to) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("rename", path, e)),
                _ => {}
            }
        }
        let _ = self.retired.set(serial);
        Ok(())
    }

    fn rename(&self, kind: Kind, from: &Path, to: &Path) -> io::Result<()> {
        match self.slot(kind).map(OnceLock::get) {
            None => self.log.rename(to),
            Some(Some(file)) => file.rename(to),
            // A reader of an earlier open may hold the file still: what is open is renamed through a handle.
            Some(None) => self.storage.open(from, 0)?.rename(to),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.retired.get().is_none() {
            return;
        }
        for kind in Kind::ALL {
            let path = self.path(kind);
            match self.storage.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    trace::warn(&path, || format!("is removed by the next open: {e}"));
                }
                _ => {}
            }
        }
    }
}
