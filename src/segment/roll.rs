//! When a segment is closed and the next one begun (SEMANTICS 2).

use std::time::Duration;

use super::SegmentConfig;
use crate::types::{Offset, Timestamp};

/// What is about to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its size in bytes.
    pub bytes: u64,
    /// The greatest timestamp in it.
    pub max_timestamp: Option<Timestamp>,
    /// The last offset in it.
    pub last_offset: Offset,
}

/// Why a segment is closed and the next one begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollReason {
    /// It would grow beyond `segment_bytes`.
    Size,
    /// Its first batch is older than the incoming one by more than `segment_age`.
    Age,
    /// Its offset index is full.
    OffsetIndexFull,
    /// Its time index is full, but for the entry that closing it may need.
    TimeIndexFull,
    /// The incoming offsets are too far from its base for an index entry.
    OffsetRange,
}

/// What a segment is like before an append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) base: Offset,
    pub(super) size: u64,
    /// The greatest timestamp of the first batch.
    pub(super) first_timestamp: Option<Timestamp>,
    pub(super) created: Timestamp,
    pub(super) offset_entries: usize,
    pub(super) time_entries: usize,
}

/// Why the segment should be closed first, if it should.
pub(super) fn roll_reason(
    fill: &Fill,
    incoming: &Incoming,
    config: &SegmentConfig,
    segment_age: Option<Duration>,
    now: Timestamp,
) -> Option<RollReason> {
    let entries_max = |entry_bytes: u32| (config.index_bytes_max / entry_bytes) as usize;
    let distance = incoming.last_offset.0.checked_sub(fill.base.0);
    match () {
        () if fill.size > 0 && fill.size + incoming.bytes > config.segment_bytes.into() => Some(RollReason::Size),
        () if fill.size > 0 && is_too_old(fill, incoming, segment_age, now) => Some(RollReason::Age),
        () if fill.offset_entries >= entries_max(8) => Some(RollReason::OffsetIndexFull),
        () if fill.time_entries >= entries_max(12).saturating_sub(1) => Some(RollReason::TimeIndexFull),
        () if distance.is_none_or(|distance| distance > i32::MAX.unsigned_abs().into()) => {
            Some(RollReason::OffsetRange)
        }
        () => None,
    }
}

/// Age is counted in the records' time; in wall time where the first batch has none.
fn is_too_old(fill: &Fill, incoming: &Incoming, segment_age: Option<Duration>, now: Timestamp) -> bool {
    let Some(age) = segment_age else { return false };
    let waited = match fill.first_timestamp {
        Some(first) => Timestamp::to_i64(incoming.max_timestamp).saturating_sub(first.0),
        None => now.0.saturating_sub(fill.created.0),
    };
    i128::from(waited) > i128::try_from(age.as_millis()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Duration, Fill, Incoming, Offset, RollReason, SegmentConfig, Timestamp, roll_reason};

    const CONFIG: SegmentConfig = SegmentConfig {
        segment_bytes: 1000,
        index_interval_bytes: 4096,
        index_bytes_max: 80,
        decompressed_bytes_max: 1 << 20,
    };
    const FILL: Fill = Fill {
        base: Offset(10),
        size: 900,
        first_timestamp: Some(Timestamp(1000)),
        created: Timestamp(5000),
        offset_entries: 0,
        time_entries: 0,
    };
    const INCOMING: Incoming = Incoming { bytes: 100, max_timestamp: Some(Timestamp(1000)), last_offset: Offset(20) };

    fn reason(fill: Fill, incoming: Incoming, now: i64) -> Option<RollReason> {
        roll_reason(&fill, &incoming, &CONFIG, Some(Duration::from_millis(10)), Timestamp(now))
    }

    /// SEMANTICS 14.5, value for value.
    #[test]
    fn by_size_and_by_the_records_time() {
        assert_eq!(reason(FILL, Incoming { bytes: 101, ..INCOMING }, 0), Some(RollReason::Size));
        assert_eq!(reason(FILL, INCOMING, 0), None);
        let at = |timestamp| Incoming { max_timestamp: Some(Timestamp(timestamp)), ..INCOMING };
        assert_eq!(reason(FILL, at(1010), i64::MAX), None);
        assert_eq!(reason(FILL, at(1011), 0), Some(RollReason::Age));
        assert_eq!(reason(FILL, at(500), 0), None);
        let untimed = Fill { first_timestamp: None, ..FILL };
        assert_eq!(reason(untimed, at(9000), 5010), None);
        assert_eq!(reason(untimed, at(500), 5011), Some(RollReason::Age));
    }

    #[test]
    fn an_empty_segment_takes_what_fits_its_offsets() {
        let empty = Fill { size: 0, first_timestamp: None, ..FILL };
        assert_eq!(reason(empty, Incoming { bytes: 5000, ..INCOMING }, i64::MAX), None);
        let far = |last| Incoming { last_offset: Offset(last), ..INCOMING };
        assert_eq!(reason(empty, far(10 + u64::from(i32::MAX.unsigned_abs())), 0), None);
        assert_eq!(reason(empty, far(11 + u64::from(i32::MAX.unsigned_abs())), 0), Some(RollReason::OffsetRange));
        assert_eq!(reason(FILL, far(9), 0), Some(RollReason::OffsetRange));
    }

    /// 80 bytes hold 10 offset entries, and 6 time entries, one of which is kept for closing.
    #[test]
    fn by_full_indexes() {
        assert_eq!(reason(Fill { offset_entries: 9, ..FILL }, INCOMING, 0), None);
        assert_eq!(reason(Fill { offset_entries: 10, ..FILL }, INCOMING, 0), Some(RollReason::OffsetIndexFull));
        assert_eq!(reason(Fill { time_entries: 4, ..FILL }, INCOMING, 0), None);
        assert_eq!(reason(Fill { time_entries: 5, ..FILL }, INCOMING, 0), Some(RollReason::TimeIndexFull));
    }
}
