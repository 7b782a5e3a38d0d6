//! Which segments become one: pure.
//!
//! Segments that follow each other are written together while their bytes, and those of each of their indexes, would fit
//! one segment, and the last offset is no further from the first base than an index can say. A segment without a byte
//! has no last offset to be too far. The cleaned ones are smaller, so one segment holds them; but one that is written
//! with another compressor may grow, and whoever writes it begins another then.

use crate::segment::SegmentConfig;
use crate::types::Offset;

/// A segment as the grouping sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) base: Offset,
    /// Where the next segment begins.
    pub(super) end: Offset,
    pub(super) bytes: u64,
    /// The bytes of its offset index, and of its time index.
    pub(super) index_bytes: [u64; 2],
}

/// How many of the first `members` make a group: one at least, where there is one.
pub(super) fn group(members: &[Member], config: &SegmentConfig) -> usize {
    let Some(first) = members.first() else { return 0 };
    let mut bytes = 0_u64;
    let mut indexes = [0_u64; 2];
    for (count, member) in members.iter().enumerate() {
        bytes += member.bytes;
        for (sum, more) in indexes.iter_mut().zip(member.index_bytes) {
            *sum += more;
        }
        let last_offset = member.end.0.saturating_sub(1);
        let is_far = member.bytes > 0 && last_offset.saturating_sub(first.base.0) > i32::MAX.unsigned_abs().into();
        let is_large =
            bytes > config.segment_bytes.into() || indexes.iter().any(|sum| *sum > config.index_bytes_max.into());
        if count > 0 && (is_far || is_large) {
            return count;
        }
    }
    members.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PartitionConfig;

    fn members(sizes: &[u64]) -> Vec<Member> {
        let one = |(index, bytes): (u64, &u64)| Member {
            base: Offset(10 * index),
            end: Offset(10 * index + 10),
            bytes: *bytes,
            index_bytes: [8, 12],
        };
        (0..).zip(sizes).map(one).collect()
    }

    fn count(members: &[Member], segment_bytes: u32, index_bytes: u32) -> usize {
        let config = PartitionConfig::new().segment_bytes(segment_bytes).index_bytes_max(index_bytes);
        group(members, &SegmentConfig::from(&config))
    }

    #[test]
    fn as_many_as_fit() {
        assert_eq!(count(&members(&[100, 100, 100, 100]), 300, 1000), 3, "exactly full");
        assert_eq!(count(&members(&[100, 100, 101, 100]), 300, 1000), 2);
        assert_eq!(count(&members(&[400, 1]), 300, 1000), 1, "one that is too large by itself is a group");
        assert_eq!(count(&members(&[0, 0, 300, 0, 0]), 300, 1000), 5);
        assert_eq!(count(&members(&[]), 300, 1000), 0);
    }

    #[test]
    fn each_index_has_to_fit() {
        assert_eq!(count(&members(&[1, 1, 1, 1]), 300, 36), 3, "three entries of 12 bytes");
        assert_eq!(count(&members(&[1, 1, 1, 1]), 300, 35), 2);
    }

    #[test]
    fn offsets_have_to_be_in_reach_of_the_first_base() {
        let far = |bytes, end| Member { base: Offset(10), end: Offset(end), bytes, index_bytes: [0, 0] };
        let with = |member| count(&[members(&[1])[0], member], 300, 1000);
        assert_eq!(with(far(1, 1 << 31)), 2, "the last offset is 2^31 - 1");
        assert_eq!(with(far(1, (1 << 31) + 1)), 1);
        assert_eq!(with(far(0, (1 << 31) + 1)), 2, "an empty segment has no last offset");
    }
}
