//! Lend and cut: which bytes of a file readers may hold while its writer goes on.
//!
//! A mapped read lends bytes of the file itself. Two things must never happen to them: the file ends before
//! they do (touching them would end the process), or they change. So every file has an [`Extent`]:
//!
//! ```text
//!  0                 lent             settled                length            capacity
//!  |------------------|------------------|---- zeros, or -------|                 |
//!  |  some reader may |  may be lent,    |  being overwritten:  |  not in the     |
//!  |  hold these      |  as they are     |  reads get a copy    |  file           |
//! ```
//!
//! * `settled <= length <=` what the file has. The writer raises `settled` after a write has completed, and
//!   lowers it *before* it cuts the file or writes over bytes that stand there. Zeros that `extend` put
//!   behind the end are not settled: records will be written over them.
//! * `lent` is the highest end that a reader ever claimed. A reader first raises `lent` to the end it wants,
//!   *then* looks at `settled`, and takes the bytes only if they are settled still.
//! * The writer first lowers `settled`, *then* looks at `lent`. Both touch `lent` by a read-modify-write, so
//!   one of them comes second and sees what the other did: the reader gives up, or the writer knows that
//!   the bytes may be held.
//! * `lent` falls only when nobody holds a map of the file: no reader has the one in the slot, and no map
//!   that was taken out of the slot earlier is alive.
//!
//! Where the bytes to be cut or changed may be held, the caller moves to a copy of the file, with an extent
//! of its own ([`Lending::replace`]). The old extent stays lowered for ever, so a reader that had taken the
//! old map from the slot lends nothing of it that was cut.
//!
//! The slot's lock is held for pointers only, never over I/O. The writer's side is called by one thread at a
//! time. All of this is generic in the map, and checked under loom.

use std::ops::Range;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};

/// How far one file (one inode) reaches, and how much of it readers may hold.
#[derive(Debug)]
pub(super) struct Extent {
    length: AtomicU64,
    settled: AtomicU64,
    lent: AtomicU64,
    /// Maps of this file that are alive, in the slot or held by readers.
    maps: AtomicU64,
}

impl Extent {
    pub(super) fn new(length: u64, settled: u64) -> Self {
        Self {
            length: AtomicU64::new(length),
            settled: AtomicU64::new(settled.min(length)),
            lent: AtomicU64::new(0),
            maps: AtomicU64::new(0),
        }
    }

    /// The length of the file, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// How many maps of the file are alive that this extent knows of.
    pub(super) fn maps(&self) -> u64 {
        self.maps.load(Ordering::Acquire)
    }

    /// Up to where bytes may be lent.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Bytes up to `end` were written, and everything below was settled before.
    pub(super) fn settle(&self, end: u64) {
        // In this order, so that a reader never takes a length that is not settled for a window of zeros.
        if end > self.settled.load(Ordering::Relaxed) {
            self.settled.store(end, Ordering::Release);
        }
        if end > self.length.load(Ordering::Relaxed) {
            self.length.store(end, Ordering::Release);
        }
    }

    /// The file was found to have `length` bytes, which are not settled where they were not before.
    pub(super) fn set_length(&self, length: u64) {
        if length < self.settled.load(Ordering::Relaxed) {
            self.settled.store(length, Ordering::Release);
        }
        self.length.store(length, Ordering::Release);
    }

    /// Whether readers may hold bytes behind `to`, once `settled` was lowered to it.
    fn is_lent_beyond(&self, to: u64) -> bool {
        self.lent.fetch_max(0, Ordering::AcqRel) > to
    }

    /// Claims everything below `end`; false where that is not settled (any more).
    fn claim(&self, end: u64) -> bool {
        if end > self.settled.load(Ordering::Acquire) {
            return false;
        }
        self.lent.fetch_max(end, Ordering::AcqRel);
        end <= self.settled.load(Ordering::Acquire)
    }
}

/// A map of a file, and the extent of the file that it maps.
#[derive(Debug)]
pub(super) struct Mapped<M> {
    map: M,
    len: u64,
    extent: Arc<Extent>,
}

/// Bytes of a map that a reader may look at for as long as it keeps this. Only [`Mapped::lend`] makes it.
#[derive(Debug)]
pub(super) struct Claim<M> {
    map: Arc<Mapped<M>>,
    range: Range<u64>,
}

impl<M> Claim<M> {
    pub(super) fn map(&self) -> &M {
        &self.map.map
    }

    /// Where the bytes lie, within the map and within the file.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

/// What a reader gets for a range.
#[derive(Debug)]
pub(super) enum Lend<M> {
    /// These bytes.
    Bytes(Claim<M>),
    /// They reach into what is not settled: read a copy.
    Unsettled,
    /// The map ends before they do: map the file again.
    Outgrown,
}

impl<M> Mapped<M> {
    /// Claims the part of `range` that is in the file.
    pub(super) fn lend(map: Arc<Self>, range: Range<u64>) -> Lend<M> {
        let end = range.end.min(map.extent.length());
        let start = range.start.min(end);
        if end > map.len && start < end {
            return Lend::Outgrown;
        }
        if start < end && !map.extent.claim(end) {
            return Lend::Unsettled;
        }
        Lend::Bytes(Claim { map, range: start..end })
    }
}

impl<M> Drop for Mapped<M> {
    fn drop(&mut self) {
        self.extent.maps.fetch_sub(1, Ordering::Release);
    }
}

/// The slot where readers find the map of a file.
#[derive(Debug)]
pub(super) struct Lending<M> {
    slot: RwLock<Slot<M>>,
}

#[derive(Debug)]
struct Slot<M> {
    extent: Arc<Extent>,
    map: Option<Arc<Mapped<M>>>,
}

impl<M> Lending<M> {
    pub(super) fn new(extent: Arc<Extent>) -> Self {
        Self { slot: RwLock::new(Slot { extent, map: None }) }
    }

    /// The map, where there is one.
    pub(super) fn map(&self) -> Option<Arc<Mapped<M>>> {
        self.slot.read().map.clone()
    }

    /// The length of the file, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.slot.read().extent.length()
    }

    /// Puts a map of `len` bytes of the current file into the slot, for the one that is there.
    pub(super) fn put(&self, map: M, len: u64) -> Arc<Mapped<M>> {
        let (mapped, _outgrown) = {
            let mut slot = self.slot.write();
            slot.extent.maps.fetch_add(1, Ordering::Relaxed);
            let mapped = Arc::new(Mapped { map, len, extent: Arc::clone(&slot.extent) });
            let outgrown = slot.map.replace(Arc::clone(&mapped));
            (mapped, outgrown)
        };
        mapped
    }

    /// Takes the map out of the slot; what was lent of it stays.
    pub(super) fn take(&self) -> Option<Arc<Mapped<M>>> {
        self.slot.write().map.take()
    }

    /// Writer: from now on nothing behind `to` is lent. Returns whether nothing behind it is held.
    pub(super) fn lower(&self, extent: &Extent, to: u64) -> bool {
        if to < extent.settled.load(Ordering::Relaxed) {
            extent.settled.store(to, Ordering::Release);
        }
        !extent.is_lent_beyond(to) || self.forget_lent(extent, to)
    }

    /// Writer: where nobody holds a map of the file, nothing of it is lent.
    fn forget_lent(&self, extent: &Extent, to: u64) -> bool {
        let mut slot = self.slot.write();
        let held = slot.map.as_mut().is_some_and(|map| Arc::get_mut(map).is_none());
        let in_slot = u64::from(slot.map.is_some());
        let free = !held && extent.maps.load(Ordering::Acquire) == in_slot;
        if free {
            extent.lent.store(to, Ordering::Release);
        }
        free
    }

    /// Writer: the file is another one from now on.
    pub(super) fn replace(&self, extent: Arc<Extent>) {
        let _old = {
            let mut slot = self.slot.write();
            let map = slot.map.take();
            (std::mem::replace(&mut slot.extent, extent), map)
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lending(length: u64, settled: u64) -> (Lending<()>, Arc<Extent>) {
        let extent = Arc::new(Extent::new(length, settled));
        (Lending::new(Arc::clone(&extent)), extent)
    }

    fn lend(map: &Arc<Mapped<()>>, range: Range<u64>) -> Result<Range<u64>, &'static str> {
        match Mapped::lend(Arc::clone(map), range) {
            Lend::Bytes(claim) => Ok(claim.range()),
            Lend::Unsettled => Err("unsettled"),
            Lend::Outgrown => Err("outgrown"),
        }
    }

    #[test]
    fn what_is_not_settled_is_not_lent() {
        let (lending, extent) = lending(100, 60);
        let map = lending.put((), 80);
        assert_eq!(lend(&map, 10..60), Ok(10..60));
        assert_eq!(lend(&map, 10..61), Err("unsettled"));
        extent.settle(90);
        assert_eq!(lend(&map, 10..80), Ok(10..80));
        assert_eq!(lend(&map, 10..81), Err("outgrown"));
        assert_eq!(lend(&map, 100..300), Ok(100..100));
    }

    #[test]
    fn a_cut_in_front_of_what_is_held_needs_a_copy() {
        let (lending, extent) = lending(100, 100);
        let held = lending.put((), 100);
        assert_eq!(lend(&held, 0..50), Ok(0..50));
        assert!(lending.lower(&extent, 50), "what is held lies below the cut");
        assert!(!lending.lower(&extent, 49));
        drop(lending.take());
        assert!(!lending.lower(&extent, 49), "a map that is out of the slot is held all the same");
        drop(held);
        assert!(lending.lower(&extent, 49));
    }

    #[test]
    fn an_old_map_never_lends_of_the_file_that_replaced_its_own() {
        let (lending, extent) = lending(100, 100);
        let old = lending.put((), 100);
        assert_eq!(lend(&old, 0..100), Ok(0..100));
        assert!(!lending.lower(&extent, 40));
        extent.set_length(40);
        lending.replace(Arc::new(Extent::new(40, 40)));
        lending.slot.read().extent.settle(70);
        assert_eq!(lend(&old, 0..70), Ok(0..40));
        assert_eq!((lending.length(), lending.map().is_none()), (70, true));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// What a file has: its length, and what its byte 50 holds (0: it is not there).
    #[derive(Debug)]
    struct Inode {
        length: AtomicU64,
        byte: AtomicU64,
    }

    impl Inode {
        fn new(length: u64, byte: u64) -> Arc<Self> {
            Arc::new(Self { length: AtomicU64::new(length), byte: AtomicU64::new(byte) })
        }
    }

    fn read(lending: &Lending<Arc<Inode>>) {
        let Some(map) = lending.map() else { return };
        let Lend::Bytes(claim) = Mapped::lend(map, 0..100) else { return };
        let (inode, range) = (claim.map(), claim.range());
        assert!(range.end <= inode.length.load(Ordering::Relaxed), "lent beyond what the file has");
        if range.end > 50 {
            let first = inode.byte.load(Ordering::Relaxed);
            assert_ne!(first, 0, "lent what is not there");
            loom::thread::yield_now();
            assert!(range.end <= inode.length.load(Ordering::Relaxed), "the file was cut below what is lent");
            assert_eq!(inode.byte.load(Ordering::Relaxed), first, "what was lent has changed");
        }
    }

    /// Cuts to 40 as the file handle does, and returns the file that goes on.
    fn cut(lending: &Lending<Arc<Inode>>, extent: Arc<Extent>, inode: Arc<Inode>) -> (Arc<Extent>, Arc<Inode>) {
        let free = lending.lower(&extent, 40);
        extent.set_length(40);
        if free {
            inode.length.store(40, Ordering::Relaxed);
            inode.byte.store(0, Ordering::Relaxed);
            return (extent, inode);
        }
        let extent = Arc::new(Extent::new(40, 40));
        lending.replace(Arc::clone(&extent));
        (extent, Inode::new(40, 0))
    }

    fn model(write_again: bool, map_anew: bool) {
        loom::model(move || {
            let inode = Inode::new(60, 1);
            let extent = Arc::new(Extent::new(60, 60));
            let lending = Arc::new(Lending::new(Arc::clone(&extent)));
            lending.put(Arc::clone(&inode), 100);
            let reader = {
                let lending = Arc::clone(&lending);
                loom::thread::spawn(move || read(&lending))
            };
            if map_anew {
                drop(lending.take());
                lending.put(Arc::clone(&inode), 100);
            }
            let (extent, inode) = cut(&lending, extent, inode);
            if write_again {
                inode.length.store(60, Ordering::Relaxed);
                inode.byte.store(2, Ordering::Relaxed);
                extent.settle(60);
            }
            reader.join().expect("the reader does not panic");
        });
    }

    #[test]
    fn loom_nothing_lent_is_cut_off_or_changed() {
        model(true, false);
    }

    #[test]
    fn loom_a_map_taken_out_of_the_slot_still_counts() {
        model(false, true);
    }

    /// Two readers, one of which has let go of what it was lent.
    #[test]
    fn loom_two_readers() {
        loom::model(|| {
            let inode = Inode::new(60, 1);
            let extent = Arc::new(Extent::new(60, 60));
            let lending = Arc::new(Lending::new(Arc::clone(&extent)));
            lending.put(Arc::clone(&inode), 100);
            read(&lending);
            let reader = {
                let lending = Arc::clone(&lending);
                loom::thread::spawn(move || read(&lending))
            };
            let (extent, inode) = cut(&lending, extent, inode);
            inode.length.store(60, Ordering::Relaxed);
            inode.byte.store(2, Ordering::Relaxed);
            extent.settle(60);
            read(&lending);
            reader.join().expect("the reader does not panic");
        });
    }
}
