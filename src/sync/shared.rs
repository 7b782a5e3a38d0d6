//! One sync serves all who wait.
//!
//! Whoever finds no sync under way leads one: it runs the sync for everything written so far, without the
//! lock, then publishes how far it came and wakes the others, who either find their mark reached or lead
//! the next one. A sync that fails ends the matter: every waiter, now and later, gets its error until
//! [`SharedSync::reset`].
//!
//! ```text
//!  waiter A   lock  nobody syncs -> lead        run(): end = 7      lock  synced = 7, notify
//!  waiter B   lock  A syncs -> wait ............................... 5 <= 7: done
//!  waiter C   lock  A syncs -> wait ............................... 9 >  7: lead
//! ```
//!
//! What was written may be taken back (a truncation) or read anew from the disk (a reopen) while a sync
//! runs. Both call [`SharedSync::reset`], after which the outcome of a sync that began before counts for
//! nothing: neither its end nor its failure.

use super::atomic::{AtomicU64, Ordering};
use super::{Condvar, Mutex};
use crate::error::{Error, Result};

/// How far something is synced, and who syncs it further.
#[derive(Debug)]
pub(crate) struct SharedSync {
    state: Mutex<State>,
    ended: Condvar,
    synced: AtomicU64,
}

#[derive(Debug)]
struct State {
    running: bool,
    failed: Option<Error>,
    /// Counts the resets: a sync that began under another number is void.
    generation: u64,
}

impl SharedSync {
    /// Everything below `synced` is synced already.
    pub(crate) fn new(synced: u64) -> Self {
        let state = State { running: false, failed: None, generation: 0 };
        Self { state: Mutex::new(state), ended: Condvar::new(), synced: AtomicU64::new(synced) }
    }

    /// Up to where everything is synced.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Returns once everything below `mark` is synced: `true`, or `false` where a sync of all there is ended
    /// below it, because what stood there was taken back.
    ///
    /// `run` syncs what has been written so far and answers up to where that was; it must cover whatever was
    /// written before it was called. `publish` is told that end unless a reset came between; no reset can
    /// happen while it runs.
    pub(crate) fn sync_to(
        &self,
        mark: u64,
        mut run: impl FnMut() -> Result<u64>,
        mut publish: impl FnMut(u64),
    ) -> Result<bool> {
        let mut state = self.state.lock();
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if self.synced() >= mark {
                return Ok(true);
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            let generation = state.generation;
            drop(state);
            let outcome = run();
            state = self.state.lock();
            if state.generation != generation {
                continue;
            }
            state.running = false;
            self.ended.notify_all();
            match outcome {
                Ok(end) => {
                    self.synced.fetch_max(end, Ordering::AcqRel);
                    publish(end);
                    if end < mark {
                        return Ok(false);
                    }
                }
                Err(error) => state.failed = Some(error),
            }
        }
    }

    /// Something else (a roll) has synced everything below `mark`, of what no reset has taken back.
    pub(crate) fn raise(&self, mark: u64) {
        self.synced.fetch_max(mark, Ordering::AcqRel);
    }

    /// Fails whoever waits and whoever comes, until [`Self::reset`].
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert_with(|| error.clone());
        self.ended.notify_all();
    }

    /// Begins anew: everything below `synced` is synced, nothing has failed, a sync under way counts for nothing.
    pub(crate) fn reset(&self, synced: u64) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.running = false;
        state.failed = None;
        self.synced.store(synced, Ordering::Release);
        self.ended.notify_all();
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
                assert!(shared.0.sync_to(mark, run, |_| ()).expect("no sync fails here"));
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
            let thread = loom::thread::spawn(move || other.sync_to(1, || Err(Error::TimedOut), |_| ()).is_err());
            assert!(shared.sync_to(1, || Err(Error::TimedOut), |_| ()).is_err());
            assert!(thread.join().expect("the other waiter does not panic"));
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
                other.0.sync_to(2, run, |end| other.2.store(end, Ordering::Release))
            });
            shared.1.store(1, Ordering::Release);
            let published_before = {
                shared.0.reset(0);
                shared.2.swap(0, Ordering::AcqRel)
            };
            let reached = thread.join().expect("the waiter does not panic").expect("no sync fails here");
            assert!(shared.2.load(Ordering::Acquire) <= 1, "published what was taken back");
            assert!(published_before == 2 || published_before == 1 || !reached);
        });
    }
}
