//! The settings of an open partition, which a host may change while it is open.
//!
//! Writers use the copy that the writer's lock guards. Beside it stands what is asked without that lock, as atomics:
//! a change is seen by the next append at the latest.

use std::time::Duration;

use super::{Inner, Partition};
use crate::config::{Durability, PartitionConfig, TimestampType};
use crate::error::{Error, Result};
use crate::segment::SegmentConfig;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

const SYNCED: u32 = 1;
const COMPACTS: u32 = 2;
const STAMPS: u32 = 4;
const BOUNDS_TIMESTAMPS: u32 = 8;

/// What is asked without the writer's lock.
#[derive(Debug)]
pub(super) struct Settings {
    flags: AtomicU32,
    batch_limit: AtomicU64,
    decompressed_limit: AtomicU64,
    flush_interval_nanos: AtomicU64,
    /// How far before and after now timestamps may lie, in milliseconds.
    before_millis: AtomicI64,
    after_millis: AtomicI64,
}

impl Settings {
    pub(super) fn new(config: &PartitionConfig) -> Self {
        let settings = Self {
            flags: AtomicU32::new(0),
            batch_limit: AtomicU64::new(0),
            decompressed_limit: AtomicU64::new(0),
            flush_interval_nanos: AtomicU64::new(0),
            before_millis: AtomicI64::new(0),
            after_millis: AtomicI64::new(0),
        };
        settings.set(config);
        settings
    }

    fn set(&self, config: &PartitionConfig) {
        let bounds = config.timestamp_before_max.is_some() || config.timestamp_after_max.is_some();
        let flag = |holds: bool, flag: u32| if holds { flag } else { 0 };
        let flags = flag(config.durability != Durability::Os, SYNCED)
            | flag(config.cleanup.compacts(), COMPACTS)
            | flag(config.timestamp_type == TimestampType::LogAppendTime, STAMPS)
            | flag(bounds, BOUNDS_TIMESTAMPS);
        let interval = u64::try_from(config.flush_interval.as_nanos()).unwrap_or(u64::MAX);
        let millis =
            |bound: Option<Duration>| bound.and_then(|bound| i64::try_from(bound.as_millis()).ok()).unwrap_or(i64::MAX);
        self.before_millis.store(millis(config.timestamp_before_max), Ordering::Release);
        self.after_millis.store(millis(config.timestamp_after_max), Ordering::Release);
        self.batch_limit.store(config.batch_limit(), Ordering::Release);
        self.decompressed_limit.store(config.decompressed_bytes_max as u64, Ordering::Release);
        self.flush_interval_nanos.store(interval, Ordering::Release);
        self.flags.store(flags, Ordering::Release);
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Whether readers see a record only once it is synced: alone, `Auto` is `Sync`.
    pub(super) fn is_synced(&self) -> bool {
        self.has(SYNCED)
    }

    /// Whether every record needs a key.
    pub(super) fn compacts(&self) -> bool {
        self.has(COMPACTS)
    }

    /// Whether the log stamps records itself.
    pub(super) fn stamps(&self) -> bool {
        self.has(STAMPS)
    }

    /// How many milliseconds before and after now a timestamp may lie, where that is bounded.
    pub(super) fn timestamp_bounds(&self) -> Option<(i64, i64)> {
        let bounds = || (self.before_millis.load(Ordering::Acquire), self.after_millis.load(Ordering::Acquire));
        self.has(BOUNDS_TIMESTAMPS).then(bounds)
    }

    pub(super) fn batch_limit(&self) -> u64 {
        self.batch_limit.load(Ordering::Acquire)
    }

    /// How many bytes of records a compressed batch may hold.
    pub(super) fn decompressed_limit(&self) -> usize {
        usize::try_from(self.decompressed_limit.load(Ordering::Acquire)).unwrap_or(usize::MAX)
    }

    pub(super) fn flush_interval(&self) -> Duration {
        Duration::from_nanos(self.flush_interval_nanos.load(Ordering::Acquire))
    }
}

impl Partition {
    /// The settings as they are now.
    pub fn config(&self) -> PartitionConfig {
        self.inner.writer.lock().config.clone()
    }

    /// Changes the settings. What they say of segments (sizes, indexes) holds from the next segment on. One that
    /// becomes synced syncs all it has before this returns. One that takes no writes since a failure takes settings all the
    /// same, but that it becomes synced.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] where they contradict each other, or say otherwise who commits; what a sync failed with;
    /// [`Error::Policy`] for a partition of a log, which has the settings of its topic.
    pub fn set_config(&self, config: PartitionConfig) -> Result<()> {
        if !self.inner.home.is_alone() {
            return Err(Error::Policy("a partition of a log has its topic's settings: `Log::set_topic_config`"));
        }
        check_knows_groups(&config)?;
        self.set_config_in_log(config)
    }

    /// The same for a partition of a log.
    pub(crate) fn set_config_in_log(&self, config: PartitionConfig) -> Result<()> {
        let inner = &*self.inner;
        config.check()?;
        if config.commits != inner.commits {
            let reason = "who commits is settled when a partition is opened".to_owned();
            return Err(Error::InvalidConfig { setting: "commits", reason });
        }
        inner.check_readable()?;
        let mut writer = inner.writer.lock();
        inner.check_readable()?;
        let (was_synced, compacts) = (inner.is_synced(), config.cleanup.compacts());
        let mut config = config;
        let becomes_synced = !was_synced && config.durability != Durability::Os;
        // It cannot sync what readers see: in this it stays as it is.
        let shows_unsynced = inner.picture.high_watermark().0 > inner.sync.synced();
        let is_to_sync = config.durability != Durability::Os && (becomes_synced || shows_unsynced);
        let refused = inner.check_health().err().filter(|_| is_to_sync);
        if refused.is_some() {
            config.durability = writer.config.durability;
        }
        writer.segment_config = SegmentConfig::from(&config);
        for segment in &inner.picture.view().segments {
            segment.set_decompressed_bytes_max(config.decompressed_bytes_max);
        }
        inner.settings.set(&config);
        writer.config = config;
        if compacts && inner.picture.view().contiguous {
            inner.picture.publish(inner.next_view(|view| view.contiguous = false));
        }
        if was_synced && !inner.is_synced() {
            inner.unsynced_since.store(0, Ordering::Release);
            inner.stored(inner.picture.end());
        }
        drop(writer);
        inner.changed.notify();
        if let Some(refused) = refused {
            return Err(refused);
        }
        // Also where an earlier call has failed in this.
        if is_to_sync { inner.flush() } else { Ok(()) }
    }
}

/// Refuses to hold what groups have not read, of which a partition by itself knows nothing.
pub(super) fn check_knows_groups(config: &PartitionConfig) -> Result<()> {
    if config.retention.held_groups.is_empty() {
        return Ok(());
    }
    let reason = "a partition by itself knows of no groups to hold anything for: that is a topic's".to_owned();
    Err(Error::InvalidConfig { setting: "retention", reason })
}

impl Inner {
    /// Whether readers see a record only once it is synced.
    pub(super) fn is_synced(&self) -> bool {
        self.settings.is_synced()
    }
}
