//! A storage that calls back at an operation, so that a test does something exactly there.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use taffrail::{BootId, Entry, LockMode, Storage, StorageFile, StorageLock, Timestamp};

type Hook = Box<dyn FnMut(&str, &Path) + Send>;

/// Calls the hook before "create" and "link" (with the new name), and after "sync" of a file.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn Storage>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Hooked {
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, hook: Arc::default() }
    }

    pub fn shared(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    pub fn set(&self, hook: impl FnMut(&str, &Path) + Send + 'static) {
        *self.hook.lock().expect("no panic") = Some(Box::new(hook));
    }

    pub fn clear(&self) {
        *self.hook.lock().expect("no panic") = None;
    }

    /// What the hook does itself calls no hook.
    fn call(&self, operation: &str, path: &Path) {
        let hook = self.hook.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            hook(operation, path);
            self.hook.lock().expect("no panic").get_or_insert(hook);
        }
    }

    fn file(&self, path: &Path, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HookedFile { inner: file, path: path.to_owned(), storage: self.clone() })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Storage for Hooked {
    fn open(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(path, self.inner.open(path, capacity)?))
    }

    fn create(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.call("create", path);
        Ok(self.file(path, self.inner.create(path, capacity)?))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("link", to);
        self.inner.link(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(path)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.inner.modified(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_directory(path)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn StorageLock>> {
        self.inner.lock(path, mode)
    }

    fn boot(&self) -> Option<BootId> {
        self.inner.boot()
    }
}

struct HookedFile {
    inner: Arc<dyn StorageFile>,
    path: PathBuf,
    storage: Hooked,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StorageFile for HookedFile {
    fn write(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write(position, slices)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.inner.extend(len)
    }

    fn read(&self, range: Range<u64>) -> io::Result<bytes::Bytes> {
        self.inner.read(range)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }

    fn unshare(&self) -> io::Result<()> {
        self.inner.unshare()
    }

    fn rename(&self, to: &Path) -> io::Result<()> {
        self.inner.rename(to)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        self.storage.call("sync", &self.path);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
