//! Figures of a whole log.

use super::Log;
use crate::error::Result;
use crate::lag::Rate;

/// Figures of a log at one moment. What its partitions have is summed up over all topics, those that the log keeps for
/// itself included; its catalogue is not among them. What is counted since the log was opened goes on counting where a topic
/// is deleted.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LogStats {
    /// Topics of the host's.
    pub topics: usize,
    /// Topics that the log keeps for itself.
    pub internal_topics: usize,
    /// Partitions of all of them.
    pub partitions: usize,
    /// Partitions that take no writes until they are reopened.
    pub fenced: usize,
    /// Segments.
    pub segments: usize,
    /// Bytes of log.
    pub bytes: u64,
    /// Bytes of removed segments that only readers still hold.
    pub held_bytes: u64,
    /// Offsets given since the log was opened: records, and the markers that end transactions.
    pub appended_records: u64,
    /// Bytes of log appended since it was opened, counted once a second: what is compacted or removed sooner is not.
    pub appended_bytes: u64,
    /// What is appended of late, all topics of the host's together; `None` without a [`Monitor`](crate::Monitor) that has
    /// looked twice.
    pub rate_in: Option<Rate>,
    /// Syncs that records have waited for since the log was opened.
    pub syncs: u64,
    /// Groups that have members or positions; `None` where that cannot be read now.
    pub groups: Option<usize>,
    /// Files that the storage has open; `None` where it does not say.
    pub open_files: Option<usize>,
}

impl Log {
    /// Figures of the log: what each partition has is added up, and nothing is read from the disk but what groups there
    /// are, once.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn stats(&self) -> Result<LogStats> {
        let node = self.node();
        node.check_open()?;
        let totals = node.totals();
        Ok(LogStats {
            topics: totals.topics,
            internal_topics: totals.internal_topics,
            partitions: totals.partitions,
            fenced: totals.fenced,
            segments: totals.segments,
            bytes: totals.bytes,
            held_bytes: totals.held_bytes,
            appended_records: totals.counted.appended.records,
            appended_bytes: totals.counted.appended.bytes,
            rate_in: self.handle.monitors.rate_in(node.clock().monotonic()),
            syncs: totals.counted.syncs,
            groups: node.list_groups().ok().map(|groups| groups.len()),
            open_files: node.open_files(),
        })
    }
}
