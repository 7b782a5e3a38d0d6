//! How the coordinators of groups run: what holds for all groups of a log.

use std::time::Duration;

use crate::error::{Error, Result};

/// What holds for all groups of a log.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{GroupConfig, Log};
/// # let directory = tempfile::tempdir()?;
/// let groups = GroupConfig::new().session_timeout(Duration::from_secs(10)).members_max(100);
/// let log = Log::builder(directory.path().join("data")).groups(groups).open()?;
/// # log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct GroupConfig {
    /// See the [method](Self::session_timeout()) of this name.
    pub session_timeout: Duration,
    /// See the [method](Self::heartbeat_interval()) of this name.
    pub heartbeat_interval: Duration,
    /// See the [method](Self::offsets_retention()) of this name.
    pub offsets_retention: Duration,
    /// See the [method](Self::members_max()) of this name.
    pub members_max: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupConfig {
    /// The default settings.
    pub const fn new() -> Self {
        Self {
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(5),
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            members_max: 1000,
        }
    }

    /// A member that is silent for so long is removed from its group, and its partitions go to others. Its heartbeats
    /// come from the log's own thread, so that only a process that is stopped, or starved, is silent. A consumer may ask
    /// for less. Default: 45 s.
    #[doc(alias = "group.consumer.session.timeout.ms")]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How often members report, and three times in their sessions at least. Those in this process hear at once of what has
    /// changed in their group. Default: 5 s.
    #[doc(alias = "group.consumer.heartbeat.interval.ms")]
    pub const fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// How long positions are kept that nobody uses: those of a group that has had no members for so long, and those of
    /// topics that no member subscribes to, from when they were committed. Default: 7 days.
    ///
    /// It goes by the wall clock, as the records of positions do: one that is ahead by so much takes them, as in Kafka.
    #[doc(alias = "offsets.retention.minutes")]
    pub const fn offsets_retention(mut self, retention: Duration) -> Self {
        self.offsets_retention = retention;
        self
    }

    /// So many members at most has a group. Default: 1000 (Kafka has no bound by default).
    #[doc(alias = "group.consumer.max.size")]
    pub const fn members_max(mut self, members: usize) -> Self {
        self.members_max = members;
        self
    }

    /// Whether it is one that makes sense.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |setting, reason: &str| Err(Error::InvalidConfig { setting, reason: reason.to_owned() });
        match () {
            () if self.heartbeat_interval.is_zero() => refuse("heartbeat_interval", "it is longer than nothing"),
            () if self.session_timeout <= self.heartbeat_interval => {
                refuse("session_timeout", "it is longer than the interval of heartbeats, or no member would last")
            }
            () if self.session_timeout > TIMEOUT_MAX => refuse("session_timeout", "it is a day at most"),
            () if self.members_max == 0 => refuse("members_max", "a group has room for one member at least"),
            () => Ok(()),
        }
    }
}

const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
