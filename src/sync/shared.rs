//! One sync serves all who wait.
//!
//! Whoever finds no sync under way leads one: it runs the sync for everything written so far, without the
//! lock, then publishes how far it came and wakes the others, who either find their mark reached or lead
//! the next one. A sync that fails ends the matter: every waiter whose mark was not reached before, now and
//! later, gets its error until [`SharedSync::reset`]. The mark decides first: what is reached is reached, whatever fails
//! besides, also the sync that its waiter leads.
//!
//! ```text
//!  waiter A   lock  nobody syncs -> lead        run(): end = 7      lock  synced = 7, notify
//!  waiter B   lock  A syncs -> wait ............................... 5 <= 7: done
//!  waiter C   lock  A syncs -> wait ............................... 9 >  7: lead
//! ```
//!
//! Invariants:
//! - After a failure nothing is published any more, whoever synced it: a sync of one file that completes says
//!   nothing of the file whose sync failed.
//! - What was written may be taken back (a truncation) or read anew from the disk (a reopen), also while a sync
//!   runs. Both call [`SharedSync::reset`], which begins a new generation. A mark of an earlier generation is good only
//!   as far as was kept, and so is the outcome of a sync of an earlier generation; that counts once nobody is about
//!   to take anything back, which who led it makes sure of. So a sync ends whatever is taken back meanwhile.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use super::atomic::{AtomicU64, Ordering};
use super::{Condvar, Mutex};
use crate::error::{Error, Result};
use crate::types::Offset;

/// Of so many resets it is remembered what they kept; a mark that is older is good for nothing.
const RESETS_REMEMBERED: usize = 64;

/// How far something is synced, and who syncs it further.
#[derive(Debug)]
pub(crate) struct SharedSync {
    state: Mutex<State>,
    ended: Condvar,
    synced: AtomicU64,
    /// Counts the resets.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    failed: Option<Error>,
    /// Up to where each of the latest resets kept what there was.
    kept: VecDeque<u64>,
}

impl SharedSync {
    /// Everything below `synced` is synced already.
    pub(crate) fn new(synced: u64) -> Self {
        Self {
            state: Mutex::new(State::default()),
            ended: Condvar::new(),
            synced: AtomicU64::new(synced),
            generation: AtomicU64::new(0),
        }
    }

    /// Up to where everything is synced.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The generation of marks that are taken now, under the lock that resets are made under.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns once everything below `mark`, which was taken in `generation`, is synced.
    ///
    /// `run` syncs what has been written so far and answers up to where that was; it must cover whatever was
    /// written before it was called, and must not come back here. `publish` is told that end, as far as it was kept,
    /// unless something failed meanwhile; no reset happens while it runs. `settle` answers the lock under which resets
    /// are made, where a sync was overtaken by one.
    ///
    /// # Errors
    /// What a sync failed with; [`Error::Superseded`] where what the mark covered was taken back or read anew;
    /// [`Error::UnexpectedEnd`] where nothing was ever written up to the mark.
    pub(crate) fn sync_to<G>(
        &self,
        mark: u64,
        generation: u64,
        mut run: impl FnMut() -> Result<u64>,
        mut publish: impl FnMut(u64),
        mut settle: impl FnMut() -> G,
    ) -> Result<()> {
        // The generation is loaded second: one that is still the same says that the end before it was of it.
        if self.synced() >= mark && self.generation() == generation {
            return Ok(());
        }
        let mut state = self.state.lock();
        loop {
            if let Some(answer) = self.answer(&state, mark, generation) {
                return answer;
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            let led = self.generation();
            drop(state);
            let guard = Lead { shared: self, generation: led };
            let outcome = run();
            std::mem::forget(guard);
            state = self.state.lock();
            if self.generation() != led {
                drop(state);
                let settled = settle();
                state = self.state.lock();
                if let (Ok(end), None) = (outcome, &state.failed) {
                    let end = end.min(state.kept_over(self.generation().saturating_sub(led)));
                    if end > self.synced() {
                        self.synced.store(end, Ordering::Release);
                        self.ended.notify_all();
                        publish(end);
                    }
                }
                drop(settled);
                continue;
            }
            let end = match self.end(&mut state, outcome) {
                // Something else has synced it meanwhile: what failed is about what came later.
                Err(_) if self.synced() >= mark => return Ok(()),
                ended => ended?,
            };
            publish(end);
            if end < mark {
                return Err(Error::UnexpectedEnd { expected: Offset(mark), end: Offset(end) });
            }
        }
    }

    /// Up to where everything is there still that there was in `generation`; `None` where that is too long ago to know.
    /// Ask it under the lock that resets are made under.
    pub(crate) fn kept_since(&self, generation: u64) -> Option<u64> {
        let resets = self.generation().saturating_sub(generation);
        (resets <= RESETS_REMEMBERED as u64).then(|| self.state.lock().kept_over(resets))
    }

    /// What [`Self::sync_to`] would answer at once; `None` where it would sync or wait.
    pub(crate) fn peek(&self, mark: u64, generation: u64) -> Option<Result<()>> {
        if self.synced() >= mark && self.generation() == generation {
            return Some(Ok(()));
        }
        self.answer(&self.state.lock(), mark, generation)
    }

    /// What whoever waits for a mark is told; `None`: wait or lead.
    fn answer(&self, state: &State, mark: u64, generation: u64) -> Option<Result<()>> {
        let resets = self.generation().saturating_sub(generation);
        if resets > 0 && state.kept_over(resets) < mark {
            return Some(Err(Error::Superseded { offset: Offset(mark) }));
        }
        if self.synced() >= mark {
            return Some(Ok(()));
        }
        state.failed.as_ref().map(|failed| Err(failed.clone()))
    }

    /// Notes what a sync answered, and wakes whoever waits.
    fn end(&self, state: &mut State, outcome: Result<u64>) -> Result<u64> {
        state.running = false;
        self.ended.notify_all();
        let end = outcome.inspect_err(|error| {
            state.failed.get_or_insert_with(|| error.clone());
        })?;
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        self.synced.fetch_max(end, Ordering::AcqRel);
        Ok(end)
    }

    /// Something else (a roll) has synced everything below `mark`, of this generation.
    pub(crate) fn raise(&self, mark: u64) {
        let state = self.state.lock();
        if state.failed.is_none() {
            self.synced.fetch_max(mark, Ordering::AcqRel);
            self.ended.notify_all();
        }
    }

    /// Fails whoever waits and whoever comes, until [`Self::reset`].
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert_with(|| error.clone());
        self.ended.notify_all();
    }

    /// Voids a sync under way, and nothing else: whoever waits syncs again. What marks covered is all there, below
    /// `kept`.
    pub(crate) fn void(&self, kept: u64) {
        let mut state = self.state.lock();
        state.remember(kept);
        state.running = false;
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.ended.notify_all();
    }

    /// Begins a generation: everything below `synced` is synced, nothing has failed, a sync under way counts for
    /// nothing. What marks of earlier generations covered is still there below `kept`.
    pub(crate) fn reset(&self, synced: u64, kept: u64) {
        let mut state = self.state.lock();
        state.remember(kept);
        state.running = false;
        state.failed = None;
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.synced.store(synced, Ordering::Release);
        self.ended.notify_all();
    }
}

impl State {
    fn remember(&mut self, kept: u64) {
        if self.kept.len() == RESETS_REMEMBERED {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
    }

    /// Up to where the last `resets` resets kept what there was.
    fn kept_over(&self, resets: u64) -> u64 {
        let resets = usize::try_from(resets).unwrap_or(usize::MAX);
        if resets > self.kept.len() {
            return 0;
        }
        self.kept.iter().rev().take(resets).copied().min().unwrap_or(u64::MAX)
    }
}

/// Ends a sync that panicked: nothing is known of it, and nobody may wait for it.
struct Lead<'a> {
    shared: &'a SharedSync,
    generation: u64,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if self.shared.generation() == self.generation {
            let panicked = Error::io("sync", PathBuf::new(), io::Error::other("the sync panicked"));
            // The error reaches whoever waits; the one who led is unwinding.
            drop(self.shared.end(&mut state, Err(panicked)));
        }
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
                shared.0.sync_to(mark, 0, run, |_| (), || ()).expect("no sync fails here");
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
            let thread =
                loom::thread::spawn(move || other.sync_to(1, 0, || Err(Error::TimedOut), |_| (), || ()).is_err());
            assert!(shared.sync_to(1, 0, || Err(Error::TimedOut), |_| (), || ()).is_err());
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
                other.0.fail(&Error::TimedOut);
                other.1.store(1, Ordering::Release);
            });
            let failed_before = shared.1.load(Ordering::Acquire) == 1;
            let outcome = shared.0.sync_to(2, 0, || Ok(2), |_| (), || ());
            assert!(!failed_before || outcome.is_err());
            assert_eq!(outcome.is_ok(), shared.0.synced() >= 2);
            thread.join().expect("the failing thread does not panic");
            let end = shared.0.synced();
            shared.0.raise(9);
            assert_eq!(shared.0.synced(), end);
            assert!(shared.0.sync_to(end, 0, || Ok(9), |_| (), || ()).is_ok(), "what was synced before stays so");
            assert!(shared.0.sync_to(end + 1, 0, || Ok(9), |_| (), || ()).is_err());
        });
    }

    /// A truncation during a sync: what the sync saw and the truncation took back is never published.
    #[test]
    fn loom_a_reset_voids_the_sync_under_way() {
        loom::model(|| {
            let shared = Arc::new((SharedSync::new(0), AtomicU64::new(2), AtomicU64::new(0)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                let run = || Ok(other.1.load(Ordering::Acquire));
                other.0.sync_to(2, 0, run, |end| other.2.store(end, Ordering::Release), || ()).is_ok()
            });
            shared.1.store(1, Ordering::Release);
            shared.0.reset(0, 1);
            let published_before = shared.2.swap(0, Ordering::AcqRel);
            let reached = thread.join().expect("the waiter does not panic");
            assert!(shared.2.load(Ordering::Acquire) <= 1, "published what was taken back");
            assert!(!reached || published_before == 2, "told that a record is safe that was taken back");
            assert!(shared.0.synced() <= 1);
        });
    }

    /// A failure, then a new beginning: whoever waited for what the failure left unknown is not told that it is safe.
    #[test]
    fn loom_a_sync_under_way_does_not_outlive_a_reset() {
        loom::model(|| {
            let shared = Arc::new(SharedSync::new(0));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                let mut published = 0;
                let reached = other.sync_to(7, 0, || Ok(7), |end| published = end, || ()).is_ok();
                (reached, published)
            });
            shared.fail(&Error::TimedOut);
            let before = shared.synced();
            shared.reset(3, before);
            let (reached, published) = thread.join().expect("the waiter does not panic");
            assert_eq!(reached, before == 7);
            assert!(published == 0 || before == 7);
            shared.sync_to(8, 1, || Ok(8), |_| (), || ()).expect("nothing has failed since");
        });
    }

    /// A close: what it has stored is stored, also for whoever leads a sync that finds everything closed.
    #[test]
    fn loom_a_mark_that_is_reached_counts_before_a_failure() {
        loom::model(|| {
            let shared = Arc::new((SharedSync::new(0), AtomicU64::new(0)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                other.0.raise(1);
                other.1.store(1, Ordering::Release);
                other.0.fail(&Error::Closed);
            });
            let is_closed = || shared.1.load(Ordering::Acquire) == 1;
            let run = || if is_closed() { Err(Error::Closed) } else { Ok(1) };
            assert!(shared.0.sync_to(1, 0, run, |_| (), || ()).is_ok());
            thread.join().expect("the closing thread does not panic");
        });
    }

    /// Something else reaches the mark of who waits for a sync that is under way.
    #[test]
    fn loom_raising_wakes_whoever_waits() {
        loom::model(|| {
            let shared = Arc::new(SharedSync::new(0));
            let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
            let thread = loom::thread::spawn(move || one.sync_to(1, 0, || Ok(1), |_| (), || ()).is_ok());
            let roll = loom::thread::spawn(move || two.raise(2));
            shared.sync_to(2, 0, || Ok(2), |_| (), || ()).expect("no sync fails here");
            assert!(thread.join().expect("the leader does not panic"));
            roll.join().expect("the roll does not panic");
            assert_eq!(shared.synced(), 2);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{RESETS_REMEMBERED, SharedSync};
    use crate::error::Error;
    use crate::types::Offset;

    #[test]
    fn a_failure_while_a_sync_runs_is_not_covered_by_it() {
        let shared = SharedSync::new(0);
        let outcome = shared.sync_to(
            1,
            0,
            || {
                shared.fail(&Error::TimedOut);
                Ok(1)
            },
            |_| (),
            || (),
        );
        assert!(matches!(outcome, Err(Error::TimedOut)));
        assert_eq!(shared.synced(), 0);
        shared.raise(1);
        assert_eq!(shared.synced(), 0);
    }

    /// A close syncs and fences while somebody leads a sync, which then finds everything closed.
    #[test]
    fn a_mark_that_something_else_reaches_counts_before_the_failure_of_a_sync() {
        let shared = SharedSync::new(0);
        let run = || {
            shared.raise(1);
            Err(Error::Closed)
        };
        assert!(shared.sync_to(1, 0, run, |_| (), || ()).is_ok());
        assert!(matches!(shared.sync_to(2, 0, || Ok(2), |_| (), || ()), Err(Error::Closed)));
    }

    #[test]
    fn what_was_synced_before_a_failure_stays_synced() {
        let shared = SharedSync::new(5);
        shared.fail(&Error::TimedOut);
        assert!(shared.sync_to(5, 0, || Ok(5), |_| (), || ()).is_ok());
        assert!(matches!(shared.sync_to(6, 0, || Ok(6), |_| (), || ()), Err(Error::TimedOut)));
    }

    /// A mark is good across resets as far as all of them kept what it covered, and no further.
    #[test]
    fn marks_of_earlier_generations() {
        let shared = SharedSync::new(9);
        shared.reset(5, 5);
        shared.reset(5, 7);
        let ask = |mark, generation| shared.sync_to(mark, generation, || Ok(20), |_| (), || ());
        assert!(ask(5, 0).is_ok());
        assert!(matches!(ask(6, 0), Err(Error::Superseded { offset: Offset(6) })));
        assert!(ask(7, 1).is_ok(), "the second reset kept it");
        assert!(matches!(ask(8, 1), Err(Error::Superseded { .. })));
        assert!(ask(20, 2).is_ok());
        for _ in 0..RESETS_REMEMBERED {
            shared.reset(20, 20);
        }
        assert!(matches!(ask(1, 1), Err(Error::Superseded { .. })), "too long ago to know");
    }

    #[test]
    fn a_mark_that_is_not_there_is_an_error_and_no_endless_sync() {
        let shared = SharedSync::new(0);
        let beyond = shared.sync_to(9, 0, || Ok(5), |_| (), || ());
        assert!(matches!(beyond, Err(Error::UnexpectedEnd { expected: Offset(9), end: Offset(5) })));
        assert_eq!(shared.synced(), 5);
    }

    #[test]
    fn a_sync_that_panics_fails_and_leaves_nobody_waiting() {
        let shared = SharedSync::new(0);
        let panicked =
            catch_unwind(AssertUnwindSafe(|| shared.sync_to(1, 0, || panic!("a host's storage"), |_| (), || ())));
        assert!(panicked.is_err());
        assert!(matches!(shared.sync_to(1, 0, || Ok(1), |_| (), || ()), Err(Error::Io { operation: "sync", .. })));
        shared.reset(0, 0);
        assert!(shared.sync_to(1, 1, || Ok(1), |_| (), || ()).is_ok());
    }
}
