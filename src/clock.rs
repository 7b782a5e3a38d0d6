//! Time comes from here and nowhere else: wall time for timestamps, a monotonic [`Moment`] for time-outs.
//!
//! Invariant: a [`Moment`] never goes back within a process; wall time may, and nothing that decides
//! about waiting looks at it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::types::Timestamp;

/// A point on the monotonic clock, in nanoseconds since an arbitrary start. Only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero where it is later than `self`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Both clocks read at once: what every function that takes time as an argument is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall time, for timestamps and retention.
    pub wall: Timestamp,
    /// Monotonic time, for intervals and time-outs.
    pub monotonic: Moment,
}

/// Where a host's log reads the time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Wall time. It may jump either way.
    fn wall(&self) -> Timestamp;

    /// Monotonic time. It never goes back.
    fn monotonic(&self) -> Moment;

    /// Both.
    fn now(&self) -> Now {
        Now { wall: self.wall(), monotonic: self.monotonic() }
    }
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        Timestamp(seconds.saturating_mul(1_000).saturating_add(since_epoch.subsec_millis().into()))
    }

    fn monotonic(&self) -> Moment {
        static START: OnceLock<Instant> = OnceLock::new();
        Moment::default().after(START.get_or_init(Instant::now).elapsed())
    }
}

/// A clock that stands still until it is told otherwise, for tests and simulation.
///
/// A call that waits goes by it: a [`Consumer::poll`](crate::Consumer::poll) with a time-out that finds nothing to read does
/// not return before the clock was moved on by so much, or it was woken ([`Consumer::waker`](crate::Consumer::waker)). Who
/// moves the clock on in the thread that polls takes [`Consumer::try_poll`](crate::Consumer::try_poll).
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Clock, ManualClock, Timestamp};
/// let clock = ManualClock::at(Timestamp(1_000));
/// clock.advance(Duration::from_millis(5));
/// assert_eq!(clock.wall(), Timestamp(1_005));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    wall: AtomicI64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `wall`.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self { wall: AtomicI64::new(wall.0), monotonic: AtomicU64::new(0) }
    }

    /// Moves both clocks on.
    pub fn advance(&self, duration: Duration) {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.wall.fetch_add(millis, Ordering::SeqCst);
        self.monotonic.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall clock, backwards too; the monotonic one is not touched.
    pub fn set_wall(&self, wall: Timestamp) {
        self.wall.store(wall.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Moment {
        Moment(self.monotonic.load(Ordering::SeqCst))
    }
}
