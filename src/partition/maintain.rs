//! What falls due: the sync of what nobody waits for, checkpoints, retention, letting go of memory.
//!
//! A partition starts no thread. A host calls [`Partition::maintain`] now and then (every few hundred milliseconds
//! is plenty) with the time, and is told what was done.

use std::time::Duration;

use super::compact::Compaction;
use super::retention::{Reached, Removed};
use super::{Inner, Partition, Writer};
use crate::clock::{Moment, Now};
use crate::error::Result;
use crate::types::Offset;

/// It is looked for producers to be forgotten so often (Kafka: `producer.id.expiration.check.interval.ms`).
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// What one call of [`Partition::maintain`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintenance {
    /// Records that nobody waited for were synced, and became visible.
    pub synced: bool,
    /// Sealed segments that were synced, so that a recovery need not read them (only with `Durability::Os`).
    pub segments_synced: usize,
    /// The recovery point and the high watermark were written to their checkpoints.
    pub checkpointed: bool,
    /// The memory of the index was let go of.
    pub index_dropped: bool,
    /// Producers that nothing was heard of for so long that they were forgotten.
    pub producers_expired: usize,
    /// Segments that went by the retention.
    pub removed: Vec<Removed>,
    /// A compaction that came to an end. ([`Partition::compaction_error`] says whether one has failed.)
    pub compacted: Option<Compaction>,
}

/// Figures of a partition at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of segments.
    pub segments: usize,
    /// Bytes of log in them.
    pub bytes: u64,
    /// Bytes of removed segments that only readers still hold.
    pub held_bytes: u64,
    /// For how long the oldest of them has been held.
    pub held_longest: Option<Duration>,
    /// The first offset.
    pub start: Offset,
    /// The end.
    pub end: Offset,
    /// Up to where readers see records.
    pub high_watermark: Offset,
    /// Up to where everything is synced.
    pub synced_end: Offset,
}

impl Partition {
    /// Does what is due at `now`: syncs what nobody waited for since `flush_interval`, syncs what was sealed and writes
    /// the checkpoints every `checkpoint_interval`, lets go of the index's memory after `idle_after` without an append,
    /// forgets producers that nothing was heard of for `producer_id_expiration`, removes what the retention does not keep,
    /// and compacts a piece (8 MiB, read and written) where compaction is due or under way.
    ///
    /// Called for a partition of a log whose topic is held for groups ([`Retention::hold_for`](crate::Retention::hold_for))
    /// it holds as if they had read nothing: what they have read the log knows, which maintains its partitions by itself.
    ///
    /// # Errors
    /// The first thing that failed; what comes before it is done. Nothing was removed then: that comes last, so that
    /// what has gone is always told. A compaction that fails is no error here.
    pub fn maintain(&self, now: Now) -> Result<Maintenance> {
        self.maintain_holding(now, None)
    }

    /// The same, for whoever knows what groups have read.
    pub(crate) fn maintain_holding(&self, now: Now, reached: Option<Reached<'_>>) -> Result<Maintenance> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let mut done = Maintenance::default();
        if inner.flush_due().is_some_and(|due| due <= now.monotonic) {
            inner.flush()?;
            done.synced = true;
        }
        let mut writer = inner.writer.lock();
        inner.check_writable()?;
        inner.retire_leftovers(&mut writer);
        if now.monotonic >= writer.last_checkpoint.after(writer.config.checkpoint_interval) {
            drop(writer);
            done.segments_synced = inner.sync_sealed()?;
            writer = inner.writer.lock();
            inner.check_writable()?;
            inner.write_checkpoints(&mut writer, now.monotonic)?;
            done.checkpointed = true;
        }
        done.producers_expired = inner.expire_producers(&mut writer, now);
        done.index_dropped = inner.let_go_if_idle(&mut writer, now.monotonic)?;
        inner.retired.lock().retain(|retired| retired.reader.strong_count() > 0);
        done.removed = inner.retain(writer, now.wall, reached)?;
        done.compacted = inner.compact_alone(now);
        Ok(done)
    }

    /// Figures of the partition.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let view = self.inner.picture.view();
        let retired = self.inner.retired.lock();
        let held = || retired.iter().filter(|retired| retired.reader.strong_count() > 0);
        let now = self.inner.clock.monotonic();
        Stats {
            segments: view.segments.len(),
            bytes: view.bytes(),
            held_bytes: held().map(|retired| retired.bytes).sum(),
            held_longest: held().map(|retired| now.since(retired.since)).max(),
            start: view.log_start,
            end: self.end(),
            high_watermark: self.high_watermark(),
            synced_end: self.synced_end(),
        }
    }
}

impl Inner {
    /// When what nobody waits for has to be synced; `None` where all is synced, or nothing waits for syncs.
    pub(super) fn flush_due(&self) -> Option<Moment> {
        let since = self.unsynced_since.load(std::sync::atomic::Ordering::Acquire);
        let since = Moment(since.checked_sub(1)?);
        Some(since.after(self.settings.flush_interval()))
    }

    /// Forgets producers, where it was not looked for them lately.
    fn expire_producers(&self, writer: &mut Writer, now: Now) -> usize {
        let expiration = writer.config.producer_id_expiration;
        if now.monotonic < writer.last_expiry.after(expiration.min(EXPIRY_INTERVAL)) {
            return 0;
        }
        writer.last_expiry = now.monotonic;
        self.producers.lock().expire(now.wall, expiration)
    }

    fn let_go_if_idle(&self, writer: &mut Writer, now: Moment) -> Result<bool> {
        let end = self.picture.end();
        if writer.idle.0 != end {
            writer.idle = (end, now);
        }
        if writer.index_dropped || now.since(writer.idle.1) < writer.config.idle_after {
            return Ok(false);
        }
        writer.active.drop_index_memory()?;
        writer.index_dropped = true;
        Ok(true)
    }
}
