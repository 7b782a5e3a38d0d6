//! One sync serves all who wait.
//!
//! Whoever finds no sync under way leads one: it runs the sync for everything written so far, without the
//! lock, then publishes how far it came and wakes the others, who either find their mark reached or lead
//! the next one. A sync that fails ends the matter: every waiter whose mark was not reached before, now and
//! later, gets its error until [`SharedSync::reset`].
//!
//! Invariant: after a failure nothing is published any more, whoever synced it. A sync of one file that
//! completes says nothing of the file whose sync failed.
//!
//! ```text
//!  waiter A   lock  nobody syncs -> lead        run(): end = 7      lock  synced = 7, notify
//!  waiter B   lock  A syncs -> wait ............................... 5 <= 7: done
//!  waiter C   lock  A syncs -> wait ............................... 9 >  7: lead
//! ```

use std::io;
use std::path::PathBuf;

use super::atomic::{AtomicU64, Ordering};
use super::{Condvar, Mutex};
use crate::error::{Error, Result};
use crate::types::Offset;

/// How far something is synced, and who syncs it further.
#[derive(Debug)]
pub(crate) struct SharedSync {
    state: Mutex<State>,
    ended: Condvar,
    synced: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    failed: Option<Error>,
    /// How often a failure was followed by a new beginning, and what the last of them was.
    resets: u64,
    before: Option<Error>,
}

impl SharedSync {
    /// Everything below `synced` is synced already.
    pub(crate) fn new(synced: u64) -> Self {
        Self { state: Mutex::new(State::default()), ended: Condvar::new(), synced: AtomicU64::new(synced) }
    }

    /// Up to where everything is synced.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Returns once everything below `mark` is synced. `run` syncs what has been written so far and answers
    /// up to where that was; it must cover whatever was written before it was called, and must not come back
    /// here. A mark that was never written, or was cut off again, is [`Error::UnexpectedEnd`].
    pub(crate) fn sync_to(&self, mark: u64, run: impl FnOnce() -> Result<u64>) -> Result<()> {
        if self.synced() >= mark {
            return Ok(());
        }
        let mut state = self.state.lock();
        let resets = state.resets;
        loop {
            if let Some(answer) = state.answer(resets, self.synced() >= mark) {
                return answer;
            }
            if !state.running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.running = true;
        drop(state);
        let lead = Lead(self);
        let outcome = run();
        std::mem::forget(lead);
        let end = self.end(outcome)?;
        if end < mark {
            return Err(Error::UnexpectedEnd { expected: Offset(mark), end: Offset(end) });
        }
        Ok(())
    }

    /// Publishes what a sync answered, and wakes whoever waits.
    fn end(&self, outcome: Result<u64>) -> Result<u64> {
        let mut state = self.state.lock();
        state.running = false;
        if let Err(error) = &outcome {
            state.failed.get_or_insert_with(|| error.clone());
        }
        self.ended.notify_all();
        match (&state.failed, outcome) {
            (None, Ok(end)) => {
                self.synced.fetch_max(end, Ordering::AcqRel);
                Ok(end)
            }
            (Some(failed), Ok(_)) => Err(failed.clone()),
            (_, failed) => failed,
        }
    }

    /// Something else (a roll, a close) has synced everything below `mark`.
    pub(crate) fn raise(&self, mark: u64) {
        let state = self.state.lock();
        if state.failed.is_none() {
            self.synced.fetch_max(mark, Ordering::AcqRel);
            self.ended.notify_all();
        }
    }

    /// Fails whoever waits and whoever comes, until [`Self::reset`].
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        self.ended.notify_all();
    }

    /// Begins anew: everything below `synced` is synced, nothing has failed. Waits for a sync under way.
    ///
    /// Whoever waited across a failure gets that failure. But a mark from before says nothing of what is
    /// written afterwards: whoever keeps marks must not ask for them here any more.
    pub(crate) fn reset(&self, synced: u64) {
        let mut state = self.state.lock();
        while state.running {
            self.ended.wait(&mut state);
        }
        if let Some(failed) = state.failed.take() {
            state.resets += 1;
            state.before = Some(failed);
        }
        self.synced.store(synced, Ordering::Release);
        self.ended.notify_all();
    }
}

impl State {
    /// What someone is told who came when there had been `resets`; `None`: wait or lead.
    fn answer(&self, resets: u64, reached: bool) -> Option<Result<()>> {
        match (&self.before, &self.failed) {
            (Some(before), _) if self.resets != resets => Some(Err(before.clone())),
            _ if reached => Some(Ok(())),
            (_, Some(failed)) => Some(Err(failed.clone())),
            _ => None,
        }
    }
}

/// Ends a sync that panicked: nothing is known of it, and nobody may wait for it.
struct Lead<'a>(&'a SharedSync);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let panicked = io::Error::other("the sync panicked");
        // The error reaches whoever waits; the one who led is unwinding.
        let _ = self.0.end(Err(Error::io("sync", PathBuf::new(), panicked)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::Arc;
    use super::super::atomic::{AtomicU64, Ordering};
    use super::SharedSync;
    use crate::error::Error;

    /// Two writers: each returns only after a sync that began after its write.
    #[test]
    fn loom_a_sync_covers_what_was_written_before_it() {
        loom::model(|| {
            let shared = Arc::new((SharedSync::new(0), AtomicU64::new(0), AtomicU64::new(0)));
            let write_and_sync = |shared: Arc<(SharedSync, AtomicU64, AtomicU64)>| {
                let mark = shared.1.fetch_add(1, Ordering::AcqRel) + 1;
                let run = || {
                    let end = shared.1.load(Ordering::Acquire);
                    shared.2.fetch_max(end, Ordering::AcqRel);
                    Ok(end)
                };
                shared.0.sync_to(mark, run).expect("no sync fails here");
                assert!(shared.2.load(Ordering::Acquire) >= mark);
            };
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || write_and_sync(other));
            write_and_sync(Arc::clone(&shared));
            thread.join().expect("the other writer does not panic");
        });
    }

    /// A failed sync wakes every waiter with the error; none is told that its write is safe.
    #[test]
    fn loom_a_failed_sync_fails_everyone() {
        loom::model(|| {
            let shared = Arc::new(SharedSync::new(0));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || other.sync_to(1, || Err(Error::TimedOut)).is_err());
            assert!(shared.sync_to(1, || Err(Error::TimedOut)).is_err());
            assert!(thread.join().expect("the other waiter does not panic"));
        });
    }

    /// What fails elsewhere while a sync runs is not covered by it, and nothing is published afterwards.
    #[test]
    fn loom_nothing_is_published_after_a_failure() {
        loom::model(|| {
            let shared = Arc::new((SharedSync::new(0), AtomicU64::new(0)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                other.0.fail(Error::TimedOut);
                other.1.store(1, Ordering::Release);
            });
            let failed_before = shared.1.load(Ordering::Acquire) == 1;
            let outcome = shared.0.sync_to(2, || Ok(2));
            assert!(!failed_before || outcome.is_err());
            assert_eq!(outcome.is_ok(), shared.0.synced() >= 2);
            thread.join().expect("the failing thread does not panic");
            let end = shared.0.synced();
            shared.0.raise(9);
            assert_eq!(shared.0.synced(), end);
            assert!(shared.0.sync_to(end, || Ok(9)).is_ok(), "what was synced before stays so");
            assert!(shared.0.sync_to(end + 1, || Ok(9)).is_err());
        });
    }

    /// A new beginning waits for the sync under way, and what that one says does not outlive it.
    #[test]
    fn loom_a_sync_under_way_does_not_outlive_a_reset() {
        loom::model(|| {
            let shared = Arc::new((SharedSync::new(0), AtomicU64::new(0)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                let mut began_before = false;
                let run = || {
                    began_before = other.1.load(Ordering::Acquire) == 0;
                    Ok(7)
                };
                let outcome = other.0.sync_to(7, run);
                (began_before, outcome.is_ok())
            });
            shared.1.store(1, Ordering::Release);
            shared.0.fail(Error::TimedOut);
            shared.0.reset(3);
            let (began_before, reached) = thread.join().expect("the waiter does not panic");
            let gone = began_before || !reached;
            assert!(!gone || shared.0.synced() == 3, "a sync from before is gone with what it synced");
            shared.0.sync_to(8, || Ok(8)).expect("nothing has failed since");
        });
    }

    /// Something else reaches the mark of who waits for a sync that is under way.
    #[test]
    fn loom_raising_wakes_whoever_waits() {
        loom::model(|| {
            let shared = Arc::new(SharedSync::new(0));
            let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
            let thread = loom::thread::spawn(move || one.sync_to(1, || Ok(1)).is_ok());
            let roll = loom::thread::spawn(move || two.raise(2));
            shared.sync_to(2, || Ok(2)).expect("no sync fails here");
            assert!(thread.join().expect("the leader does not panic"));
            roll.join().expect("the roll does not panic");
            assert_eq!(shared.synced(), 2);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{SharedSync, State};
    use crate::error::Error;
    use crate::types::Offset;

    #[test]
    fn a_failure_while_a_sync_runs_is_not_covered_by_it() {
        let shared = SharedSync::new(0);
        let outcome = shared.sync_to(1, || {
            shared.fail(Error::TimedOut);
            Ok(1)
        });
        assert!(matches!(outcome, Err(Error::TimedOut)));
        assert_eq!(shared.synced(), 0);
        shared.raise(1);
        assert_eq!(shared.synced(), 0);
    }

    #[test]
    fn what_was_synced_before_a_failure_stays_synced() {
        let shared = SharedSync::new(5);
        shared.fail(Error::TimedOut);
        assert!(shared.sync_to(5, || Ok(5)).is_ok());
        assert!(matches!(shared.sync_to(6, || Ok(6)), Err(Error::TimedOut)));
        let state = State { failed: Some(Error::TimedOut), ..State::default() };
        assert!(matches!(state.answer(0, true), Some(Ok(()))));
    }

    /// A reset may come between a failure and the waking of those whom it fails.
    #[test]
    fn whoever_waited_across_a_failure_gets_it() {
        let shared = SharedSync::new(0);
        shared.fail(Error::TimedOut);
        shared.reset(9);
        let state = shared.state.lock();
        assert!(matches!(state.answer(0, true), Some(Err(Error::TimedOut))));
        assert!(state.answer(state.resets, false).is_none());
    }

    #[test]
    fn a_mark_that_is_not_there_is_an_error_and_no_endless_sync() {
        let shared = SharedSync::new(0);
        let beyond = shared.sync_to(9, || Ok(5));
        assert!(matches!(beyond, Err(Error::UnexpectedEnd { expected: Offset(9), end: Offset(5) })));
        assert_eq!(shared.synced(), 5);
    }

    #[test]
    fn a_sync_that_panics_fails_and_leaves_nobody_waiting() {
        let shared = SharedSync::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| shared.sync_to(1, || panic!("a host's storage"))));
        assert!(panicked.is_err());
        assert!(matches!(shared.sync_to(1, || Ok(1)), Err(Error::Io { operation: "sync", .. })));
        shared.reset(0);
        assert!(shared.sync_to(1, || Ok(1)).is_ok());
    }
}
