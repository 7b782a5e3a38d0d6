//! What of a partition is to be compacted: pure functions from what is there and the policy to a range of offsets.
//!
//! ```text
//!   log start          first dirty                limit        active segment
//!       | cleaned .........| dirty, can be cleaned ...| dirty, cannot |
//!                                                     `- the base of the first segment that must stay as it is: the
//!                                                        active one; one that holds the last stable offset, or the
//!                                                        first offset that is held, or anything behind them; one whose
//!                                                        newest record is too young
//! ```
//!
//! The rules are those of SEMANTICS 5. Beyond Kafka: what a hold holds is not compacted.

use std::time::Duration;

use crate::config::{PartitionConfig, Ratio};
use crate::error::Result;
use crate::types::{Offset, Timestamp};

/// A segment as the selection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) base: Offset,
    pub(super) bytes: u64,
}

/// When the records of a segment are of. Asked only where a lag is set.
pub(super) trait Times {
    /// The greatest timestamp of segment number `index`.
    fn largest(&self, index: usize) -> Result<Timestamp>;
    /// The greatest timestamp of the first batch of segment number `index`, where it has one.
    fn first(&self, index: usize) -> Result<Option<Timestamp>>;
}

/// What the policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) ratio: Ratio,
    pub(super) lag_min: Duration,
    pub(super) lag_max: Option<Duration>,
}

impl From<&PartitionConfig> for Policy {
    fn from(config: &PartitionConfig) -> Self {
        Self { ratio: config.min_dirty_ratio, lag_min: config.min_compaction_lag, lag_max: config.max_compaction_lag }
    }
}

/// Where the log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) log_start: Offset,
    /// The end of what was cleaned, as the checkpoint has it.
    pub(super) cleaned: Option<Offset>,
    pub(super) last_stable: Offset,
    /// The first offset that something holds.
    pub(super) held: Option<Offset>,
}

/// What can be cleaned, and whether it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Where what was cleaned ends.
    pub(super) first_dirty: Offset,
    /// Up to where can be cleaned, where a segment begins. It lies before `first_dirty` where something holds, or needs,
    /// what was cleaned.
    pub(super) limit: Offset,
    pub(super) clean_bytes: u64,
    /// Of the segments from the first dirty one up to the limit. One that is dirty in part counts on both sides, as in
    /// Kafka.
    pub(super) dirty_bytes: u64,
    /// The ratio, or the age of what is dirty, says that it is time.
    pub(super) is_due: bool,
}

impl Selection {
    /// Which part of what could be cleaned is dirty, to be compared: (dirty, both).
    pub(super) fn dirtiness(&self) -> (u64, u64) {
        (self.dirty_bytes, self.dirty_bytes + self.clean_bytes)
    }
}

/// Selects. `pieces` are all segments, the active one last.
pub(super) fn select(
    pieces: &[Piece],
    state: State,
    policy: Policy,
    now: Timestamp,
    times: &dyn Times,
) -> Result<Selection> {
    let Some((active, sealed)) = pieces.split_last() else { return Ok(Selection::nothing(state.log_start)) };
    let first_dirty = state.cleaned.filter(|cleaned| (state.log_start..=active.base).contains(cleaned));
    let first_dirty = first_dirty.unwrap_or(state.log_start);
    let first = pieces.partition_point(|piece| piece.base <= first_dirty).saturating_sub(1);
    let stays = state.held.map_or(state.last_stable, |held| held.min(state.last_stable));
    let last = last_of(sealed, active.base, first, stays, policy, now, times)?;
    let limit = sealed.get(last).map_or(active.base, |piece| piece.base);
    let clean = sealed.iter().take_while(|piece| piece.base < first_dirty);
    let dirty = sealed.get(first..last).unwrap_or_default();
    let mut selection = Selection {
        first_dirty,
        limit,
        clean_bytes: clean.map(|piece| piece.bytes).sum(),
        dirty_bytes: dirty.iter().map(|piece| piece.bytes).sum(),
        is_due: false,
    };
    let (part, whole) = selection.dirtiness();
    let overdue = || is_overdue(first..last, policy, now, times);
    selection.is_due = limit > first_dirty && (policy.ratio.is_exceeded_by(part, whole) || overdue()?);
    Ok(selection)
}

impl Selection {
    const fn nothing(at: Offset) -> Self {
        Self { first_dirty: at, limit: at, clean_bytes: 0, dirty_bytes: 0, is_due: false }
    }
}

/// The number of the first sealed segment that has to stay as it is.
fn last_of(
    sealed: &[Piece],
    active: Offset,
    first: usize,
    stays: Offset,
    policy: Policy,
    now: Timestamp,
    times: &dyn Times,
) -> Result<usize> {
    let next = |index: usize| sealed.get(index + 1).map_or(active, |piece| piece.base);
    let mut last = (0..sealed.len()).find(|index| next(*index) > stays).unwrap_or(sealed.len());
    if !policy.lag_min.is_zero() {
        let oldest = before(now, policy.lag_min);
        for index in first..last {
            if times.largest(index)? > oldest {
                last = index;
                break;
            }
        }
    }
    Ok(last)
}

/// Whether anything dirty is older than it may be.
fn is_overdue(dirty: std::ops::Range<usize>, policy: Policy, now: Timestamp, times: &dyn Times) -> Result<bool> {
    let Some(lag) = policy.lag_max else { return Ok(false) };
    for index in dirty {
        if times.first(index)?.is_some_and(|first| first < before(now, lag)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn before(now: Timestamp, time: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segment `n` has its records at 1000 n to 1000 n + 999.
    struct Rising;

    impl Times for Rising {
        fn largest(&self, index: usize) -> Result<Timestamp> {
            Ok(Timestamp(1000 * i64::try_from(index).expect("small") + 999))
        }

        fn first(&self, index: usize) -> Result<Option<Timestamp>> {
            Ok(Some(Timestamp(1000 * i64::try_from(index).expect("small"))))
        }
    }

    const POLICY: Policy = Policy { ratio: Ratio::new(0.5), lag_min: Duration::ZERO, lag_max: None };

    /// Five segments of 100 bytes and 10 offsets each; the last is the active one.
    fn pieces() -> Vec<Piece> {
        (0..5).map(|index| Piece { base: Offset(10 * index), bytes: 100 }).collect()
    }

    fn state(cleaned: Option<u64>, last_stable: u64) -> State {
        State { log_start: Offset(0), cleaned: cleaned.map(Offset), last_stable: Offset(last_stable), held: None }
    }

    fn at(state: State, policy: Policy, now: i64) -> (u64, u64, u64, u64, bool) {
        let found = select(&pieces(), state, policy, Timestamp(now), &Rising).expect("pure");
        (found.first_dirty.0, found.limit.0, found.clean_bytes, found.dirty_bytes, found.is_due)
    }

    #[test]
    fn everything_but_the_active_segment_is_dirty_at_first() {
        assert_eq!(at(state(None, 50), POLICY, 0), (0, 40, 0, 400, true));
    }

    #[test]
    fn the_ratio_has_to_be_exceeded() {
        assert_eq!(at(state(Some(20), 50), POLICY, 0), (20, 40, 200, 200, false), "exactly half");
        assert_eq!(at(state(Some(10), 50), POLICY, 0), (10, 40, 100, 300, true));
        let any = Policy { ratio: Ratio::new(0.0), ..POLICY };
        assert_eq!(at(state(Some(30), 50), any, 0), (30, 40, 300, 100, true));
        assert_eq!(at(state(Some(40), 50), any, 0), (40, 40, 400, 0, false), "nothing is dirty");
    }

    #[test]
    fn the_segment_of_the_last_stable_offset_and_all_behind_stay() {
        assert_eq!(at(state(None, 39), POLICY, 0).1, 30);
        assert_eq!(at(state(None, 40), POLICY, 0).1, 40);
        assert_eq!(at(state(None, 5), POLICY, 0), (0, 0, 0, 0, false));
        let held = State { held: Some(Offset(25)), ..state(None, 50) };
        assert_eq!(at(held, POLICY, 0).1, 20);
        let trimmed = State { log_start: Offset(5), ..state(None, 7) };
        assert_eq!(at(trimmed, POLICY, 0), (5, 0, 100, 0, false), "the segment of the start holds it too");
    }

    #[test]
    fn what_is_too_young_stays_and_so_does_what_follows() {
        let policy = Policy { lag_min: Duration::from_millis(500), ..POLICY };
        assert_eq!(at(state(None, 50), policy, 2499).1, 20, "segment 1 is as old as it must be, 2 is not");
        assert_eq!(at(state(None, 50), policy, 2498).1, 10);
        assert_eq!(at(state(None, 50), policy, 0), (0, 0, 0, 0, false));
    }

    #[test]
    fn what_is_too_old_is_due_whatever_the_ratio() {
        let policy = Policy { ratio: Ratio::new(1.0), lag_max: Some(Duration::from_secs(10)), ..POLICY };
        assert!(
            !at(state(Some(20), 50), policy, 12_000).4,
            "the first batch of segment 2 is exactly as old as allowed"
        );
        assert!(at(state(Some(20), 50), policy, 12_001).4);
        assert!(!at(state(Some(40), 50), policy, 1_000_000).4, "where nothing can be cleaned nothing is due");
    }

    #[test]
    fn a_checkpoint_outside_of_the_log_says_nothing() {
        assert_eq!(at(state(Some(41), 50), POLICY, 0).0, 0);
        let trimmed = State { log_start: Offset(15), ..state(Some(12), 50) };
        assert_eq!(at(trimmed, POLICY, 0), (15, 40, 200, 300, true), "segment 1 is in part");
    }

    #[test]
    fn a_partial_cleaning_goes_on_inside_of_its_segment() {
        assert_eq!(at(state(Some(25), 50), POLICY, 0), (25, 40, 300, 200, false));
        assert_eq!(at(state(Some(35), 50), Policy { ratio: Ratio::new(0.1), ..POLICY }, 0), (35, 40, 400, 100, true));
    }
}
