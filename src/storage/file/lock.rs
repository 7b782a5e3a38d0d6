//! The lock on a directory: an advisory lock (`flock`) on a file in it.
//!
//! It belongs to the opened file, not to the process: a second handle in the same process is refused too, and
//! a forked child shares it. So only the process that took the lock gives it back explicitly; a child that drops
//! its handle closes a descriptor and nothing more, and a child that keeps it does not keep the lock alive.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::super::map::ForkMark;
use super::super::{LockMode, StorageLock};

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    file: fs::File,
    mark: Arc<ForkMark>,
}

impl FileLock {
    pub(super) fn take(path: &Path, mode: LockMode, mark: &Arc<ForkMark>) -> io::Result<Self> {
        loop {
            let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
            let locked = match mode {
                LockMode::Exclusive => file.try_lock(),
                LockMode::Shared => file.try_lock_shared(),
            };
            locked.map_err(|error| match error {
                fs::TryLockError::Error(error) => error,
                fs::TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            })?;
            if !is_under(path, &file)? {
                continue; // its last holder removed it while it was opened here: lock the one that counts
            }
            if mode == LockMode::Exclusive {
                let process = std::process::id().to_string();
                file.set_len(0)?;
                file.write_all_at(process.as_bytes(), 0)?;
            }
            return Ok(Self { file, mark: Arc::clone(mark) });
        }
    }
}

/// Whether the name still leads to the opened file.
fn is_under(path: &Path, file: &fs::File) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl StorageLock for FileLock {}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.mark.is_forked() {
            let _ = self.file.unlock(); // closing the file does it too, where no child has it
        }
    }
}
