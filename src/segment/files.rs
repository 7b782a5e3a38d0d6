//! The four files of a segment: their names, their handles, and their end.
//!
//! The `.log` is open from the start; the indexes are opened when they are first needed. A retired segment's
//! files are renamed at once (`<name>.<serial>.deleted`) and removed when the last holder lets go.
//!
//! ```text
//!   create ──────────────────────────────► Named ──► Retired     <name> ──► <name>.<serial>.deleted
//!   create_cleaned ──► Cleaned ──► Swap ──► Named                <name>.cleaned ──► <name>.swap ──► <name>
//! ```
//!
//! A file that is opened late is opened under the name that the segment has at that moment: the lock of the stage is
//! held over the opening, and over a renaming, so that another segment that takes the place is never mixed up with this.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::record::batch::HEADER_BYTES;
use crate::storage::{Storage, StorageFile};
use crate::sync::Mutex;
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
    stage: Mutex<Stage>,
}

/// What the files are called now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Named,
    /// Being written, to take the place of other segments.
    Cleaned,
    /// Complete, about to do so.
    Swap,
    /// It left the log, with a number of its own.
    Retired(u64),
}

/// The name of one of the files of the segment with this base (FORMATS 2).
fn name(base: Offset, kind: Kind) -> String {
    format!("{:020}.{}", base.0, kind.extension())
}

/// Its name at a stage.
fn name_at(base: Offset, kind: Kind, stage: Stage) -> String {
    let name = name(base, kind);
    match stage {
        Stage::Named => name,
        Stage::Cleaned => format!("{name}.cleaned"),
        Stage::Swap => format!("{name}.swap"),
        Stage::Retired(serial) => format!("{name}.{serial}.deleted"),
    }
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
        let stage = Stage::Named;
        let path = directory.join(name_at(base, Kind::Log, stage));
        let log = if create {
            storage.create(&path, capacity).map_err(|e| Error::io("create", path, e))?
        } else {
            storage.open(&path, capacity).map_err(|e| Error::io("open", path, e))?
        };
        let mut files = Self::of(storage, directory, base, log, index_bytes_max, stage);
        // Of what lies there it is not known whether the process before has synced it.
        files.unsynced_transactions = AtomicBool::new(!create);
        Ok(files)
    }

    /// Creates the `.log` of a segment that is to take the place of others. What an earlier attempt has left under its
    /// names goes.
    pub(super) fn create_cleaned(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        capacity: u64,
        index_bytes_max: u64,
    ) -> Result<Self> {
        let stage = Stage::Cleaned;
        for kind in Kind::ALL {
            let path = directory.join(name_at(base, kind, stage));
            match storage.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", path, e)),
                _ => {}
            }
        }
        let path = directory.join(name_at(base, Kind::Log, stage));
        let log = storage.create(&path, capacity).map_err(|e| Error::io("create", path, e))?;
        Ok(Self::of(storage, directory, base, log, index_bytes_max, stage))
    }

    fn of(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        log: Arc<dyn StorageFile>,
        index_bytes_max: u64,
        stage: Stage,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            directory: directory.to_owned(),
            base,
            log,
            indexes: [const { OnceLock::new() }; 3],
            index_bytes_max,
            unsynced_transactions: AtomicBool::new(false),
            stage: Mutex::new(stage),
        }
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
        self.path_at(kind, *self.stage.lock())
    }

    fn path_at(&self, kind: Kind, stage: Stage) -> PathBuf {
        self.directory.join(name_at(self.base, kind, stage))
    }

    /// Wraps an error of one of the files.
    pub(super) fn error(&self, operation: &'static str, kind: Kind, error: io::Error) -> Error {
        Error::io(operation, self.path(kind), error)
    }

    /// An index file that is there.
    pub(super) fn index(&self, kind: Kind) -> io::Result<Option<&Arc<dyn StorageFile>>> {
        let Some(slot) = self.slot(kind) else { return Ok(Some(&self.log)) };
        if slot.get().is_none() {
            let stage = self.stage.lock();
            match self.storage.open(&self.path_at(kind, *stage), self.index_bytes_max) {
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
        let stage = self.stage.lock();
        let created = self.storage.create(&self.path_at(kind, *stage), self.index_bytes_max)?;
        Ok(self.slot(kind).map_or(&self.log, |slot| slot.get_or_init(|| created)))
    }

    /// Makes the names of its files durable.
    pub(super) fn sync_directory(&self) -> io::Result<()> {
        self.storage.sync_directory(&self.directory)
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
        let mut stage = self.stage.lock();
        let to = Stage::Retired(serial);
        for kind in Kind::ALL.into_iter().rev() {
            // What another retirement of it has renamed is not there any more.
            self.move_to(kind, Stage::Named, to)?;
        }
        *stage = to;
        Ok(())
    }

    pub(super) fn is_retired(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Retired(_))
    }

    /// It is complete: `.cleaned` becomes `.swap`, the `.log` first.
    pub(super) fn to_swap(&self) -> Result<()> {
        let mut stage = self.stage.lock();
        for kind in Kind::ALL {
            self.move_to(kind, Stage::Cleaned, Stage::Swap)?;
        }
        *stage = Stage::Swap;
        Ok(())
    }

    /// It is not to take the place for all that: a `.log` that is called `.swap` is called `.cleaned` again, so that
    /// whoever finds the files takes none of them for complete.
    pub(super) fn back_to_cleaned(&self) -> Result<()> {
        let mut stage = self.stage.lock();
        self.move_to(Kind::Log, Stage::Swap, Stage::Cleaned)?;
        *stage = Stage::Cleaned;
        Ok(())
    }

    /// The `.log` gets the name that it is to have. Once that is durable the others follow, by
    /// [`Self::install_indexes`]: who finds `.log.swap` takes what has the indexes' names for those of the segment
    /// that was replaced.
    pub(super) fn install_log(&self) -> Result<()> {
        self.move_to(Kind::Log, Stage::Swap, Stage::Named)
    }

    /// The indexes get the names that they are to have.
    pub(super) fn install_indexes(&self) -> Result<()> {
        let mut stage = self.stage.lock();
        for kind in Kind::ALL.into_iter().skip(1) {
            self.move_to(kind, Stage::Swap, Stage::Named)?;
        }
        *stage = Stage::Named;
        Ok(())
    }

    /// Renames one file, where it is there.
    fn move_to(&self, kind: Kind, from: Stage, to: Stage) -> Result<()> {
        let (from, to) = (self.path_at(kind, from), self.path_at(kind, to));
        match self.rename(kind, &from, &to) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("rename", from, e)),
            _ => Ok(()),
        }
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
        if !matches!(*self.stage.lock(), Stage::Retired(_) | Stage::Cleaned) {
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
