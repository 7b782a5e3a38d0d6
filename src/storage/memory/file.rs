//! Handles: open files and locks, which are given back when they are dropped.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::key;
use super::machine::Machine;
use crate::storage::{StorageFile, StorageLock};
use crate::sync::Mutex;

/// An open file of a machine.
pub(super) struct MemoryFile {
    machine: Arc<Mutex<Machine>>,
    handle: u64,
}

impl MemoryFile {
    pub(super) fn new(machine: &Arc<Mutex<Machine>>, handle: u64) -> Self {
        Self { machine: Arc::clone(machine), handle }
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.machine.lock().handles.get(&self.handle).map(|handle| Arc::clone(&handle.path));
        f.debug_tuple("MemoryFile").field(&path).finish()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.machine.lock().handles.remove(&self.handle);
    }
}

impl StorageFile for MemoryFile {
    fn write(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        for slice in slices {
            bytes.extend_from_slice(slice);
        }
        self.machine.lock().write(self.handle, position, Bytes::from(bytes))
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.machine.lock().extend(self.handle, len)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let content = self.machine.lock().read(self.handle, range.clone())?;
        Ok(content.read(range))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.machine.lock().truncate(self.handle, len)
    }

    fn unshare(&self) -> io::Result<()> {
        self.machine.lock().unshare(self.handle)
    }

    fn rename(&self, to: &Path) -> io::Result<()> {
        let to = key(to)?;
        self.machine.lock().rename_open(self.handle, &to)
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.lock().sync(self.handle)
    }

    fn len(&self) -> io::Result<u64> {
        self.machine.lock().len(self.handle)
    }
}

/// A lock that is held.
pub(super) struct MemoryLock {
    machine: Arc<Mutex<Machine>>,
    inode: u64,
}

impl MemoryLock {
    pub(super) fn new(machine: &Arc<Mutex<Machine>>, inode: u64) -> Self {
        Self { machine: Arc::clone(machine), inode }
    }
}

impl fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryLock").field(&self.inode).finish()
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.machine.lock().unlock(self.inode);
    }
}

impl StorageLock for MemoryLock {}
