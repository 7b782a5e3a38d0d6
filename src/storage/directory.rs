//! Ways to directories and the locks in them, with errors that say where.

use std::io;
use std::path::Path;

use super::checkpoint::read_all;
use super::{Entry, LockMode, Storage, StorageLock};
use crate::error::{Error, Result};
use crate::trace;

/// A lock file holds a process id.
/// The lock file of a directory.
pub(crate) const LOCK: &str = ".lock";
const LOCK_BYTES_MAX: u64 = 64;

pub(crate) fn parent_of(directory: &Path) -> Option<&Path> {
    let parent = directory.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    parent.filter(|parent| *parent != directory)
}

pub(crate) fn list(storage: &dyn Storage, directory: &Path) -> Result<Vec<Entry>> {
    storage.list(directory).map_err(|error| Error::io("list", directory, error))
}

pub(crate) fn sync_directory(storage: &dyn Storage, directory: &Path) -> Result<()> {
    storage.sync_directory(directory).map_err(|error| Error::io("sync", directory, error))
}

pub(crate) fn take_lock(storage: &dyn Storage, path: &Path, mode: LockMode) -> Result<Box<dyn StorageLock>> {
    storage.lock(path, mode).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: path.to_owned(), owner: owner_of(storage, path) },
        _ => Error::io("lock", path, error),
    })
}

/// The process id that the holder wrote into the lock file.
fn owner_of(storage: &dyn Storage, path: &Path) -> Option<u32> {
    let bytes = read_all(storage, path, LOCK_BYTES_MAX).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// What is in a directory, which is created where it is missing. What lies above is never listed: a parent may hold
/// thousands of partitions.
pub(crate) fn list_or_create(storage: &dyn Storage, directory: &Path) -> Result<Vec<Entry>> {
    match storage.list(directory) {
        Ok(entries) => return Ok(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("list", directory, error)),
    }
    create_with_parents(storage, directory)?;
    list(storage, directory)
}

/// What is in a directory, which is created in its parent where it is missing; its name is not made durable.
pub(crate) fn list_or_create_name(storage: &dyn Storage, directory: &Path) -> Result<Vec<Entry>> {
    match storage.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            storage.create_directory(directory).map_err(|error| Error::io("create", directory, error))?;
            Ok(Vec::new())
        }
        outcome => outcome.map_err(|error| Error::io("list", directory, error)),
    }
}

/// Creates a directory and what is missing above it, each durable in its parent before the next.
fn create_with_parents(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let parent = parent_of(directory);
    let created = match (storage.create_directory(directory), parent) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_with_parents(storage, parent)?;
            storage.create_directory(directory)
        }
        (outcome, _) => outcome,
    };
    created.map_err(|error| Error::io("create", directory, error))?;
    parent.map_or(Ok(()), |parent| sync_names(storage, parent))
}

/// Syncs a directory in which something of ours lies. One that may be passed through and not be read cannot be opened,
/// and so not be synced: then it is on its owner that the names in it are durable. (A name that was made a moment ago may
/// be gone after a loss of power until the file system has written it by itself.)
fn sync_names(storage: &dyn Storage, directory: &Path) -> Result<()> {
    match storage.sync_directory(directory) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            trace::warn(directory, || "may not be opened, and so not be synced: the names in it may not be durable");
            Ok(())
        }
        outcome => outcome.map_err(|error| Error::io("sync", directory, error)),
    }
}

/// Makes the way to a directory durable: an earlier process may have been killed between creating and syncing it.
pub(crate) fn sync_ancestors(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let Some(parent) = parent_of(directory) else { return Ok(()) };
    sync_names(storage, parent)?;
    let above = std::iter::successors(parent_of(parent), |path| parent_of(path));
    // What lies further up may not be ours to open; whoever made it has made it durable then.
    above.for_each(|path| drop(storage.sync_directory(path)));
    Ok(())
}
