//! Mapped files, and the mark that a fork wipes: the only file with `unsafe`.
//!
//! # The mapping rules, and why they are sound
//!
//! A mapped byte is a `&[u8]` whose memory the operating system backs with the page cache. Rust asks of it
//! that it stays readable and does not change while it is borrowed.
//!
//! 1. *It stays mapped.* A [`Claim`] owns a share of its map; the last share unmaps.
//! 2. *It is in the file.* Touching a page that lies wholly behind the end of the file is SIGBUS. A map may
//!    reach past the end of the file, but no slice is made of that part: slices are made of a [`Claim`] alone,
//!    which only `Mapped::lend` makes, and a claimed range lies within the file.
//! 3. *The file is not cut below it.* Cuts go through the file's one handle, which cuts in place only where
//!    nothing behind the cut is held, and otherwise leaves the file to its readers and goes on with a copy
//!    (`storage/lend.rs`, checked under loom). What was handed out may outlive its handle, while the file is opened
//!    anew: so the maps of a file are counted over all handles of the process, and where another handle's map is
//!    alive the writer goes on with a copy too.
//! 4. *It does not change.* The same handle writes in place only where nothing is held, or where what it
//!    writes is what stands there (recovery writes bytes again to make them durable). Records are written
//!    behind everything that was ever lent. Maps are read-only.
//! 5. *No reference covers more.* The map is kept as a raw pointer; nothing makes a slice of all of it.
//!
//! What no rule inside this process can prevent: another process, or a second handle, that cuts or changes
//! the file, and an I/O error while a page is loaded (SIGBUS). The documentation of
//! [`Reads`](super::Reads) says so; `Reads::Buffered` maps nothing.
#![allow(unsafe_code)] // mapping files and marking a page for forks cannot be done without

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};

use super::lend::Claim;
use crate::sync::StaticMutex;

/// A file mapped for reading.
#[derive(Debug)]
pub(super) struct Map {
    bytes: MmapRaw,
    _counted: Counted,
}

impl Map {
    /// Maps `len` bytes from the start of the file, which may be fewer or more than it has.
    pub(super) fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let counted = Counted::new(&file.metadata()?);
        Ok(Self { bytes: MmapOptions::new().len(len).map_raw_read_only(file)?, _counted: counted })
    }
}

/// How many maps of each file (device, inode) this process has, by whatever handle.
static MAPS: StaticMutex<BTreeMap<(u64, u64), u64>> = StaticMutex::new(BTreeMap::new());

/// How many maps of a file this process has, by whatever handle.
pub(super) fn maps_of(metadata: &Metadata) -> u64 {
    MAPS.lock().get(&(metadata.dev(), metadata.ino())).copied().unwrap_or(0)
}

/// A map that is counted while it lives.
#[derive(Debug)]
struct Counted((u64, u64));

impl Counted {
    fn new(metadata: &Metadata) -> Self {
        let file = (metadata.dev(), metadata.ino());
        *MAPS.lock().entry(file).or_insert(0) += 1;
        Self(file)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = MAPS.lock().entry(self.0) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl AsRef<[u8]> for Claim<Map> {
    fn as_ref(&self) -> &[u8] {
        let Range { start, end } = self.range();
        let map = &self.map().bytes;
        assert!(start <= end && end <= map.len() as u64, "a claimed range lies within its map");
        // Both fit: they are at most the length of a map.
        #[expect(clippy::cast_possible_truncation, reason = "asserted to be at most a usize")]
        let (start, len) = (start as usize, (end - start) as usize);
        // SAFETY: the range lies within the map (asserted) and, being claimed, within the file, which is
        // neither cut below it nor changed in it while `self` keeps the map (rules 2, 3 and 4).
        unsafe { std::slice::from_raw_parts(map.as_ptr().add(start), len) }
    }
}

/// The claimed bytes, for whoever wants to keep them.
pub(super) fn lent(claim: Claim<Map>) -> Bytes {
    if claim.range().is_empty() { Bytes::new() } else { Bytes::from_owner(claim) }
}

/// Tells whether this process is a fork of the one that made the mark.
///
/// On Linux it is a page of memory that the kernel hands to a forked child as zeros, so asking costs one
/// load. Elsewhere, and on kernels that cannot do that, the process id is compared.
#[derive(Debug)]
pub(super) struct ForkMark {
    page: Option<memmap2::MmapMut>,
    process: u32,
}

impl ForkMark {
    pub(super) fn new() -> Self {
        Self { page: wiped_on_fork(), process: std::process::id() }
    }

    pub(super) fn is_forked(&self) -> bool {
        match &self.page {
            Some(page) => {
                let mark: *const u8 = page.as_ptr();
                // SAFETY: the pointer is to the first byte of a page that `self` keeps mapped. It is read as
                // volatile because the kernel changes it, in a child that has only this one thread then.
                (unsafe { mark.read_volatile() }) == 0
            }
            None => std::process::id() != self.process,
        }
    }
}

#[cfg(target_os = "linux")]
fn wiped_on_fork() -> Option<memmap2::MmapMut> {
    const PAGE: usize = 1; // the kernel rounds up
    let mut page = memmap2::MmapMut::map_anon(PAGE).ok()?;
    // SAFETY: address and length are those of a private anonymous mapping that we own. The advice changes
    // nothing in this process, and leaves zeros in a child.
    let advised = unsafe { libc::madvise(page.as_mut_ptr().cast(), PAGE, libc::MADV_WIPEONFORK) };
    page[0] = 1;
    (advised == 0).then_some(page)
}

#[cfg(not(target_os = "linux"))]
fn wiped_on_fork() -> Option<memmap2::MmapMut> {
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::lend::{Extent, Lend, Lending, Mapped};
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn a_map_reaches_past_the_end_and_lends_what_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"abcdef").expect("written");
        let file = File::open(&path).expect("opened");
        let extent = Arc::new(Extent::new(6, 6));
        let lending = Lending::new(Arc::clone(&extent));
        let map = lending.put(Map::new(&file, 1 << 20).expect("mapped"), 1 << 20);
        let Lend::Bytes(claim) = Mapped::lend(map, 2..1000) else { panic!("settled") };
        let bytes = lent(claim);
        drop((file, directory, lending, extent));
        assert_eq!(&bytes[..], b"cdef", "the bytes outlive the file's name, its descriptor and the slot");
    }

    #[test]
    fn a_process_is_no_fork_of_itself() {
        assert!(!ForkMark::new().is_forked());
        let by_process = ForkMark { page: None, process: std::process::id() };
        assert!(!by_process.is_forked());
        assert!(ForkMark { page: None, process: std::process::id() + 1 }.is_forked());
    }
}
