//! The bound on open files: one line of all that are open, the least recently used in front.
//!
//! A use costs one store: a file notes the tick at which it was used, and ticks pass when files are opened.
//! The line is put in order only when somebody needs room: a file that was used since it was put into the
//! line goes to its end, the first that was not is closed.
//!
//! A file with bytes that are not synced is not closed, because a later error of writing them back would
//! find nobody to tell. Only where no other can be closed is the least recently used of them synced first.
//!
//! Invariants: an open file stands in the line once, or is in the hands of a thread that took it out to
//! close it; no lock of the pool is held while a file is closed, opened or synced. With threads opening
//! files at the same moment the bound can be passed by one file for each of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Weak;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What became of the attempt to close a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// It is closed, and its descriptor free.
    Closed,
    /// It was closed already.
    WasClosed,
    /// It is being written to.
    Busy,
    /// It has bytes that are not synced.
    Unsynced,
}

/// A file that the pool can close.
pub(super) trait Member: Send + Sync {
    /// The tick of its last use.
    fn used(&self) -> u64;
    /// Closes it, if nothing speaks against that.
    fn close(&self) -> Closing;
    /// Syncs it for the pool; a failure is kept for the owner's next sync. Returns whether it went well.
    fn sync_for_pool(&self) -> bool;
}

struct Place {
    member: Weak<dyn Member>,
    /// The tick at which the member was put here.
    since: u64,
}

/// The files that are open.
pub(super) struct Pool {
    bound: usize,
    open: AtomicUsize,
    tick: AtomicU64,
    line: Mutex<VecDeque<Place>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bound", &self.bound).field("open", &self.open).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            open: AtomicUsize::new(0),
            tick: AtomicU64::new(0),
            line: Mutex::new(VecDeque::new()),
        }
    }

    /// How many files are open.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// What a file notes when it is used.
    pub(super) fn tick(&self) -> u64 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Takes an opened file into the line.
    pub(super) fn admit(&self, member: Weak<dyn Member>) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let since = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = self.line.lock();
        if line.len() > 2 * open + 64 {
            line.retain(|place| place.member.strong_count() > 0);
        }
        line.push_back(Place { member, since });
    }

    /// An open file is gone with its handle; its place in the line is found empty later.
    pub(super) fn dismiss(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes files until one more may be opened, or until none can be closed.
    pub(super) fn make_room(&self) {
        while self.open.load(Ordering::Relaxed) >= self.bound && self.close_one() {}
    }

    /// Closes the least recently used file that can be closed; false if there is none.
    pub(super) fn close_one(&self) -> bool {
        self.close_synced() || self.sync_and_close()
    }

    fn close_synced(&self) -> bool {
        // Twice around: a file that was used since it was put into the line has its second chance.
        let places = 2 * self.line.lock().len();
        for _ in 0..places {
            let Some(mut place) = self.line.lock().pop_front() else { return false };
            let Some(member) = place.member.upgrade() else { continue };
            let used = member.used();
            let closing = if used > place.since { Closing::Busy } else { member.close() };
            match closing {
                Closing::Closed => {
                    self.dismiss();
                    return true;
                }
                Closing::WasClosed => {}
                Closing::Busy | Closing::Unsynced => {
                    place.since = place.since.max(used);
                    self.line.lock().push_back(place);
                }
            }
        }
        false
    }

    fn sync_and_close(&self) -> bool {
        let places = self.line.lock().len();
        for _ in 0..places {
            let Some(mut place) = self.take_oldest() else { return false };
            let Some(member) = place.member.upgrade() else { continue };
            match if member.sync_for_pool() { member.close() } else { Closing::Unsynced } {
                Closing::Closed => {
                    self.dismiss();
                    return true;
                }
                Closing::WasClosed => {}
                Closing::Busy | Closing::Unsynced => {
                    place.since = self.tick(); // so that the next one is tried first
                    self.line.lock().push_back(place);
                }
            }
        }
        false
    }

    fn take_oldest(&self) -> Option<Place> {
        let mut line = self.line.lock();
        let (oldest, _) = line.iter().enumerate().min_by_key(|(_, place)| place.since)?;
        line.remove(oldest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::atomic::AtomicBool;

    struct Fake {
        used: AtomicU64,
        open: AtomicBool,
        unsynced: AtomicBool,
        syncs_fail: bool,
    }

    impl Member for Fake {
        fn used(&self) -> u64 {
            self.used.load(Ordering::Relaxed)
        }

        fn close(&self) -> Closing {
            if self.unsynced.load(Ordering::Relaxed) {
                return Closing::Unsynced;
            }
            if self.open.swap(false, Ordering::Relaxed) { Closing::Closed } else { Closing::WasClosed }
        }

        fn sync_for_pool(&self) -> bool {
            self.unsynced.fetch_and(self.syncs_fail, Ordering::Relaxed);
            !self.syncs_fail
        }
    }

    /// Opens a file as handles do.
    fn open(pool: &Pool, unsynced: bool, syncs_fail: bool) -> Arc<Fake> {
        pool.make_room();
        let fake = Arc::new(Fake {
            used: AtomicU64::new(pool.tick()),
            open: AtomicBool::new(true),
            unsynced: AtomicBool::new(unsynced),
            syncs_fail,
        });
        let member: Arc<dyn Member> = Arc::<Fake>::clone(&fake);
        pool.admit(Arc::downgrade(&member));
        fake
    }

    fn are_open(files: &[Arc<Fake>]) -> Vec<bool> {
        files.iter().map(|f| f.open.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_least_recently_used_is_closed() {
        let pool = Pool::new(3);
        let mut files: Vec<_> = (0..3).map(|_| open(&pool, false, false)).collect();
        files[0].used.store(pool.tick(), Ordering::Relaxed);
        files.push(open(&pool, false, false));
        assert_eq!(are_open(&files), [true, false, true, true]);
        files.push(open(&pool, false, false));
        assert_eq!(are_open(&files), [true, false, false, true, true]);
    }

    #[test]
    fn unsynced_files_are_closed_only_where_there_is_no_other() {
        let pool = Pool::new(3);
        let mut files = vec![open(&pool, true, true), open(&pool, true, false), open(&pool, false, false)];
        files.push(open(&pool, true, false));
        assert_eq!(are_open(&files), [true, true, false, true]);
        files.push(open(&pool, false, false));
        assert_eq!(are_open(&files), [true, false, false, true, true], "the first cannot be synced");
        assert!(!files[1].unsynced.load(Ordering::Relaxed));
    }

    #[test]
    fn the_line_does_not_grow_with_handles_that_are_gone() {
        let pool = Pool::new(10);
        for _ in 0..1000 {
            drop(open(&pool, false, false));
            pool.dismiss();
        }
        assert!(pool.line.lock().len() < 100);
        assert_eq!(pool.open.load(Ordering::Relaxed), 0);
    }
}
