//! The monitor: looks at groups at intervals, and says what its host has to know before it is too late.
//!
//! Thread rule: a round is made by the node's timed thread, or by whoever ticks the log; one at a time, and none within
//! another. The callback runs at the end of a round, under no lock but the one that is its own.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::crossing::Crossings;
use super::gauges::Gauges;
use super::hot::Hot;
use super::round::Round;
use super::samples::{Pace, Samples, SeenByGroup};
use super::{Alert, Margin, Rate};
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::metrics;
use crate::node::{Losses, Node, Timed};
use crate::sync::Mutex;
use crate::trace;
use crate::types::TopicPartition;

const NEVER: u64 = u64::MAX;

type Callback = Box<dyn FnMut(&Alert) + Send>;

/// What a monitor is to do.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// `None`: all that there are.
    pub(super) groups: Option<BTreeSet<String>>,
    pub(super) interval: Duration,
    pub(super) window: Duration,
    pub(super) margin: Margin,
    pub(super) hot: Option<f64>,
}

/// Starts a [`Monitor`].
#[must_use]
pub struct MonitorBuilder {
    node: Arc<Node>,
    monitors: Arc<Monitors>,
    settings: Settings,
    callback: Option<Callback>,
}

impl fmt::Debug for MonitorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitorBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl MonitorBuilder {
    pub(crate) fn new(node: Arc<Node>, monitors: Arc<Monitors>) -> Self {
        let settings = Settings {
            groups: None,
            interval: Duration::from_secs(1),
            window: Duration::from_secs(60),
            margin: Margin::default(),
            hot: None,
        };
        Self { node, monitors, settings, callback: None }
    }

    /// Which groups to watch. Default: all that there are.
    pub fn groups<G: Into<String>>(mut self, groups: impl IntoIterator<Item = G>) -> Self {
        self.settings.groups = Some(groups.into_iter().map(Into::into).collect());
        self
    }

    /// How often to look. Default: every second. A margin that is shorter may be crossed unseen.
    pub const fn interval(mut self, interval: Duration) -> Self {
        self.settings.interval = interval;
        self
    }

    /// Over which time rates are taken. Default: a minute.
    pub const fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// How near the edge of retention may be before it is said ([`Alert::NearEdge`]): once, until the group has left the
    /// margin by a quarter of it. Default: a quarter of what is kept.
    pub const fn margin(mut self, margin: Margin) -> Self {
        self.settings.margin = margin;
        self
    }

    /// Says which partition takes more than `multiple` times the mean of its topic, in records, for as long as a
    /// [`window`](Self::window) ([`Alert::HotPartition`]). In a topic of n partitions none takes more than n times the mean,
    /// so that nothing is said of it where `multiple` is n or more: of three partitions the one that takes all has 3. Topics
    /// with fewer than 10 records a second are not looked at. Default: it is not said.
    pub const fn hot_key(mut self, multiple: f64) -> Self {
        self.settings.hot = Some(multiple);
        self
    }

    /// What to do with an alert. It is called where the monitor looks: on the log's own thread, which its host's
    /// batches wait for meanwhile, or in [`Log::tick`](crate::Log::tick). It may use the log, and close it. One that
    /// panics is not called again. Default: nothing; alerts are traced and counted (features `tracing` and `metrics`)
    /// in any case.
    pub fn on_alert(mut self, callback: impl FnMut(&Alert) + Send + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// Begins to watch; looks for the first time at once (without background threads: with the next
    /// [`Log::tick`](crate::Log::tick)).
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], [`Error::Closed`].
    pub fn start(self) -> Result<Monitor> {
        self.settings.check()?;
        self.node.check_open()?;
        let watch = Arc::new(Watch {
            losses: self.node.watch_losses(),
            samples: Mutex::new(Samples::new(self.settings.window)),
            memory: Mutex::new(Memory::default()),
            callback: Mutex::new(self.callback),
            due: AtomicU64::new(self.node.clock().monotonic().0),
            running: AtomicBool::new(false),
            settings: self.settings,
            node: self.node,
        });
        self.monitors.add(&watch);
        let timed: Weak<Watch> = Arc::downgrade(&watch);
        watch.node.register(timed);
        Ok(Monitor { watch })
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        let refuse = |setting, reason: &str| Err(Error::InvalidConfig { setting, reason: reason.to_owned() });
        match () {
            () if self.interval.is_zero() => refuse("interval", "a monitor that always looks does nothing else"),
            () if self.window < self.interval => refuse("window", "it is shorter than the interval: there is no rate"),
            () if self.hot.is_some_and(|multiple| multiple.is_nan() || multiple < 1.0) => {
                refuse("hot_key", "some partition always takes more than a part of the mean: it is 1 or more")
            }
            () if matches!(self.margin, Margin::Fraction(part) if !part.is_possible()) => {
                refuse("margin", "a part is a number from 0 to 1")
            }
            () => Ok(()),
        }
    }
}

/// Watches groups, as long as it lives.
///
/// ```
/// use taffrail::{Alert, Log};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// let monitor = log.monitor().on_alert(|alert: &Alert| eprintln!("{alert}")).start()?;
/// // ... until it is dropped
/// drop(monitor);
/// # log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped, it watches no more"]
pub struct Monitor {
    watch: Arc<Watch>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.watch.due.store(NEVER, Ordering::Release);
        // What the callback holds goes with its monitor, where it is not what drops it.
        if let Some(mut callback) = self.watch.callback.try_lock() {
            callback.take();
        }
    }
}

/// What a monitor remembers from round to round.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) crossings: Crossings,
    pub(super) hot: Hot,
    pub(super) seen: SeenByGroup,
    pub(super) gauges: Gauges,
}

/// What the node drives.
pub(super) struct Watch {
    node: Arc<Node>,
    settings: Settings,
    losses: Arc<Losses>,
    samples: Mutex<Samples>,
    memory: Mutex<Memory>,
    callback: Mutex<Option<Callback>>,
    due: AtomicU64,
    running: AtomicBool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Watch {
    /// One round: samples, figures, alerts.
    fn round(&self, now: Now) {
        let mut round = Round::new(&self.node, &self.settings, now);
        let alerts = {
            let mut memory = self.memory.lock();
            round.gather(&mut memory);
            round.sample(&mut self.samples.lock());
            round.judge(&mut memory, self.losses.take())
        };
        round.measure(&mut self.memory.lock().gauges);
        for alert in &alerts {
            trace::warn(self.node.directory(), || alert.to_string());
            metrics::ALERTS.count(&[alert.kind()], 1);
            self.call(alert);
        }
    }

    fn call(&self, alert: &Alert) {
        if self.due.load(Ordering::Acquire) == NEVER {
            return; // the monitor was dropped meanwhile
        }
        let mut slot = self.callback.lock();
        let Some(callback) = slot.as_mut() else { return };
        if catch_unwind(AssertUnwindSafe(|| callback(alert))).is_err() {
            trace::warn(self.node.directory(), || "the callback of a monitor has panicked, and is not called again");
            *slot = None;
        }
    }
}

impl Timed for Watch {
    fn due(&self) -> Option<Moment> {
        let due = self.due.load(Ordering::Acquire);
        (due != NEVER && !self.running.load(Ordering::Acquire)).then_some(Moment(due))
    }

    fn run(&self, now: Now) {
        if self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let due = self.due.load(Ordering::Acquire);
        let next = now.monotonic.after(self.settings.interval);
        if self.node.check_open().is_ok() && due <= now.monotonic.0 {
            // Not where it has been dropped meanwhile.
            let again = self.due.compare_exchange(due, next.0, Ordering::AcqRel, Ordering::Acquire);
            if again.is_ok() {
                self.round(now);
            }
        }
        self.running.store(false, Ordering::Release);
    }

    fn close(&self) {
        self.due.store(NEVER, Ordering::Release);
    }
}

/// The monitors of a log, for whoever asks for rates.
#[derive(Debug, Default)]
pub(crate) struct Monitors(Mutex<Vec<Weak<Watch>>>);

impl Monitors {
    fn add(&self, watch: &Arc<Watch>) {
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(watch));
    }

    fn all(&self) -> Vec<Arc<Watch>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What comes into a partition, and how fast a group reads it, by the first monitor that knows.
    pub(super) fn pace(&self, group: &str, of: &TopicPartition, now: Moment) -> Pace {
        let paces = self.all().into_iter().map(|watch| watch.samples.lock().pace(group, of, now));
        paces.reduce(Pace::or).unwrap_or_default()
    }

    /// What comes into all partitions, where a monitor knows it.
    pub(crate) fn rate_in(&self, now: Moment) -> Option<Rate> {
        self.all().iter().find_map(|watch| watch.samples.lock().total_in(now))
    }
}
