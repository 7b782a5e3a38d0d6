//! A clock that goes only as far as it is stepped: a suspended process, or one that is kept waiting, has not waited.

use std::time::Duration;

use crate::clock::Moment;

/// So much at most counts between two steps.
pub(super) const STEP_MAX: Duration = Duration::from_secs(1);

/// Time that has passed in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SteppedClock {
    last: Moment,
    elapsed: Duration,
}

impl SteppedClock {
    pub(super) const fn starting(now: Moment) -> Self {
        Self { last: now, elapsed: Duration::ZERO }
    }

    /// A step at `now`.
    pub(super) fn step(&mut self, now: Moment) {
        self.elapsed += now.since(self.last).min(STEP_MAX);
        self.last = self.last.max(now);
    }

    /// How much has passed up to the last step.
    pub(super) const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// When the next step is due: soon enough that none is lost where it comes a little late.
    pub(super) fn next(&self) -> Moment {
        self.last.after(STEP_MAX / 2)
    }
}
