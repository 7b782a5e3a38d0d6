//! Waiting until something that others publish through atomics has come true.
//!
//! Publishing is cheap while nobody waits: one exchange and one load. The protocol: a waiter counts itself, takes
//! a turn, then looks; a publisher changes, takes a turn, then looks for waiters. Turns are counted in one place,
//! so one of the two comes later and sees what the other did before its own: no wake-up is missed. (A turn costs
//! less than a full fence does.)
//!
//! Who waits for any of several events listens to each with one [`Signal`], looks at what they publish, and sleeps
//! on the signal. A listener counts as a waiter: it costs the publisher the same.

use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::{Arc, Condvar, Mutex, wait_for};

/// A flag that one thread sleeps on and any may raise.
#[derive(Debug)]
pub(crate) struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { raised: Mutex::new(false), changed: Condvar::new() }
    }

    /// Wakes who sleeps on it, or who sleeps next.
    pub(crate) fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is raised, or for `timeout`; says whether it was raised, and takes it down.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut raised = self.raised.lock();
        if !*raised && !timeout.is_zero() {
            wait_for(&self.changed, &mut raised, timeout);
        }
        std::mem::take(&mut *raised)
    }
}

/// A condition over published state.
#[derive(Debug)]
pub(crate) struct Event {
    waiters: AtomicUsize,
    turns: AtomicUsize,
    /// Who listens.
    gate: Mutex<Vec<Arc<Signal>>>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self {
            waiters: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            gate: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    /// Wakes whoever waits. Call it after the change was published, with no lock that a `ready` takes.
    pub(crate) fn notify(&self) {
        self.turns.fetch_add(1, Ordering::AcqRel);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.gate.lock().iter().for_each(|signal| signal.raise());
            self.changed.notify_all();
        }
    }

    /// Whether somebody waits, for a publisher that holds the lock under which waiters begin (see
    /// [`Self::wait_until`]): whoever it does not see yet looks after it, and sees what it has published.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Has `signal` raised by every change from now on, until [`Self::unlisten`]. Look at what is published after this:
    /// what was published before it raises nothing. `begin` is as in [`Self::wait_until`].
    pub(crate) fn listen<G>(&self, begin: impl FnOnce() -> G, signal: &Arc<Signal>) {
        let beginning = begin();
        self.waiters.fetch_add(1, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::AcqRel);
        drop(beginning);
        self.gate.lock().push(Arc::clone(signal));
    }

    /// Ends one [`Self::listen`] of this signal.
    pub(crate) fn unlisten(&self, signal: &Arc<Signal>) {
        let mut listeners = self.gate.lock();
        if let Some(at) = listeners.iter().position(|other| Arc::ptr_eq(other, signal)) {
            listeners.swap_remove(at);
            self.waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until `ready` or until `remaining` says that time is up; `ready` is asked at least once.
    ///
    /// `remaining` is asked before each wait: `None` ends it. Returns what `ready` said last. Both are called
    /// under the gate that [`Self::notify`] takes: they must take no lock that anyone holds over a `notify`.
    ///
    /// The waiter is counted while a guard that `begin` returns is held: a lock, where publishers ask
    /// [`Self::has_waiters`] under it.
    pub(crate) fn wait_until<G>(
        &self,
        begin: impl FnOnce() -> G,
        mut ready: impl FnMut() -> bool,
        mut remaining: impl FnMut() -> Option<Duration>,
    ) -> bool {
        if ready() {
            return true;
        }
        let beginning = begin();
        let _counted = Counted::new(self);
        drop(beginning);
        let mut gate = self.gate.lock();
        loop {
            if ready() {
                return true;
            }
            match remaining() {
                Some(left) => wait_for(&self.changed, &mut gate, left),
                None => return false,
            }
        }
    }
}

/// A waiter, counted for as long as it waits: also where asking whether it is ready panics.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(event: &'a Event) -> Self {
        event.waiters.fetch_add(1, Ordering::Relaxed);
        event.turns.fetch_add(1, Ordering::AcqRel);
        Self(&event.waiters)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::time::Duration;

    use super::super::atomic::{AtomicU64, Ordering};
    use super::super::{Arc, Mutex};
    use super::{Event, Signal};

    /// A publisher that asks for waiters under the lock under which they begin misses none.
    #[test]
    fn loom_waiters_that_begin_under_a_lock_are_seen_under_it() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicU64::new(0), Mutex::new(())));
            let publisher = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                let lock = publisher.2.lock();
                publisher.1.store(1, Ordering::Release);
                let somebody_waits = publisher.0.has_waiters();
                drop(lock);
                if somebody_waits {
                    publisher.0.notify();
                }
            });
            let ready = || shared.1.load(Ordering::Acquire) == 1;
            assert!(shared.0.wait_until(|| shared.2.lock(), ready, || Some(Duration::MAX)));
            thread.join().expect("the publisher does not panic");
        });
    }

    /// Who listens to two events with one signal sleeps through a change of neither.
    #[test]
    fn loom_a_listener_misses_no_change() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), Event::new(), AtomicU64::new(0)));
            let publisher = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                publisher.2.store(1, Ordering::Release);
                publisher.1.notify();
            });
            let signal = Arc::new(Signal::new());
            shared.0.listen(|| (), &signal);
            shared.1.listen(|| (), &signal);
            while shared.2.load(Ordering::Acquire) == 0 {
                signal.wait(Duration::MAX);
            }
            shared.0.unlisten(&signal);
            shared.1.unlisten(&signal);
            thread.join().expect("the publisher does not panic");
            assert_eq!(shared.1.waiters.load(Ordering::SeqCst), 0);
        });
    }

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
            let came = shared.0.wait_until(|| (), || shared.1.load(Ordering::Acquire) == 1, || Some(Duration::MAX));
            assert!(came);
            thread.join().expect("the publisher does not panic");
            assert_eq!(shared.0.waiters.load(Ordering::SeqCst), 0);
        });
    }

    /// One change wakes everyone who waits for it.
    #[test]
    fn loom_every_waiter_is_woken() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicU64::new(0)));
            let wait = |shared: &(Event, AtomicU64)| {
                shared.0.wait_until(|| (), || shared.1.load(Ordering::Acquire) == 1, || Some(Duration::MAX))
            };
            let (other, publisher) = (Arc::clone(&shared), Arc::clone(&shared));
            let waiter = loom::thread::spawn(move || wait(&other));
            let thread = loom::thread::spawn(move || {
                publisher.1.store(1, Ordering::Release);
                publisher.0.notify();
            });
            assert!(wait(&shared));
            assert!(waiter.join().expect("the other waiter does not panic"));
            thread.join().expect("the publisher does not panic");
        });
    }

    /// A waiter that goes on waiting after one change is woken by the next.
    #[test]
    fn loom_the_second_change_wakes_too() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicU64::new(0)));
            let publisher = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                for change in 1..=2 {
                    publisher.1.store(change, Ordering::Release);
                    publisher.0.notify();
                }
            });
            assert!(shared.0.wait_until(|| (), || shared.1.load(Ordering::Acquire) == 2, || Some(Duration::MAX)));
            thread.join().expect("the publisher does not panic");
        });
    }

    /// Time runs out: the answer is what was seen last, and nobody is counted any more.
    #[test]
    fn loom_a_waiter_whose_time_is_up_leaves() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicU64::new(0)));
            let publisher = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                publisher.1.store(1, Ordering::Release);
                publisher.0.notify();
            });
            let mut last = false;
            let ready = || {
                last = shared.1.load(Ordering::Acquire) == 1;
                last
            };
            assert_eq!(shared.0.wait_until(|| (), ready, || None), last);
            thread.join().expect("the publisher does not panic");
            assert_eq!(shared.0.waiters.load(Ordering::SeqCst), 0);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Event;
    use crate::sync::atomic::Ordering;

    #[test]
    fn a_waiter_that_panics_is_not_counted_for_ever() {
        let event = Event::new();
        let panics = || event.wait_until(|| (), || false, || panic!("no time"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(event.waiters.load(Ordering::SeqCst), 0);
        event.notify();
    }
}
