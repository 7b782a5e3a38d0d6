//! The open batches of a producer by age: what is due, and what goes first where memory runs out.
//!
//! Every open batch stands here under its [`Key`], from its first record until it is taken to be appended, and apart from
//! those until it has its outcome: a close hands over the former and waits for the latter. All linger equally long, so
//! the oldest is the one that is due first.
//!
//! Invariants: once closed, none enters; what has entered stands here until it has its outcome; [`Agenda::due`] is never later than the oldest batch is due. It may be earlier,
//! until [`Agenda::settle`]: a batch that is filled before its time leaves without a word to whoever drives this.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::lane::Lane;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Which batch: when it was opened, and a number that tells those of one moment apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(Moment, u64);

/// What is open.
#[derive(Debug)]
pub(super) struct Agenda {
    linger: Duration,
    /// When the next batch is due, in nanoseconds of [`Moment`]; [`NEVER`] where there is none.
    due: AtomicU64,
    is_closed: AtomicBool,
    state: Mutex<State>,
}

const NEVER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Key, Arc<Lane>>,
    /// Those that are being appended.
    taken: BTreeMap<Key, Arc<Lane>>,
    count: u64,
}

impl Agenda {
    pub(super) fn new(linger: Duration) -> Self {
        let (due, is_closed) = (AtomicU64::new(NEVER), AtomicBool::new(false));
        Self { linger, due, is_closed, state: Mutex::default() }
    }

    /// Whether nothing enters any more.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Enters a batch that is opened now, and says whether something is due earlier than before.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(super) fn enter(&self, now: Moment, lane: &Arc<Lane>) -> Result<(Key, bool)> {
        let mut state = self.state.lock();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let key = Key(now, state.count);
        state.count += 1;
        state.open.insert(key, Arc::clone(lane));
        let due = now.after(self.linger).0;
        let is_earlier = due < self.due.load(Ordering::Relaxed);
        if is_earlier {
            self.due.store(due, Ordering::Release);
        }
        Ok((key, is_earlier))
    }

    /// A batch is taken to be appended.
    pub(super) fn take(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(lane) = state.open.remove(&key) {
            state.taken.insert(key, lane);
        }
    }

    /// A batch has its outcome, or was never filled.
    pub(super) fn leave(&self, key: Key) {
        let mut state = self.state.lock();
        let left = (state.open.remove(&key), state.taken.remove(&key));
        drop(state);
        drop(left);
    }

    /// The oldest batch; with a key, the oldest of those behind it.
    pub(super) fn oldest(&self, behind: Option<Key>) -> Option<(Key, Arc<Lane>)> {
        let state = self.state.lock();
        let mut open = state.open.range(behind.map_or(Key(Moment(0), 0), Key::next)..);
        open.next().map(|(key, lane)| (*key, Arc::clone(lane)))
    }

    /// The batches that are due, the oldest first.
    pub(super) fn due_by(&self, now: Moment) -> Vec<(Key, Arc<Lane>)> {
        let state = self.state.lock();
        let due = state.open.iter().take_while(|(key, _)| key.0.after(self.linger) <= now);
        due.map(|(key, lane)| (*key, Arc::clone(lane))).collect()
    }

    /// Those that are open, the oldest first.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.state.lock().open.values().cloned().collect()
    }

    /// When something is due next.
    pub(super) fn due(&self) -> Option<Moment> {
        let due = self.due.load(Ordering::Acquire);
        (due != NEVER).then_some(Moment(due))
    }

    /// Looks again when something is due next.
    pub(super) fn settle(&self) {
        let state = self.state.lock();
        let due = state.open.keys().next().map_or(NEVER, |key| key.0.after(self.linger).0);
        self.due.store(due, Ordering::Release);
    }

    /// From now on nothing enters. Answers where batches are open, or being appended.
    pub(super) fn close(&self) -> Vec<Arc<Lane>> {
        let state = self.state.lock();
        self.is_closed.store(true, Ordering::Release);
        state.open.values().chain(state.taken.values()).cloned().collect()
    }
}

impl Key {
    fn next(self) -> Self {
        Self(self.0, self.1 + 1)
    }
}
