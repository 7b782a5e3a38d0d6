//! What may go from the front: a pure function from what is there and the policy to the segments to drop.
//!
//! Three passes in Kafka's order (SEMANTICS 4), each removing a prefix: below the log start, by size, by time. A
//! segment goes only if the high watermark has passed its end and nothing holds its records. If all go, the active
//! one included, an empty segment is begun first.
//!
//! Two things hold records: a [`Hold`](super::Hold), whatever it costs, and what groups have not read, up to a bound:
//!
//! ```text
//!             position ▼
//!   │ gone by policy │ stays, and all behind it  │ ...         │ end      as long as these bytes ──┐
//!                    └──────────────── bytes ──────────────────┘         are within the bound   ◄──┘
//! ```

use std::collections::BTreeSet;
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
    /// By size or age, though a group that it was held for ([`Retention::hold_for`](crate::Retention::hold_for)) has not
    /// read it: more bytes would have to be held than are.
    HoldExceeded,
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

impl Removed {
    /// Whether a group that it was held for has not read all of it.
    pub(crate) fn is_unread(&self) -> bool {
        self.reason == RemovalReason::HoldExceeded
    }
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

/// What groups have read of a partition, as whoever knows the groups tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached<'a> {
    /// Of which groups. Of others nothing is known, and what is held for them is held from the start.
    pub(crate) groups: &'a BTreeSet<String>,
    /// The least of their positions; `None` where one has none, or where it is not known.
    pub(crate) offset: Option<Offset>,
}

/// What groups have not read stays, as long as it is not too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SoftHold {
    pub(super) from: Offset,
    pub(super) bytes_max: u64,
}

impl SoftHold {
    /// What is held of a partition with these settings. A position beyond what readers see is none of this log.
    pub(super) fn of(config: &PartitionConfig, reached: Option<Reached<'_>>, high_watermark: Offset) -> Option<Self> {
        let retention = &config.retention;
        if retention.held_groups.is_empty() {
            return None;
        }
        let known = reached.filter(|reached| *reached.groups == retention.held_groups);
        let offset = known.and_then(|reached| reached.offset).filter(|offset| *offset <= high_watermark);
        Some(Self { from: offset.unwrap_or(Offset::ZERO), bytes_max: retention.held_bytes_max })
    }
}

/// Up to where records may go at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) log_start: Offset,
    pub(super) high_watermark: Offset,
    /// The first record that something needs.
    pub(super) held: Option<Offset>,
    /// The first that groups have not read.
    pub(super) soft: Option<SoftHold>,
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
    let mut left: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut excess = policy.bytes.and_then(|keep| left.checked_sub(keep));
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
        let unread = limits.soft.filter(|soft| soft.from < segment.end_offset && reason != RemovalReason::BelowStart);
        let reason = match unread {
            Some(soft) if left <= soft.bytes_max => break,
            Some(_) => RemovalReason::HoldExceeded,
            None => reason,
        };
        excess = by_size;
        left -= segment.bytes;
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
        Limits { log_start: Offset(0), high_watermark: Offset(high_watermark), held: None, soft: None }
    }

    fn by_size_holding(keep: u64, from: u64, bytes_max: u64) -> Plan {
        let limits = Limits { soft: Some(SoftHold { from: Offset(from), bytes_max }), ..limits(50) };
        let policy = Policy { bytes: Some(keep), age: None };
        plan(&segments(&[100; 5]), policy, limits, Timestamp(0), |_| panic!("time decides nothing")).expect("pure")
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

    /// Five segments of 100 bytes and ten offsets; the policy would drop four of them.
    #[test]
    fn what_groups_have_not_read_stays_up_to_a_bound() {
        use RemovalReason::{HoldExceeded, Size};
        assert_eq!(by_size_holding(100, 20, 300), [Size, Size], "read segments go, and 300 bytes are held");
        assert_eq!(by_size_holding(100, 19, 400), [Size], "a segment with one unread record stays");
        assert_eq!(by_size_holding(100, 20, 299), [Size, Size, HoldExceeded], "a byte too many");
        assert_eq!(by_size_holding(100, 0, 500), [], "the bound is met");
        assert_eq!(by_size_holding(100, 0, 250), [HoldExceeded; 3], "until what is left is within it");
        assert_eq!(by_size_holding(300, 0, 0), [HoldExceeded; 2], "never more than the policy says");
        assert_eq!(by_size_holding(100, 50, 0), [Size; 4], "all is read");
    }

    #[test]
    fn a_log_start_is_moved_whatever_groups_have_read() {
        let soft = Some(SoftHold { from: Offset(0), bytes_max: 1000 });
        let limits = Limits { log_start: Offset(20), soft, ..limits(50) };
        let plan = plan(&segments(&[100; 5]), Policy { bytes: Some(0), age: None }, limits, Timestamp(0), |_| {
            panic!("time decides nothing")
        });
        assert_eq!(plan.expect("pure"), [RemovalReason::BelowStart; 2]);
    }

    #[test]
    fn what_is_not_known_holds_everything() {
        let retention = crate::config::Retention::forever().hold_for(["a", "b"], 7);
        let config = PartitionConfig::new().retention(retention.clone());
        let of = |config, reached| SoftHold::of(config, reached, Offset(30)).map(|soft| (soft.from.0, soft.bytes_max));
        let groups = &retention.held_groups;
        let reached = |groups, offset: Option<u64>| Some(Reached { groups, offset: offset.map(Offset) });
        assert_eq!(of(&config, reached(groups, Some(20))), Some((20, 7)));
        assert_eq!(of(&config, reached(groups, Some(30))), Some((30, 7)));
        assert_eq!(of(&config, reached(groups, Some(31))), Some((0, 7)), "a position of another log");
        assert_eq!(of(&config, reached(groups, None)), Some((0, 7)));
        assert_eq!(of(&config, None), Some((0, 7)));
        let others = BTreeSet::from(["a".to_owned()]);
        assert_eq!(of(&config, reached(&others, Some(20))), Some((0, 7)), "of b nothing is known");
        assert_eq!(of(&PartitionConfig::new(), reached(&others, Some(20))), None);
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let policy = Policy { bytes: Some(0), age: None };
        let plan = plan(&segments(&[100, 0]), policy, limits(50), Timestamp(0), |_| Ok(Timestamp(0))).expect("pure");
        assert_eq!(plan.len(), 1);
    }
}
