//! What may go from the front: a pure function from what is there and the policy to the segments to drop.
//!
//! Three passes in Kafka's order (SEMANTICS 4), each removing a prefix: below the log start, by size, by time. A
//! segment goes only if the high watermark has passed its end and nothing holds its records. If all go, the active
//! one included, an empty segment is begun first.

use std::time::Duration;

use crate::config::PartitionConfig;
use crate::error::Result;
use crate::types::{Offset, Timestamp};

/// Why a segment went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalReason {
    /// All of it lies below the log start.
    BelowStart,
    /// The log was larger than the retention allows.
    Size,
    /// Its newest record was older than the retention allows.
    Age,
    /// The host's own rule.
    Host,
}

/// A segment that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Its first offset.
    pub base_offset: Offset,
    /// The offset behind its last record.
    pub end_offset: Offset,
    /// Its bytes of log.
    pub bytes: u64,
    /// Why it went.
    pub reason: RemovalReason,
}

/// A segment as a rule about it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentSummary {
    /// Its first offset.
    pub base_offset: Offset,
    /// The offset behind its last record.
    pub end_offset: Offset,
    /// Its bytes of log.
    pub bytes: u64,
}

/// How many segments go from the front, and why each.
pub(super) type Plan = Vec<RemovalReason>;

/// The bounds of a policy, as the passes use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) bytes: Option<u64>,
    pub(super) age: Option<Duration>,
}

impl From<&PartitionConfig> for Policy {
    fn from(config: &PartitionConfig) -> Self {
        if !config.cleanup.deletes() {
            return Self::default();
        }
        Self { bytes: config.retention.bytes, age: config.retention.age }
    }
}

/// Up to where records may go at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) log_start: Offset,
    pub(super) high_watermark: Offset,
    /// The first record that something needs.
    pub(super) held: Option<Offset>,
}

impl Limits {
    fn permit(self, segment: &SegmentSummary) -> bool {
        segment.end_offset <= self.high_watermark && self.held.is_none_or(|held| segment.end_offset <= held)
    }
}

/// Decides what goes. `largest` answers a segment's largest timestamp; it is asked only where time decides.
pub(super) fn plan(
    segments: &[SegmentSummary],
    policy: Policy,
    limits: Limits,
    now: Timestamp,
    mut largest: impl FnMut(usize) -> Result<Timestamp>,
) -> Result<Plan> {
    let mut plan = Plan::new();
    let mut excess = policy.bytes.and_then(|keep| segments.iter().map(|s| s.bytes).sum::<u64>().checked_sub(keep));
    let oldest = policy.age.map(|age| now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
    for (index, segment) in segments.iter().enumerate() {
        let is_empty_active = index + 1 == segments.len() && segment.bytes == 0;
        if is_empty_active || !limits.permit(segment) {
            break;
        }
        let by_size = excess.and_then(|excess| excess.checked_sub(segment.bytes));
        let reason = if segment.end_offset <= limits.log_start {
            RemovalReason::BelowStart
        } else if by_size.is_some() {
            RemovalReason::Size
        } else if let Some(oldest) = oldest
            && largest(index)?.0 < oldest
        {
            RemovalReason::Age
        } else {
            break;
        };
        excess = by_size;
        plan.push(reason);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(sizes: &[u64]) -> Vec<SegmentSummary> {
        let at = |index: usize| Offset(10 * index as u64);
        let one = |(index, bytes): (usize, &u64)| SegmentSummary {
            base_offset: at(index),
            end_offset: at(index + 1),
            bytes: *bytes,
        };
        sizes.iter().enumerate().map(one).collect()
    }

    fn limits(high_watermark: u64) -> Limits {
        Limits { log_start: Offset(0), high_watermark: Offset(high_watermark), held: None }
    }

    fn by_size(bytes: u64, limits: Limits) -> usize {
        let policy = Policy { bytes: Some(bytes), age: None };
        plan(&segments(&[100; 5]), policy, limits, Timestamp(0), |_| panic!("time decides nothing"))
            .expect("pure")
            .len()
    }

    fn by_age(largest: &[i64], limits: Limits) -> usize {
        let policy = Policy { bytes: None, age: Some(Duration::from_millis(100)) };
        let segments = segments(&vec![100; largest.len()]);
        plan(&segments, policy, limits, Timestamp(1000), |i| Ok(Timestamp(largest[i]))).expect("pure").len()
    }

    /// SEMANTICS 14.6, value for value.
    #[test]
    fn the_worked_example() {
        assert_eq!(by_size(250, limits(50)), 2);
        assert_eq!(by_size(250, limits(15)), 1);
        assert_eq!(by_size(0, limits(50)), 5);
        assert_eq!(by_age(&[10, 999_999, 10], limits(50)), 1);
    }

    #[test]
    fn the_bounds_are_exact() {
        assert_eq!(by_age(&[899, 900, 1000], limits(30)), 1, "exactly as old as allowed stays");
        assert_eq!(by_size(500, limits(50)), 0);
        assert_eq!(by_size(400, limits(50)), 1);
        assert_eq!(by_size(401, limits(50)), 0);
    }

    #[test]
    fn both_bounds_hold_together() {
        let policy = Policy { bytes: Some(250), age: Some(Duration::from_millis(100)) };
        let old_to_the_third = |i: usize| Ok(Timestamp(if i < 3 { 10 } else { 1000 }));
        let plan = plan(&segments(&[100; 5]), policy, limits(50), Timestamp(1000), old_to_the_third).expect("pure");
        assert_eq!(plan, [RemovalReason::Size, RemovalReason::Size, RemovalReason::Age]);
    }

    #[test]
    fn what_is_held_stays() {
        let held = |offset| Limits { held: Some(Offset(offset)), ..limits(50) };
        assert_eq!(by_size(0, held(20)), 2);
        assert_eq!(by_size(0, held(19)), 1);
        assert_eq!(by_age(&[0; 5], held(0)), 0);
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let policy = Policy { bytes: Some(0), age: None };
        let plan = plan(&segments(&[100, 0]), policy, limits(50), Timestamp(0), |_| Ok(Timestamp(0))).expect("pure");
        assert_eq!(plan.len(), 1);
    }
}
