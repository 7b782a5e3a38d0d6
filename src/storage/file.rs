//! The operating system's files, as a [`Storage`].
//!
//! Four things are added to what the system offers: reads that lend bytes of the mapped file (the rules stand
//! in `storage/map.rs` and `storage/lend.rs`), one bound on the files that are open (`file/pool.rs`),
//! handles that stay good over that (`file/handle.rs`), and relative paths that lead to the same place for good
//! (`file/base.rs`).
//!
//! Linux and macOS. Not Windows, where a mapped file can be neither cut nor renamed.

mod base;
mod handle;
mod host;
mod lock;
mod pool;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::map::ForkMark;
use super::{BootId, Entry, LockMode, Storage, StorageFile, StorageLock};
use crate::sync::Mutex;
use crate::types::Timestamp;
use base::Base;
use handle::Handle;
use pool::Pool;

/// How files are read.
///
/// A mapped read copies nothing, and has two weaknesses: an I/O error while a page is loaded, or somebody else
/// who cuts the file (another process, or a second handle of this one), ends the process with `SIGBUS`
/// instead of returning an error; and bytes that were verified are not verified again when their page is loaded
/// again later. Buffered reads have neither. A program that must outlive a bad sector chooses those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reads {
    /// Mapped where the file lies on a file system that is known as a local one (told on Linux only), else
    /// buffered.
    #[default]
    Auto,
    /// Lends bytes of the mapped file.
    Mapped,
    /// Reads into memory of its own.
    Buffered,
}

/// Files and directories of the operating system.
///
/// A file that was opened here is changed only through its handle, and has one handle at a time; a second one
/// sees the length that the file had when it was opened.
///
/// Relative paths are meant from the working directory that the process had when the storage was made: a program that
/// changes it later finds its files where they were. (Where the system does not say which it is, they stay relative.)
///
/// ```
/// use std::io::IoSlice;
/// use taffrail::{FileStorage, Storage};
///
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("notes");
/// let storage = FileStorage::new().open_files(64);
/// let file = storage.create(&path, 1 << 20)?;
/// file.write(0, &[IoSlice::new(b"cast off")])?;
/// file.sync()?;
/// storage.sync_directory(directory.path())?;
/// assert_eq!(&file.read(5..100)?[..], b"off");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStorage {
    reads: Reads,
    pool: Arc<Pool>,
    base: Base,
    /// Whether a device is known as local.
    local: Mutex<BTreeMap<u64, bool>>,
    mark: Arc<ForkMark>,
}

impl Default for FileStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl FileStorage {
    /// Reads as [`Reads::Auto`] says, and keeps at most half of the process's soft limit of files open.
    #[must_use]
    pub fn new() -> Self {
        Self {
            reads: Reads::Auto,
            pool: Arc::new(Pool::new(host::default_open_files())),
            base: Base::now(),
            local: Mutex::new(BTreeMap::new()),
            mark: Arc::new(ForkMark::new()),
        }
    }

    /// Sets how files are read.
    #[must_use]
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    /// Sets how many files are kept open at a time, at least 1. The default is half of the process's soft limit
    /// (at most 16,384), or 512 where that cannot be told.
    ///
    /// Any number of files can be in use: those used least recently are closed, and opened again when needed.
    /// One with unsynced bytes is closed last, and synced before. With calls on several threads the bound can
    /// be passed for a moment, by one file for each of them.
    #[must_use]
    pub fn open_files(mut self, count: usize) -> Self {
        self.pool = Arc::new(Pool::new(count));
        self
    }

    fn is_mapped(&self, path: &Path, device: u64) -> bool {
        match self.reads {
            Reads::Mapped => true,
            Reads::Buffered => false,
            Reads::Auto => *self.local.lock().entry(device).or_insert_with(|| host::is_local(path)),
        }
    }

    fn handle(&self, path: &Path, capacity: u64, opened: Opened) -> Arc<dyn StorageFile> {
        let mapped = self.is_mapped(path, opened.metadata.dev());
        Handle::new(&self.pool, &self.base, path, opened, capacity, mapped)
    }
}

impl Storage for FileStorage {
    fn open(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.pool.make_room();
        let path = self.base.resolve(path);
        let opened = open_retrying(&self.pool, &path)?;
        Ok(self.handle(&path, capacity, opened))
    }

    fn create(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.pool.make_room();
        let path = self.base.resolve(path);
        let file = retrying(&self.pool, || fs::File::create_new(&path))?;
        let metadata = file.metadata()?;
        Ok(self.handle(&path, capacity, Opened { file, metadata, is_writable: true }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let path = self.base.resolve(path);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            outcome => outcome,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.base.resolve(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(self.base.resolve(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.base.resolve(from), self.base.resolve(to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Of a symbolic link the file that it leads to is meant: a second name of the link itself would show whatever
        // stands under the first name later.
        fs::hard_link(fs::canonicalize(self.base.resolve(from))?, self.base.resolve(to))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.base.resolve(directory))? {
            let entry = entry?;
            let (is_directory, len) = match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_dir() => (true, 0),
                Ok(metadata) => (false, metadata.len()),
                // What cannot be looked at (a link that leads nowhere, or to where this process may not go) is there
                // all the same: whoever needs it opens it, and is told then. To leave it out would be to say that a
                // segment on a disk that is not mounted does not exist.
                Err(_) if fs::symlink_metadata(entry.path()).is_ok() => (false, 0),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // removed meanwhile
                Err(_) => (false, 0),
            };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), len, is_directory });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        let metadata = fs::metadata(self.base.resolve(path))?;
        Ok(Timestamp(metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000)))
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        let file = retrying(&self.pool, || fs::OpenOptions::new().append(true).open(path))?;
        let from_epoch = Duration::from_millis(time.0.unsigned_abs());
        let epoch = UNIX_EPOCH;
        let time = if time.0 < 0 { epoch.checked_sub(from_epoch) } else { epoch.checked_add(from_epoch) };
        file.set_modified(time.ok_or(io::ErrorKind::InvalidInput)?)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let path = self.base.resolve(path);
        retrying(&self.pool, || fs::File::open(&path))?.sync_all()
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn StorageLock>> {
        Ok(Box::new(lock::FileLock::take(&self.base.resolve(path), mode, &self.mark)?))
    }

    fn boot(&self) -> Option<BootId> {
        host::boot().map(BootId)
    }

    fn open_files(&self) -> Option<usize> {
        Some(self.pool.open())
    }

    fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }
}

/// An open file, and what is known of it.
struct Opened {
    file: fs::File,
    metadata: fs::Metadata,
    is_writable: bool,
}

/// Opens a file for reading and writing, or where only reading is allowed, for that.
fn open_file(path: &Path) -> io::Result<Opened> {
    let (file, is_writable) = match fs::File::options().read(true).write(true).open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            (fs::File::open(path)?, false)
        }
        outcome => (outcome?, true),
    };
    let metadata = file.metadata()?;
    Ok(Opened { file, metadata, is_writable })
}

fn open_retrying(pool: &Pool, path: &Path) -> io::Result<Opened> {
    retrying(pool, || open_file(path))
}

/// Closes a file of the pool, and tries again, where the process or the system has no descriptor left.
fn retrying<T>(pool: &Pool, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    loop {
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) && pool.close_one() => {}
            outcome => return outcome,
        }
    }
}

/// Writes the slices one behind the other and returns where they end.
fn write_slices(file: &fs::File, position: u64, slices: &[IoSlice<'_>]) -> io::Result<u64> {
    match slices {
        [] => Ok(position),
        [slice] => file.write_all_at(slice, position).map(|()| position + slice.len() as u64),
        _ => write_several(file, position, slices),
    }
}

/// Small slices are gathered, so that one call writes them: a copy costs less than a call.
fn write_several(file: &fs::File, mut position: u64, slices: &[IoSlice<'_>]) -> io::Result<u64> {
    const GATHERED_BYTES_MAX: usize = 64 << 10;
    let mut gathered = Vec::new();
    let flush = |gathered: &mut Vec<u8>, position: &mut u64| {
        let outcome = file.write_all_at(gathered, *position);
        *position += gathered.len() as u64;
        gathered.clear();
        outcome
    };
    for slice in slices {
        if gathered.len() + slice.len() > GATHERED_BYTES_MAX && !gathered.is_empty() {
            flush(&mut gathered, &mut position)?;
        }
        if slice.len() > GATHERED_BYTES_MAX {
            file.write_all_at(slice, position)?;
            position += slice.len() as u64;
        } else {
            gathered.extend_from_slice(slice);
        }
    }
    flush(&mut gathered, &mut position)?;
    Ok(position)
}

/// Puts a synced copy of the first `keep` bytes of `file` under `path`, which is the name of `file`.
fn copy_front(file: &fs::File, path: &Path, keep: u64) -> io::Result<(fs::File, fs::Metadata)> {
    let copy_path = suffixed(path, ".copy.deleted");
    let outcome = copy_to(file, &copy_path, keep).and_then(|copy| {
        fs::rename(&copy_path, path)?;
        Ok(copy)
    });
    if outcome.is_err() {
        let _ = fs::remove_file(&copy_path); // the error that counts is the first
    }
    outcome
}

fn copy_to(file: &fs::File, copy_path: &Path, keep: u64) -> io::Result<(fs::File, fs::Metadata)> {
    const BLOCK_BYTES: u64 = 256 << 10;
    let copy = fs::File::options().read(true).write(true).create(true).truncate(true).open(copy_path)?;
    copy.set_permissions(file.metadata()?.permissions())?;
    let mut block = Vec::new();
    let mut at = 0;
    while at < keep {
        block.resize(usize::try_from((keep - at).min(BLOCK_BYTES)).expect("a block fits"), 0);
        file.read_exact_at(&mut block, at)?;
        copy.write_all_at(&block, at)?;
        at += block.len() as u64;
    }
    copy.sync_all()?;
    let metadata = copy.metadata()?;
    Ok((copy, metadata))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Syncs the directory that a file is in.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
