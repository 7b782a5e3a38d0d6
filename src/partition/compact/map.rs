//! Which offset each key was last seen at: what the first pass fills and the second one asks.
//!
//! ```text
//!   slot, 24 bytes   hash of the key, 128 bits │ offset + 1, 0 where the slot is free
//! ```
//!
//! Open addressing with linear probing, at most nine tenths full. The keys themselves are not kept: two keys that had
//! one hash would be taken for one, which is why the hash is keyed (SipHash-1-3, 128 bits) with numbers that nobody who
//! writes records knows. The size is fixed when the map is made: what the records to be mapped need at most, and no more
//! than the bound. Memory that no key has come to is zeros that the system has not given out yet.

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::hash::Hasher as _;

use crate::config::SLOT_BYTES;
use crate::random::Random;
use crate::types::Offset;

/// So many slots of ten are filled.
const FILLED_OF_TEN: u64 = 9;
/// Where the memory allows, so many of ten, for fewer steps to a key.
const FILLED_OF_TEN_AT_EASE: u64 = 7;

type Slot = [u64; SLOT_BYTES / 8];

/// Keys, and the last offset of each.
#[derive(Debug, Default)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    keys: u64,
    keys_max: u64,
    /// The hasher before it has seen a key.
    hasher: SipHasher13,
}

impl OffsetMap {
    /// Room for `records` keys, as far as `bytes_max` allows, and for one at least.
    pub(super) fn new(records: u64, bytes_max: usize, random: &mut Random) -> Self {
        let most = (bytes_max / SLOT_BYTES).max(2) as u64;
        let wanted = records.saturating_mul(10) / FILLED_OF_TEN_AT_EASE + 2;
        let count = most.min(wanted);
        let hasher = SipHasher13::new_with_keys(random.below(u64::MAX), random.below(u64::MAX));
        let slots = vec![[0; SLOT_BYTES / 8]; usize::try_from(count).unwrap_or(usize::MAX)];
        Self { slots, keys: 0, keys_max: (count * FILLED_OF_TEN / 10).max(1), hasher }
    }

    /// Notes that `key` was last seen at `offset`. Says whether there was room: what is there already has some.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        let is_full = self.keys >= self.keys_max;
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if slot[2] == 0 {
            if is_full {
                return false;
            }
            self.keys += 1;
        }
        *slot = [hash[0], hash[1], (offset.0 + 1).max(slot[2])];
        true
    }

    /// The last offset of `key`; `None` where it was not seen.
    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots.get(self.find(self.hash(key)))?;
        slot[2].checked_sub(1).map(Offset)
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// The bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.slots.capacity() * SLOT_BYTES) as u64
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        let mut hasher = self.hasher;
        hasher.write(key);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// The slot of this hash, or the free one where it belongs. One slot is always free, so this ends.
    fn find(&self, hash: [u64; 2]) -> usize {
        let count = self.slots.len();
        let mut at = usize::try_from((u128::from(hash[0]) * count as u128) >> 64).unwrap_or_default();
        for _ in 0..count {
            match self.slots.get(at) {
                Some(slot) if slot[2] != 0 && (slot[0], slot[1]) != (hash[0], hash[1]) => {}
                _ => return at,
            }
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(records: u64, bytes: usize) -> OffsetMap {
        OffsetMap::new(records, bytes, &mut Random::seeded(1))
    }

    #[test]
    fn the_last_offset_of_each_key_counts() {
        let mut map = map(10_000, 1 << 20);
        for offset in 0..10_000_u64 {
            assert!(map.put(format!("key-{}", offset % 777).as_bytes(), Offset(offset)));
        }
        assert!(map.put(b"key-5", Offset(3)), "an earlier one changes nothing");
        for key in 0..777_u64 {
            let last = (0..10_000).rev().find(|offset| offset % 777 == key).map(Offset);
            assert_eq!(map.get(format!("key-{key}").as_bytes()), last);
        }
        assert_eq!((map.get(b"key-777"), map.get(b""), map.keys()), (None, None, 777));
        assert!(map.put(b"", Offset::ZERO) && map.get(b"") == Some(Offset::ZERO));
    }

    #[test]
    fn a_full_map_refuses_new_keys_and_takes_known_ones() {
        let mut map = map(1_000_000, 100 * SLOT_BYTES);
        let taken = (0..1000_u64).take_while(|n| map.put(&n.to_be_bytes(), Offset(*n))).count();
        assert_eq!(taken, 90, "nine tenths");
        assert!(map.put(&3_u64.to_be_bytes(), Offset(5000)) && !map.put(b"new", Offset(5001)));
        assert_eq!(map.get(&3_u64.to_be_bytes()), Some(Offset(5000)));
        assert_eq!(map.get(b"new"), None);
        assert_eq!(map.bytes(), 2400);
    }

    #[test]
    fn the_smallest_map_holds_a_key() {
        let mut map = map(0, 0);
        assert!(map.put(b"a", Offset(1)) && !map.put(b"b", Offset(2)) && map.put(b"a", Offset(3)));
        assert_eq!((map.get(b"a"), map.get(b"b")), (Some(Offset(3)), None));
    }

    #[test]
    fn a_small_partition_takes_little_memory() {
        assert!(map(100, 128 << 20).bytes() < 4096);
        assert_eq!(map(u64::MAX, 2400).bytes(), 2400);
    }
}
