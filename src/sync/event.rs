//! Waiting until something that others publish through atomics has come true.
//!
//! Publishing is cheap while nobody waits: one exchange and one load. The protocol: a waiter counts itself, takes
//! a turn, then looks; a publisher changes, takes a turn, then looks for waiters. Turns are counted in one place,
//! so one of the two comes later and sees what the other did before its own: no wake-up is missed. (A turn costs
//! less than a full fence does.)
//!
//! A publisher that holds a lock can ask for waiters under it ([`Event::has_waiters`]), without a turn of its own: then
//! a waiter has to have held that lock once after it was counted, and look after that. It only tries to take it: while
//! the publisher holds it over slow work, the waiter naps and tries again, and its own time-out is kept.
//!
//! Who waits for any of several events listens to each with one [`Signal`], looks at what they publish, and sleeps
//! on the signal. A listener counts as a waiter: it costs the publisher the same.

use std::fmt;
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::{Arc, Condvar, Mutex, MutexGuard, wait_for};

/// How long a waiter sleeps before it tries again to take the publisher's lock.
const NAP: Duration = Duration::from_millis(1);

/// A flag that one thread sleeps on and any may raise.
pub(crate) struct Signal {
    raised: Mutex<bool>,
    /// Tries to hold the lock of a publisher once, of listeners that have not done so yet: see [`Event::listen`].
    beginnings: Mutex<Vec<Box<dyn Fn() -> bool + Send + Sync>>>,
    changed: Condvar,
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { raised: Mutex::new(false), beginnings: Mutex::new(Vec::new()), changed: Condvar::new() }
    }

    /// Wakes who sleeps on it, or who sleeps next.
    pub(crate) fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is raised, or for `timeout`; says whether it was raised, and takes it down. It may say so for
    /// nothing.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let (had_to_begin, all_begun) = self.begin();
        let mut raised = self.raised.lock();
        if had_to_begin {
            if !*raised && !all_begun && !timeout.is_zero() {
                nap(&self.changed, &mut raised, timeout.min(NAP));
            }
            *raised = false;
            return true; // to look once more, now that the lock was held, or to come back soon
        }
        if !*raised && !timeout.is_zero() {
            wait_for(&self.changed, &mut raised, timeout);
        }
        std::mem::take(&mut *raised)
    }

    /// Whether listeners had to begin, and whether all of them have by now.
    fn begin(&self) -> (bool, bool) {
        let mut beginnings = self.beginnings.lock();
        let had_to_begin = !beginnings.is_empty();
        beginnings.retain(|begin| !begin());
        (had_to_begin, beginnings.is_empty())
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

    /// Whether somebody waits, for a publisher that holds the lock that waiters try (see [`Self::wait_until`]): whoever
    /// it does not see yet holds the lock later, looks after that, and sees what it has published.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Has `signal` raised by every change from now on, until [`Self::unlisten`]. Look at what is published after this:
    /// what was published before it raises nothing. `begin` says whether it has held the lock that
    /// [`Self::wait_until`] speaks of. Until it has, whoever sleeps on the signal sleeps for moments.
    pub(crate) fn listen(&self, begin: impl Fn() -> bool + Send + Sync + 'static, signal: &Arc<Signal>) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::AcqRel);
        self.gate.lock().push(Arc::clone(signal));
        if !begin() {
            signal.beginnings.lock().push(Box::new(begin));
        }
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
    /// `begin` tries to take the lock under which publishers ask [`Self::has_waiters`], and does not wait for it; it is
    /// called until it has it. Where no publisher asks so, it answers `Some` of anything.
    pub(crate) fn wait_until<G>(
        &self,
        mut begin: impl FnMut() -> Option<G>,
        mut ready: impl FnMut() -> bool,
        mut remaining: impl FnMut() -> Option<Duration>,
    ) -> bool {
        if ready() {
            return true;
        }
        let _counted = Counted::new(self);
        let mut has_begun = false;
        let mut gate = self.gate.lock();
        loop {
            has_begun = has_begun || begin().is_some();
            if ready() {
                return true;
            }
            match remaining() {
                Some(left) if has_begun => wait_for(&self.changed, &mut gate, left),
                Some(left) => nap(&self.changed, &mut gate, left.min(NAP)),
                None => return false,
            }
        }
    }
}

/// Sleeps for a moment, also where nobody notifies.
fn nap<T>(changed: &Condvar, gate: &mut MutexGuard<'_, T>, time: Duration) {
    #[cfg(not(loom))]
    wait_for(changed, gate, time);
    #[cfg(loom)] // where time does not pass: whoever holds the lock goes on instead
    {
        let _ = (changed, gate, time);
        loom::thread::yield_now();
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
            assert!(shared.0.wait_until(|| shared.2.try_lock(), ready, || Some(Duration::MAX)));
            thread.join().expect("the publisher does not panic");
        });
    }

    /// A listener that did not get the publisher's lock at once misses nothing either.
    #[test]
    fn loom_listeners_that_begin_under_a_lock_are_seen_under_it() {
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
            let signal = Arc::new(Signal::new());
            let publishers = Arc::clone(&shared);
            shared.0.listen(move || publishers.2.try_lock().is_some(), &signal);
            while shared.1.load(Ordering::Acquire) == 0 {
                signal.wait(Duration::MAX);
            }
            shared.0.unlisten(&signal);
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
            shared.0.listen(|| true, &signal);
            shared.1.listen(|| true, &signal);
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
            let came =
                shared.0.wait_until(|| Some(()), || shared.1.load(Ordering::Acquire) == 1, || Some(Duration::MAX));
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
                shared.0.wait_until(|| Some(()), || shared.1.load(Ordering::Acquire) == 1, || Some(Duration::MAX))
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
            assert!(shared.0.wait_until(|| Some(()), || shared.1.load(Ordering::Acquire) == 2, || Some(Duration::MAX)));
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
            assert_eq!(shared.0.wait_until(|| Some(()), ready, || None), last);
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
        let panics = || event.wait_until(|| Some(()), || false, || panic!("no time"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(event.waiters.load(Ordering::SeqCst), 0);
        event.notify();
    }
}
