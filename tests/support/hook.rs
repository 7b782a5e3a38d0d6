//! A storage that does something of the test's before each sync of a file.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use taffrail::{BootId, Entry, LockMode, MemoryStorage, Storage, StorageFile, StorageLock, Timestamp};

/// What is done.
pub type Hook = Arc<dyn Fn() + Send + Sync>;

/// Calls the hook before each sync of a file.
#[derive(Clone)]
pub struct SyncHook {
    pub files: MemoryStorage,
    pub before_sync: Hook,
}

struct HookedFile {
    file: Arc<dyn StorageFile>,
    before_sync: Hook,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl fmt::Debug for SyncHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl SyncHook {
    fn file(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HookedFile { file, before_sync: Arc::clone(&self.before_sync) })
    }
}

impl Storage for SyncHook {
    fn open(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.files.open(path, capacity)?))
    }
    fn create(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.files.create(path, capacity)?))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.link(from, to)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.files.list(directory)
    }
    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.files.modified(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.files.sync_directory(path)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn StorageLock>> {
        self.files.lock(path, mode)
    }
    fn boot(&self) -> Option<BootId> {
        self.files.boot()
    }
}

impl StorageFile for HookedFile {
    fn write(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.file.write(position, slices)
    }
    fn extend(&self, len: u64) -> io::Result<()> {
        self.file.extend(len)
    }
    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.file.read(range)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn unshare(&self) -> io::Result<()> {
        self.file.unshare()
    }
    fn rename(&self, to: &Path) -> io::Result<()> {
        self.file.rename(to)
    }
    fn sync(&self) -> io::Result<()> {
        (self.before_sync)();
        self.file.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
