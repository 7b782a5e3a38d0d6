//! Waiting until something that others publish through atomics has come true.
//!
//! Publishing is cheap while nobody waits: a fence and one load. The protocol: a waiter counts itself,
//! then looks; a publisher changes, then looks for waiters. With both steps in one total order one of
//! the two sees the other, so no wake-up is missed.

use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering, fence};
use super::{Condvar, Mutex, wait_for};

/// A condition over published state.
#[derive(Debug)]
pub(crate) struct Event {
    waiters: AtomicUsize,
    gate: Mutex<()>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self { waiters: AtomicUsize::new(0), gate: Mutex::new(()), changed: Condvar::new() }
    }

    /// Wakes whoever waits. Call it after the change was published.
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            drop(self.gate.lock());
            self.changed.notify_all();
        }
    }

    /// Waits until `ready` or until `remaining` says that time is up; `ready` is asked at least once.
    ///
    /// `remaining` is asked before each wait: `None` ends it. Returns what `ready` said last.
    pub(crate) fn wait_until(
        &self,
        mut ready: impl FnMut() -> bool,
        mut remaining: impl FnMut() -> Option<Duration>,
    ) -> bool {
        if ready() {
            return true;
        }
        let mut gate = self.gate.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let came_true = loop {
            if ready() {
                break true;
            }
            match remaining() {
                Some(left) => wait_for(&self.changed, &mut gate, left),
                None => break false,
            }
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        came_true
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::time::Duration;

    use super::super::Arc;
    use super::super::atomic::{AtomicU64, Ordering};
    use super::Event;

    /// A waiter that looked before the change was published is woken by it.
    #[test]
    fn loom_no_wake_up_is_missed() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicU64::new(0)));
            let publisher = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                publisher.1.store(1, Ordering::Release);
                publisher.0.notify();
            });
            let came = shared.0.wait_until(|| shared.1.load(Ordering::Acquire) == 1, || Some(Duration::MAX));
            assert!(came);
            thread.join().expect("the publisher does not panic");
        });
    }
}
