//! The door to bytes that last: directories and files behind two small traits.
//!
//! [`FileStorage`] is the operating system, [`MemoryStorage`] keeps everything in memory and can crash and
//! fail on demand. A host can bring its own; the suite in `taffrail::testkit` (feature `testkit`) says
//! whether it keeps the contract.
//!
//! What the disk is assumed to do:
//!
//! 1. Bytes covered by a completed [`StorageFile::sync`] survive a loss of power, and so does the length
//!    of the file that they need.
//! 2. Bytes that were written and not synced may be lost, kept or torn, in any order, at any granularity.
//! 3. Creating, renaming and removing a name is atomic, and durable once its directory was synced with
//!    [`Storage::sync_directory`]. Before that each of them may or may not have happened.
//! 4. After a failed sync nothing is known of the bytes that were not synced, and reading them back proves
//!    nothing: they must be written again, and synced, to be safe.
//! 5. What was written is read back by the same process at once, synced or not.

pub(crate) mod checkpoint;
pub(crate) mod directory;
mod file;
mod lend;
mod map;
mod memory;

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use self::file::{FileStorage, Reads};
pub use self::memory::{Fault, MemoryStorage, Operation, OperationKind};
use crate::types::Timestamp;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without the directory.
    pub name: String,
    /// Its length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Which boot of the machine this is: two equal values are one boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BootId(pub String);

/// How a directory's lock file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockMode {
    /// Nobody else may hold it.
    Exclusive,
    /// Others may hold it shared.
    Shared,
}

/// A lock that is held until it is dropped.
pub trait StorageLock: Send + Sync + fmt::Debug {}

/// Directories, and the files in them. Paths are relative to nothing: they are passed on as the host gave them.
///
/// Every method may be called from any thread. What is not there is [`io::ErrorKind::NotFound`].
///
/// A file is changed through one handle at a time. A second handle of the same file sees at least the bytes
/// that were there when it was opened, as long as the first does not cut them off.
pub trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Opens a file that is there. `capacity` says up to how many bytes it may grow: reads may be prepared
    /// for that many, and nothing is allocated for them.
    fn open(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>>;

    /// Creates an empty file; one that is there under this name is an error ([`io::ErrorKind::AlreadyExists`]).
    fn create(&self, path: &Path, capacity: u64) -> io::Result<Arc<dyn StorageFile>>;

    /// Creates a directory whose parent is there; one that is there already is left as it is.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a file. Who has it open can still drop the handle; reading through it may go on, or answer
    /// [`io::ErrorKind::NotFound`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory; one that is not empty is an error ([`io::ErrorKind::DirectoryNotEmpty`]).
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives a file that nobody has open another name, replacing what has that name. Files that are open are
    /// renamed through [`StorageFile::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name in the same file system; a name that is taken is an error
    /// ([`io::ErrorKind::AlreadyExists`]). Bytes written later show under both names. A file that is cut keeps
    /// its bytes under its other name, and the two are different files from then on.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Lists a directory, sorted by name.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// When a file was last written, in wall time.
    fn modified(&self, path: &Path) -> io::Result<Timestamp>;

    /// Has a file have been written last at `time`. It is a hint that a loss of power may take.
    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()>;

    /// Makes the names in a directory durable (assumption 3).
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock file at `path` without waiting, creating it where it is missing. Exclusive holders write
    /// their process id into it, in decimal. A lock that is held elsewhere, by another process or by this one, is
    /// [`io::ErrorKind::WouldBlock`]. Removing the file ends nobody's lock, but the next one is taken on a new file.
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn StorageLock>>;

    /// Which boot of the machine this is; `None` where that cannot be told.
    fn boot(&self) -> Option<BootId>;

    /// How many files it has open; `None` where that is not known.
    fn open_files(&self) -> Option<usize> {
        None
    }

    /// Whether this process is a fork of the one that made this storage, whose files and locks are not its own.
    fn is_forked(&self) -> bool {
        false
    }
}

/// An open file. Positions are bytes from its start.
///
/// Every method may be called from any thread; writes, truncation and renaming come from one writer at a time.
/// What `read` returned never changes: not by a later write, truncation, rename or removal. A read does not wait
/// for a write; of bytes that are being written at that moment it may see any part.
///
/// Bytes that are read again and again without being copied lie below the end of what was written: zeros that
/// [`extend`](StorageFile::extend) put there, and bytes that are written over, may be copied by each read.
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Writes the slices one behind the other, all of them, beginning at `position`. One beyond the length is an
    /// error ([`io::ErrorKind::InvalidInput`]) and changes nothing. On any other error any part of the slices may
    /// have been written, and the file may have grown by it.
    fn write(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Makes the file `len` bytes long by writing zeros behind its end, so that writes below `len` need no room
    /// any more; a file that is longer is left as it is. After an error some of them may be there.
    fn extend(&self, len: u64) -> io::Result<()>;

    /// Reads the bytes of `range` that are there: fewer where the file ends before the range does, none where it
    /// ends before the range begins.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;

    /// Cuts the file to `len` bytes; a shorter file is left as it is. After an error it has its old length, or,
    /// where a copy took its place and only the directory could not be synced, the new one.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes the file's bytes its own: where a second name ([`Storage::link`]) shows them too, the handle goes on with a
    /// copy, durably, and the other name keeps what it has. Call it before changing a file that was not created by
    /// this handle.
    fn unshare(&self) -> io::Result<()>;

    /// Gives the file another name in the same directory, replacing what has that name. A name in another
    /// directory is an error ([`io::ErrorKind::InvalidInput`]), and so it is if the file does not stand under its
    /// name any more; then nothing is renamed.
    fn rename(&self, to: &Path) -> io::Result<()>;

    /// Makes what was written, extended and cut before the call durable, by whatever handle (assumption 1). An
    /// error of writing bytes back that the system found earlier, on its own, is this call's to return.
    fn sync(&self) -> io::Result<()>;

    /// The length of the file in bytes. This is never the length of the log in it.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
