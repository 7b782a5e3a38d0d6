//! A storage in memory that crashes, tears and fails on demand: what the crash tests and the simulator stand on.
//!
//! It keeps exactly to the numbered assumptions about the disk (`storage/mod.rs`) and promises nothing
//! beyond them:
//!
//! 1. What a completed sync covered survives [`MemoryStorage::crash`], and so does the file's length then.
//! 2. Each change of bytes or length since then is kept, lost or torn at any byte, each by itself. Where the
//!    length survives and the bytes do not, zeros are read.
//! 3. Each change of names since its directory was synced happened or not, as far as that is consistent: a
//!    change needs the earlier ones that touch a name of its own, and a rename is never half done. Syncing a
//!    file does not make its name durable. A rename from one directory to another needs both synced.
//! 4. When a sync fails, its unsynced bytes stay readable; some of them may be on the disk, and no later sync
//!    puts the others there unless they are written again. Lengths and names are no bytes: a later sync that
//!    completes makes them durable.
//! 5. What was written is read back at once, by the next process too ([`MemoryStorage::kill`]).
//!
//! The same seeds and the same operations, in the same order, give the same bytes. Copies share what they have
//! in common, so that a crash costs little more than the bytes that it tears.
//!
//! ```text
//!  faults   which operation fails          machine   one lock: names, inodes, handles, locks
//!  fates    kept, torn, lost               names     paths: now, for certain, unsynced
//!  file     handles                        inode     bytes: now, for certain, unsynced  --  content   pages
//! ```

mod content;
mod fates;
mod faults;
mod file;
mod inode;
mod machine;
mod names;
mod operations;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use self::faults::Rule;
pub use self::faults::{Fault, Operation, OperationKind};
use self::file::{MemoryFile, MemoryLock};
use self::inode::Inode;
use self::machine::Machine;
use super::{BootId, Entry, LockMode, Storage, StorageFile, StorageLock};
use crate::sync::Mutex;
use crate::types::Timestamp;

/// A machine's files in memory, for tests and simulation: it can lose power, be killed, and fail.
///
/// Clones are handles of the same machine. There are two directories to begin with, `/` and the one that
/// relative paths start from; in each path, `.` means nothing.
///
/// ```
/// use std::io::IoSlice;
/// use std::path::Path;
/// use taffrail::{MemoryStorage, Storage, StorageFile};
///
/// # fn main() -> std::io::Result<()> {
/// let storage = MemoryStorage::new(7);
/// let file = storage.create(Path::new("/log"), 0)?;
/// storage.sync_directory(Path::new("/"))?;
/// file.write(0, &[IoSlice::new(b"synced ")])?;
/// file.sync()?;
/// file.write(7, &[IoSlice::new(b"or not")])?;
///
/// let after = storage.crash(1).bytes_of("/log").expect("its name was synced");
/// assert!(after.starts_with(b"synced ") && after.len() <= 13);
/// assert!(file.len().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStorage {
    machine: Arc<Mutex<Machine>>,
}

/// Its ends.
impl MemoryStorage {
    /// An empty disk. `seed` decides what failing writes and syncs leave.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::of(Machine::new(seed))
    }

    /// The same machine as the trait object that `open` functions take.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// Takes the power away, and answers what the machine finds when it starts again: another boot, no locks,
    /// no faults, operations counted from 0. On this storage and its files every operation is an error from now
    /// on. Nothing else changes here, so that further seeds can be asked for further outcomes of the same end.
    #[must_use = "it is what is left"]
    pub fn crash(&self, seed: u64) -> Self {
        Self::of(self.machine.lock().crash(seed))
    }

    /// Kills the process, and answers what the next one finds: everything that was written, synced or not, the
    /// same boot, no locks, no faults, operations counted from 0. On this storage and its files every operation
    /// is an error from now on. A machine that has lost power stays without it.
    #[must_use = "it is what is left"]
    pub fn kill(&self) -> Self {
        Self::of(self.machine.lock().kill())
    }

    /// A copy of the machine as it is: what [`Self::kill`] would answer, without ending this one.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self::of(self.machine.lock().next_process())
    }

    /// Whether the power is gone: by [`Self::crash_at`] or [`Self::crash`].
    #[must_use]
    pub fn has_lost_power(&self) -> bool {
        self.machine.lock().has_lost_power()
    }

    fn of(machine: Machine) -> Self {
        Self { machine: Arc::new(Mutex::new(machine)) }
    }
}

/// Faults. Operations are the calls of [`Storage`] and [`StorageFile`] that answer a result, numbered from 0.
impl MemoryStorage {
    /// How many operations were begun, which is the number of the next.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.machine.lock().faults.operations
    }

    /// Keeps the operations from now on, for [`Self::history`].
    pub fn record_history(&self) {
        self.machine.lock().faults.history.get_or_insert_default();
    }

    /// The operations since [`Self::record_history`], in order; the failed ones too.
    #[must_use]
    pub fn history(&self) -> Vec<Operation> {
        self.machine.lock().faults.history.clone().unwrap_or_default()
    }

    /// Operation `number` fails. Where it is none that can fail so (a short write of a sync), nothing happens.
    pub fn fail_at(&self, number: u64, fault: Fault) {
        self.add(Rule::At(number, fault));
    }

    /// From operation `number` on everything fails that `fault` is meant for, until [`Self::clear_faults`].
    ///
    /// [`Fault::NoSpace`] is meant for what takes space, [`Fault::Denied`] for what
    /// [changes](OperationKind::changes) something, [`Fault::SyncFails`] for syncs, [`Fault::ShortWrite`] for
    /// writes and extensions, [`Fault::Io`] for everything.
    pub fn fail_from(&self, number: u64, fault: Fault) {
        self.fail_between(number..u64::MAX, fault);
    }

    /// Like [`Self::fail_from`], for a range of operations.
    pub fn fail_between(&self, numbers: Range<u64>, fault: Fault) {
        self.add(Rule::During(numbers, fault));
    }

    /// Every operation for which `rule` has a fault fails. `rule` must not call the storage.
    pub fn fail_when(&self, rule: impl Fn(&Operation) -> Option<Fault> + Send + Sync + 'static) {
        self.add(Rule::When(Arc::new(rule)));
    }

    /// The power goes at operation `number`: it and every later one answer an error. If it is a write or an
    /// extension, any part of it may be on the disk; anything else does not happen.
    pub fn crash_at(&self, number: u64) {
        self.machine.lock().faults.power_goes_at = Some(number);
    }

    /// The disk is full until [`Self::free`]: what makes a file longer or needs a new name fails. Bytes that a
    /// file has already can be written.
    pub fn fill_up(&self) {
        self.machine.lock().faults.full = true;
    }

    /// Ends [`Self::fill_up`].
    pub fn free(&self) {
        self.machine.lock().faults.full = false;
    }

    /// Forgets every rule, the full disk and the crash to come.
    pub fn clear_faults(&self) {
        let faults = &mut self.machine.lock().faults;
        faults.rules.clear();
        faults.power_goes_at = None;
        faults.full = false;
    }

    fn add(&self, rule: Rule) {
        self.machine.lock().faults.rules.push(rule);
    }
}

/// What is on the disk, behind the back of whoever uses it. None of this counts as an operation, and all of it
/// works on a machine that has ended.
impl MemoryStorage {
    /// The path of every file, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.machine.lock().names.now().files().map(|(path, _)| PathBuf::from(path)).collect()
    }

    /// The bytes of a file as they are read now; `None` where there is no such file.
    #[must_use]
    pub fn bytes_of(&self, path: impl AsRef<Path>) -> Option<Bytes> {
        let machine = self.machine.lock();
        let inode = machine.file(&key(path.as_ref()).ok()?).ok()?;
        Some(machine.inode(inode)?.content().read(0..u64::MAX))
    }

    /// The bytes of a file if everything unsynced were lost; `None` where its name is not durable.
    #[must_use]
    pub fn durable_bytes_of(&self, path: impl AsRef<Path>) -> Option<Bytes> {
        let machine = self.machine.lock();
        let inode = machine.names.durable().reach(&key(path.as_ref()).ok()?)?.file()?;
        Some(machine.inode(inode)?.durable().read(0..u64::MAX))
    }

    /// Gives a file these bytes, durably, creating it and the directories above it where they are missing.
    ///
    /// # Errors
    /// Where a directory has that name, a file the name of a directory above it, or the path is not UTF-8.
    pub fn set_bytes(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        self.machine.lock().settle(&Arc::from(key(path.as_ref())?), bytes)
    }

    /// Flips one bit (0 is the lowest) of the byte at `position`, in what is read and in what is durable.
    ///
    /// # Errors
    /// Where there is no such file.
    pub fn flip_bit(&self, path: impl AsRef<Path>, position: u64, bit: u8) -> io::Result<()> {
        self.on(path.as_ref(), |inode| inode.flip(position, bit))
    }

    /// The wall time at which files are written from now on; 0 to begin with.
    pub fn set_time(&self, time: Timestamp) {
        self.machine.lock().time = time;
    }

    /// When a file was last written, as [`Storage::modified`] answers.
    ///
    /// # Errors
    /// Where there is no such file.
    pub fn set_modified(&self, path: impl AsRef<Path>, time: Timestamp) -> io::Result<()> {
        self.on(path.as_ref(), |inode| inode.modified = time)
    }

    fn on(&self, path: &Path, change: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let inode = machine.file(&key(path)?)?;
        change(machine.inode_mut(inode));
        Ok(())
    }
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.lock();
        f.debug_struct("MemoryStorage")
            .field("boot", &machine.boot().0)
            .field("operations", &machine.faults.operations)
            .finish_non_exhaustive()
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, _capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        let handle = self.machine.lock().open(&key(path)?)?;
        Ok(Arc::new(MemoryFile::new(&self.machine, handle)))
    }

    fn create(&self, path: &Path, _capacity: u64) -> io::Result<Arc<dyn StorageFile>> {
        let handle = self.machine.lock().create(&key(path)?)?;
        Ok(Arc::new(MemoryFile::new(&self.machine, handle)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.machine.lock().create_directory(&key(path)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.machine.lock().remove(&key(path)?)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.machine.lock().remove_directory(&key(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.machine.lock().rename(&key(from)?, &key(to)?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.machine.lock().link(&key(from)?, &key(to)?)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.machine.lock().list(&key(directory)?)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.machine.lock().modified(&key(path)?)
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        self.machine.lock().set_modified(&key(path)?, time)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.machine.lock().sync_directory(&key(path)?)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn StorageLock>> {
        let inode = self.machine.lock().lock(&key(path)?, mode)?;
        Ok(Box::new(MemoryLock::new(&self.machine, inode)))
    }

    fn boot(&self) -> Option<BootId> {
        Some(self.machine.lock().boot())
    }
}

/// A path as names are kept: parts joined by slashes, without `.` and a slash at the end.
fn key(path: &Path) -> io::Result<String> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no path here", path.display()));
    let mut key = String::new();
    for component in path.components() {
        let part = match component {
            Component::RootDir => "/",
            Component::CurDir => continue,
            Component::Normal(part) => part.to_str().ok_or_else(invalid)?,
            Component::ParentDir | Component::Prefix(_) => return Err(invalid()),
        };
        if !key.is_empty() && !key.ends_with('/') {
            key.push('/');
        }
        key.push_str(part);
    }
    Ok(key)
}
