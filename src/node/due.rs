//! When something is to be looked after next, for whoever looks after many: known without asking any of them.
//!
//! Invariant: it is never later than what was noted since it was taken. It may be earlier: what was noted holds until it is
//! taken, whatever has become of it. So whoever takes it asks everybody, who notes again; what is noted meanwhile stays.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Moment;

const NEVER: u64 = u64::MAX;

/// The earliest moment that was noted, in nanoseconds of [`Moment`].
#[derive(Debug)]
pub(super) struct Due(AtomicU64);

impl Due {
    pub(super) const fn never() -> Self {
        Self(AtomicU64::new(NEVER))
    }

    /// There is something to do then; says whether that is earlier than was known.
    pub(super) fn is_by(&self, due: Moment) -> bool {
        due.0 < self.0.fetch_min(due.0, Ordering::AcqRel)
    }

    pub(super) fn get(&self) -> Option<Moment> {
        let due = self.0.load(Ordering::Acquire);
        (due != NEVER).then_some(Moment(due))
    }

    /// Whether it has come; nothing is known then until it is noted again.
    pub(super) fn take(&self, now: Moment) -> bool {
        let is_due = self.get().is_some_and(|due| due <= now);
        if is_due {
            self.0.swap(NEVER, Ordering::AcqRel);
        }
        is_due
    }
}
