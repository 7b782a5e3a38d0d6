//! One open file of [`FileStorage`](super::FileStorage).
//!
//! Its descriptor and its map are opened on demand and may be closed at any time in between by the
//! [pool](super::pool); what stays is small. Its locks, in the order in which they are taken:
//!
//! | lock | guards | held over |
//! |---|---|---|
//! | `writer` | the writer's descriptor and extent | a write, an extension, a cut |
//! | `name` | the name and the identity of the file | opening it, mapping it, renaming it, a cut |
//! | `file`, the slot of [`Lending`] | pointers | a pointer |
//!
//! So a reader whose file is open waits for nobody's I/O, and a write takes one lock that nobody contends for.
//!
//! A closed file is opened again under the name it has now, and must be the file it was. Bytes may be lost to
//! an error that the system reports once, to one descriptor: so a file with unsynced bytes is not closed,
//! and a failed sync that the pool asked for is kept until the owner's own sync asks.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;

use super::super::StorageFile;
use super::super::lend::{Extent, Lend, Lending, Mapped};
use super::super::map::{Map, lent, maps_of};
use super::base::Base;
use super::pool::{Closing, Member, Pool};
use super::{Opened, copy_front, open_retrying, sync_directory_of, write_slices};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{self, Mutex, RwLock};

/// Files that are smaller for good are read into memory: a map would cost more.
const MAPPED_BYTES_MIN: u64 = 64 << 10;

/// Zeros are written in blocks of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file that may be open.
pub(super) struct Handle {
    me: Weak<Handle>,
    pool: Arc<Pool>,
    base: Base,
    capacity: u64,
    mapped: bool,
    /// Whether the system lets this process write to it, as of when it was opened last.
    is_writable: AtomicBool,
    /// The pool's tick at the last use.
    used: AtomicU64,
    /// How many changes were made to the file, and how many of them were synced.
    changes: AtomicU64,
    synced: AtomicU64,
    /// The error of a sync for the pool that the owner was not told of. Held over such a sync, so that the
    /// owner cannot look between the moment the system reported the error and the moment it is noted.
    untold: Mutex<Option<i32>>,
    name: Mutex<Name>,
    file: RwLock<Option<Arc<fs::File>>>,
    lending: Lending<Map>,
    writer: Mutex<Writer>,
}

struct Name {
    /// As the system is asked for it.
    path: PathBuf,
    identity: Identity,
}

struct Writer {
    file: Option<Arc<fs::File>>,
    extent: sync::Arc<Extent>,
}

impl Writer {
    fn file(&self) -> &fs::File {
        self.file.as_deref().expect("the writer opens the file first")
    }
}

/// Which file this is. The number of a file that was removed is given to the next one, so its birth counts too.
type Identity = (u64, u64, Option<Duration>);

fn identity(metadata: &fs::Metadata) -> Identity {
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    (metadata.dev(), metadata.ino(), born)
}

fn another_file() -> io::Error {
    io::Error::other("another file stands under this name")
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStorageFile").field("path", &self.name.lock().path).finish_non_exhaustive()
    }
}

impl Handle {
    /// Takes over a file that was just opened.
    pub(super) fn new(
        pool: &Arc<Pool>,
        base: &Base,
        path: &Path,
        opened: Opened,
        capacity: u64,
        mapped: bool,
    ) -> Arc<Self> {
        let Opened { file, metadata, is_writable } = opened;
        let length = metadata.len();
        let extent = sync::Arc::new(Extent::new(length, length));
        let file = Arc::new(file);
        let handle = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            pool: Arc::clone(pool),
            base: base.clone(),
            capacity,
            mapped: mapped && capacity.max(length) >= MAPPED_BYTES_MIN,
            is_writable: AtomicBool::new(is_writable),
            used: AtomicU64::new(pool.tick()),
            changes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            untold: Mutex::new(None),
            name: Mutex::new(Name { path: path.to_path_buf(), identity: identity(&metadata) }),
            file: RwLock::new(Some(Arc::clone(&file))),
            lending: Lending::new(sync::Arc::clone(&extent)),
            writer: Mutex::new(Writer { file: Some(file), extent }),
        });
        pool.admit(handle.as_member());
        handle
    }

    fn as_member(&self) -> Weak<dyn Member> {
        Weak::<Self>::clone(&self.me)
    }

    fn touch(&self) {
        self.used.store(self.pool.tick(), Ordering::Relaxed);
    }

    /// Notes a change that is not synced. Called with the writer's lock held, after the change.
    fn changed(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn is_unsynced(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }

    /// The open file, opened again where it was closed.
    fn opened(&self) -> io::Result<Arc<fs::File>> {
        let open = self.file.read().clone();
        if let Some(file) = open {
            return Ok(file);
        }
        self.pool.make_room();
        self.opened_under(&self.name.lock())
    }

    /// The same, with the lock on the name held.
    fn opened_under(&self, name: &Name) -> io::Result<Arc<fs::File>> {
        let open = self.file.read().clone();
        if let Some(file) = open {
            return Ok(file);
        }
        let Opened { file, metadata, is_writable } = open_retrying(&self.pool, &name.path)?;
        if identity(&metadata) != name.identity {
            return Err(another_file());
        }
        if metadata.len() < self.lending.length() {
            return Err(io::Error::other("the file was cut by somebody else"));
        }
        let file = Arc::new(file);
        self.is_writable.store(is_writable, Ordering::Release);
        *self.file.write() = Some(Arc::clone(&file));
        self.pool.admit(self.as_member());
        Ok(file)
    }

    /// Whether the file stands under its name still. The writer asks, so that it has the length we know.
    fn check(&self, name: &Name) -> io::Result<()> {
        let metadata = fs::metadata(&name.path)?;
        let same = identity(&metadata) == name.identity;
        let same_length = self.file.read().is_some() || metadata.len() == self.lending.length();
        if same && same_length { Ok(()) } else { Err(another_file()) }
    }

    /// The map, made anew where there is none or where it `is_outgrown`. `None` where the file cannot be mapped.
    fn map(&self, is_outgrown: bool) -> io::Result<Option<sync::Arc<Mapped<Map>>>> {
        self.opened()?;
        let name = self.name.lock();
        if !is_outgrown && let Some(map) = self.lending.map() {
            return Ok(Some(map));
        }
        let file = self.opened_under(&name)?;
        let length = self.lending.length();
        // Linux lets a map reach past the end of the file and shows there what is written later.
        let len = if cfg!(target_os = "linux") { self.capacity.max(length) } else { length };
        let Ok(map) = Map::new(&file, len) else { return Ok(None) };
        let map = self.lending.put(map, len);
        if self.file.read().is_none() {
            self.lending.take(); // closed meanwhile: nobody would look for this map
        }
        Ok(Some(map))
    }

    /// Lends the bytes of the range; `None` where they have to be copied.
    fn lend(&self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        let mut map = self.lending.map();
        for is_outgrown in [false, true] {
            let mapped = match map.take() {
                Some(map) => map,
                None => match self.map(is_outgrown)? {
                    Some(map) => map,
                    None => return Ok(None),
                },
            };
            match Mapped::lend(mapped, range.clone()) {
                Lend::Bytes(claim) => return Ok(Some(lent(claim))),
                Lend::Unsettled => return Ok(None),
                Lend::Outgrown => {}
            }
        }
        Ok(None)
    }

    /// Copies the bytes of the range.
    fn copy(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let file = self.opened()?;
        let end = range.end.min(self.lending.length());
        let Some(len) = end.checked_sub(range.start).filter(|len| *len > 0) else { return Ok(Bytes::new()) };
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match file.read_at(&mut bytes[filled..], range.start + filled as u64) {
                Ok(0) => break, // cut meanwhile
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(Bytes::from(bytes))
    }

    /// Makes sure that the writer has the open file.
    fn ready(&self, writer: &mut Writer) -> io::Result<()> {
        self.touch();
        if writer.file.is_none() {
            writer.file = Some(self.opened()?);
        }
        Ok(())
    }

    /// Why a change fails: a descriptor for reading would only say that it is a bad one.
    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "this process may read the file, but not write to it"))
    }

    /// After a write that failed: any part of it may be there.
    fn measure(writer: &Writer) {
        if let Ok(metadata) = writer.file().metadata() {
            writer.extent.set_length(metadata.len());
        }
    }

    /// Nothing behind `to` is lent from now on. Returns whether nobody holds what lies there: neither what this handle
    /// has lent, nor what an earlier handle of the file has, whose maps may reach everywhere.
    fn lower(&self, writer: &Writer, metadata: &fs::Metadata, to: u64) -> bool {
        self.lending.lower(&writer.extent, to) && maps_of(metadata) <= writer.extent.maps()
    }

    /// Before bytes that stand there are written over: stops lending them, and where they are held and would
    /// change, moves to a copy of the file. Returns up to where the file is settled once that is written.
    #[cold]
    fn before_overwriting(&self, writer: &mut Writer, position: u64, slices: &[IoSlice<'_>]) -> io::Result<u64> {
        let (length, settled) = (writer.extent.length(), writer.extent.settled());
        let metadata = writer.file().metadata()?;
        if self.lower(writer, &metadata, position) {
            return Ok(settled);
        }
        if !stands_there(writer.file(), position, settled, slices)? {
            let mut name = self.name.lock();
            self.move_to_copy(writer, &mut name, length, position)?;
        }
        Ok(settled)
    }

    /// Goes on with a copy of the first `keep` bytes of the file under its name, synced; who holds bytes of
    /// the file keeps them.
    fn move_to_copy(&self, writer: &mut Writer, name: &mut Name, keep: u64, settled: u64) -> io::Result<()> {
        self.check(name)?;
        let (copy, metadata) = copy_front(writer.file(), &name.path, keep)?;
        let copy = Arc::new(copy);
        let extent = sync::Arc::new(Extent::new(keep, settled));
        name.identity = identity(&metadata);
        self.is_writable.store(true, Ordering::Release);
        *self.file.write() = Some(Arc::clone(&copy));
        self.lending.replace(sync::Arc::clone(&extent));
        *writer = Writer { file: Some(copy), extent };
        sync_directory_of(&name.path)
    }
}

/// Whether the file holds, from `position` up to `end`, what the slices hold.
fn stands_there(file: &fs::File, position: u64, end: u64, slices: &[IoSlice<'_>]) -> io::Result<bool> {
    let mut block = vec![0; ZEROS.len()];
    let mut at = position;
    for piece in slices.iter().flat_map(|slice| slice.chunks(ZEROS.len())) {
        let len = usize::try_from(end.saturating_sub(at)).map_or(piece.len(), |left| left.min(piece.len()));
        file.read_exact_at(&mut block[..len], at)?;
        if block[..len] != piece[..len] {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

impl StorageFile for Handle {
    fn write(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut writer = self.writer.lock();
        self.ready(&mut writer)?;
        if position > writer.extent.length() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a write behind the end of the file"));
        }
        let mut settled = 0;
        if position < writer.extent.settled() {
            settled = self.before_overwriting(&mut writer, position, slices)?;
        }
        let outcome = write_slices(writer.file(), position, slices);
        match outcome {
            Ok(end) => writer.extent.settle(end.max(settled)),
            Err(_) => Self::measure(&writer),
        }
        self.changed();
        outcome.map(|_| ()).or_else(|error| self.check_writable().and(Err(error)))
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        let mut writer = self.writer.lock();
        self.ready(&mut writer)?;
        let mut at = writer.extent.length();
        if at < len {
            self.check_writable()?;
        }
        while at < len {
            let block = usize::try_from(len - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            let outcome = writer.file().write_all_at(&ZEROS[..block], at);
            at += block as u64;
            match outcome {
                Ok(()) => writer.extent.set_length(at),
                Err(_) => Self::measure(&writer),
            }
            self.changed();
            outcome?;
        }
        Ok(())
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.touch();
        let lent = if self.mapped { self.lend(&range)? } else { None };
        lent.map_or_else(|| self.copy(&range), Ok)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut writer = self.writer.lock();
        self.ready(&mut writer)?;
        let metadata = writer.file().metadata()?;
        if metadata.len() <= len {
            return Ok(());
        }
        self.check_writable()?;
        let mut name = self.name.lock();
        let extent = sync::Arc::clone(&writer.extent);
        let settled = extent.settled();
        // A second name (a hard link) shows the same file, so that it must not be cut in place.
        let in_place = self.lower(&writer, &metadata, len) && metadata.nlink() <= 1;
        extent.set_length(len);
        let outcome = if in_place {
            writer.file().set_len(len)
        } else {
            self.move_to_copy(&mut writer, &mut name, len, settled.min(len))
        };
        self.changed();
        if outcome.is_err() && sync::Arc::ptr_eq(&extent, &writer.extent) {
            extent.set_length(metadata.len()); // nothing was cut
            extent.settle(settled);
        }
        outcome
    }

    fn unshare(&self) -> io::Result<()> {
        let mut writer = self.writer.lock();
        self.ready(&mut writer)?;
        if writer.file().metadata()?.nlink() <= 1 {
            return Ok(());
        }
        let mut name = self.name.lock();
        let (length, settled) = (writer.extent.length(), writer.extent.settled());
        let outcome = self.move_to_copy(&mut writer, &mut name, length, settled);
        self.changed();
        outcome
    }

    fn rename(&self, to: &Path) -> io::Result<()> {
        let to = self.base.resolve(to);
        let mut name = self.name.lock();
        if to.parent() != name.path.parent() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the new name is in another directory"));
        }
        self.check(&name)?;
        fs::rename(&name.path, &to)?;
        name.path = to.into_owned();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.touch();
        // Counted before the file is taken: if the writer moves to a copy in between, that was synced.
        let changes = self.changes.load(Ordering::Acquire);
        let outcome = self.opened()?.sync_data();
        if let Some(code) = self.untold.lock().take() {
            return Err(io::Error::from_raw_os_error(code));
        }
        outcome?;
        self.synced.fetch_max(changes, Ordering::AcqRel);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lending.length())
    }
}

impl Member for Handle {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn close(&self) -> Closing {
        let Some(mut writer) = self.writer.try_lock() else { return Closing::Busy };
        if self.is_unsynced() {
            return Closing::Unsynced;
        }
        writer.file = None;
        let file = self.file.write().take();
        let _map = self.lending.take();
        if file.is_some() { Closing::Closed } else { Closing::WasClosed }
    }

    fn sync_for_pool(&self) -> bool {
        let mut untold = self.untold.lock();
        let changes = self.changes.load(Ordering::Acquire);
        let Some(file) = self.file.read().clone() else { return true };
        match file.sync_data() {
            Ok(()) => {
                self.synced.fetch_max(changes, Ordering::AcqRel);
                true
            }
            Err(error) => {
                const EIO: i32 = 5;
                *untold = error.raw_os_error().or(Some(EIO));
                false
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.file.read().is_some() {
            self.pool.dismiss();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::super::Storage;
    use super::super::FileStorage;
    use super::*;

    fn open(path: &Path) -> Arc<Handle> {
        let file = fs::File::options().read(true).write(true).open(path).expect("opened");
        let metadata = file.metadata().expect("metadata");
        let opened = Opened { file, metadata, is_writable: true };
        Handle::new(&Arc::new(Pool::new(1)), &Base::now(), path, opened, 0, false)
    }

    /// A file that may only be read once said of the first write that its descriptor is bad.
    #[test]
    fn a_file_that_may_only_be_read_says_so() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("file");
        fs::write(&path, b"abc").expect("written");
        let file = fs::File::open(&path).expect("opened");
        let metadata = file.metadata().expect("metadata");
        let opened = Opened { file, metadata, is_writable: false };
        let file = Handle::new(&Arc::new(Pool::new(1)), &Base::now(), &path, opened, 0, false);
        let denied = |outcome: io::Result<()>| {
            let error = outcome.expect_err("nothing may be written");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            assert!(error.to_string().contains("not write"), "{error}");
        };
        denied(file.write(3, &[IoSlice::new(b"d")]));
        denied(file.extend(10));
        denied(file.truncate(1));
        file.truncate(3).expect("nothing to do");
        file.extend(3).expect("nothing to do");
        assert_eq!(&file.read(0..10).expect("read")[..], b"abc");
    }

    /// The system reports an error of writing back once to each descriptor. If the pool's sync gets it, the
    /// owner's next sync must return it all the same: it would take the lost bytes for durable.
    #[test]
    fn a_sync_that_failed_for_the_pool_fails_the_owners_next() {
        const EINVAL: i32 = 22;
        let device = open(Path::new("/dev/null")); // takes every write, and cannot be synced
        device.write(0, &[IoSlice::new(b"lost")]).expect("written");
        assert!(!device.sync_for_pool());
        assert_eq!((*device.untold.lock(), device.close()), (Some(EINVAL), Closing::Unsynced));

        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("file");
        drop(FileStorage::new().create(&path, 0).expect("created"));
        let file = open(&path);
        file.write(0, &[IoSlice::new(b"lost")]).expect("written");
        *file.untold.lock() = Some(EINVAL);
        assert_eq!(file.sync().expect_err("the pool's").raw_os_error(), Some(EINVAL));
        assert_eq!(file.close(), Closing::Unsynced, "the bytes do not count as synced by that");
        file.sync().expect("synced");
        assert_eq!(file.close(), Closing::Closed);
    }

    /// A sync covers the writes that were done when it began, not those that came while it ran.
    #[test]
    fn only_what_was_written_before_a_sync_counts_as_synced() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("file");
        drop(FileStorage::new().create(&path, 0).expect("created"));
        let file = open(&path);
        assert!(!file.is_unsynced());
        file.extend(10).expect("extended");
        assert!(file.is_unsynced());
        file.sync().expect("synced");
        file.truncate(3).expect("cut");
        assert!(file.is_unsynced(), "a new length is unsynced too");
        assert!(file.sync_for_pool() && !file.is_unsynced());
    }
}
