//! A storage that calls back at an operation, so that a test does something exactly there, or has it fail: a hook for
//! each operation that a test wanted one for.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use taffrail::{BootId, Entry, LockMode, Storage, StorageFile, StorageLock, Timestamp};

/// Where it calls. The hook gets the file's path, as it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// Before a file is created.
    Create,
    /// Before a file gets a second name, with that one.
    Link,
    /// Before a file is read.
    Read,
    /// Before a file is synced.
    Sync,
    /// Behind a sync of a file that succeeded.
    Synced,
}

type Hook = Arc<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// Forwards everything, and calls the hooks.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn Storage>,
    hooks: Arc<Mutex<BTreeMap<At, Hook>>>,
}

impl Hooked {
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, hooks: Arc::default() }
    }

    pub fn shared(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// Sets what every such operation calls, on whichever thread, those of the hook itself too. Its error is the
    /// operation's.
    pub fn set(&self, at: At, hook: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) {
        self.hooks.lock().expect("no panic").insert(at, Arc::new(hook));
    }

    /// Sets what one such operation at a time calls: not those of the hook itself, nor those of others meanwhile.
    pub fn set_one_at_a_time(&self, at: At, hook: impl FnMut(&Path) + Send + 'static) {
        let idle = Mutex::new(Some(hook));
        self.set(at, move |path| {
            let hook = idle.lock().expect("no panic").take();
            if let Some(mut hook) = hook {
                hook(path);
                *idle.lock().expect("no panic") = Some(hook);
            }
            Ok(())
        });
    }

    pub fn clear(&self) {
        self.hooks.lock().expect("no panic").clear();
    }

    fn call(&self, at: At, path: &Path) -> io::Result<()> {
        let hook = self.hooks.lock().expect("no panic").get(&at).cloned();
        hook.map_or(Ok(()), |hook| hook(path))
    }

    fn file(&self, path: &Path, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HookedFile { inner: file, path: path.to_owned(), storage: self.clone() })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Storage for Hooked {
    fn open(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(path, self.inner.open(path, capacity)?))
    }

    fn create(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.call(At::Create, path)?;
        Ok(self.file(path, self.inner.create(path, capacity)?))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(At::Link, to)?;
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

    fn is_forked(&self) -> bool {
        self.inner.is_forked()
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

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.storage.call(At::Read, &self.path)?;
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
        self.storage.call(At::Sync, &self.path)?;
        self.inner.sync()?;
        self.storage.call(At::Synced, &self.path)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
