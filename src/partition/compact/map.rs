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
//!
//! A slot is hardly ever in a cache. Whoever has the keys of a batch hashes all of them, has [`OffsetMap::warm`] touch
//! their slots, which the processor does for many at a time, and looks them up then.

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

/// What is kept of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash([u64; 2]);

/// What became of a key that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It was not seen before.
    New,
    /// It was: of the two records the one at this offset is not the last any more.
    Again(Offset),
    /// There is no room.
    Full,
}

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

    /// Touches the slots where these keys begin to be looked for.
    pub(super) fn warm(&self, keys: impl Iterator<Item = Hash>) {
        let slots = keys.filter_map(|key| self.slots.get(self.first(key)));
        std::hint::black_box(slots.fold(0, |sum, slot| sum ^ slot[2]));
    }

    /// Notes that a key was last seen at `offset`. What is there already has room.
    pub(super) fn put(&mut self, key: Hash, offset: Offset) -> Put {
        let at = self.find(key);
        let is_full = self.keys >= self.keys_max;
        let Some(slot) = self.slots.get_mut(at) else { return Put::Full };
        let before = slot[2].checked_sub(1).map(Offset);
        if before.is_none() {
            if is_full {
                return Put::Full;
            }
            self.keys += 1;
        }
        *slot = [key.0[0], key.0[1], (offset.0 + 1).max(slot[2])];
        before.map_or(Put::New, |before| Put::Again(before.min(offset)))
    }

    /// The last offset of a key; `None` where it was not seen.
    pub(super) fn get(&self, key: Hash) -> Option<Offset> {
        self.slots.get(self.find(key))?[2].checked_sub(1).map(Offset)
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// The bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.slots.capacity() * SLOT_BYTES) as u64
    }

    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        let mut hasher = self.hasher;
        hasher.write(key);
        let hash = hasher.finish128();
        Hash([hash.h1, hash.h2])
    }

    /// The slot where a key is looked for first.
    fn first(&self, key: Hash) -> usize {
        usize::try_from((u128::from(key.0[0]) * self.slots.len() as u128) >> 64).unwrap_or_default()
    }

    /// The slot of this key, or the free one where it belongs. One slot is always free, so this ends.
    fn find(&self, key: Hash) -> usize {
        let count = self.slots.len();
        let mut at = self.first(key);
        for _ in 0..count {
            match self.slots.get(at) {
                Some(slot) if slot[2] != 0 && (slot[0], slot[1]) != (key.0[0], key.0[1]) => {}
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

    fn put(map: &mut OffsetMap, key: &[u8], offset: Offset) -> bool {
        map.put(map.hash(key), offset) != Put::Full
    }

    fn get(map: &OffsetMap, key: &[u8]) -> Option<Offset> {
        map.get(map.hash(key))
    }

    fn map(records: u64, bytes: usize) -> OffsetMap {
        OffsetMap::new(records, bytes, &mut Random::seeded(1))
    }

    #[test]
    fn the_last_offset_of_each_key_counts() {
        let mut map = map(10_000, 1 << 20);
        for offset in 0..10_000_u64 {
            assert!(put(&mut map, format!("key-{}", offset % 777).as_bytes(), Offset(offset)));
        }
        assert!(put(&mut map, b"key-5", Offset(3)), "an earlier one changes nothing");
        for key in 0..777_u64 {
            let last = (0..10_000).rev().find(|offset| offset % 777 == key).map(Offset);
            assert_eq!(get(&map, format!("key-{key}").as_bytes()), last);
        }
        assert_eq!((get(&map, b"key-777"), get(&map, b""), map.keys()), (None, None, 777));
        assert!(put(&mut map, b"", Offset::ZERO) && get(&map, b"") == Some(Offset::ZERO));
    }

    #[test]
    fn of_two_offsets_the_lower_one_is_said_to_be_replaced() {
        let mut map = map(10, 1 << 20);
        let key = map.hash(b"key");
        let puts = [4, 7, 5].map(|offset| map.put(key, Offset(offset)));
        assert_eq!(puts, [Put::New, Put::Again(Offset(4)), Put::Again(Offset(5))]);
        assert_eq!(map.get(key), Some(Offset(7)));
    }

    #[test]
    fn a_full_map_refuses_new_keys_and_takes_known_ones() {
        let mut map = map(1_000_000, 100 * SLOT_BYTES);
        let taken = (0..1000_u64).take_while(|n| put(&mut map, &n.to_be_bytes(), Offset(*n))).count();
        assert_eq!(taken, 90, "nine tenths");
        assert!(put(&mut map, &3_u64.to_be_bytes(), Offset(5000)) && !put(&mut map, b"new", Offset(5001)));
        assert_eq!(get(&map, &3_u64.to_be_bytes()), Some(Offset(5000)));
        assert_eq!(get(&map, b"new"), None);
        assert_eq!(map.bytes(), 2400);
    }

    #[test]
    fn the_smallest_map_holds_a_key() {
        let mut map = map(0, 0);
        assert!(put(&mut map, b"a", Offset(1)) && !put(&mut map, b"b", Offset(2)) && put(&mut map, b"a", Offset(3)));
        assert_eq!((get(&map, b"a"), get(&map, b"b")), (Some(Offset(3)), None));
    }

    #[test]
    fn a_small_partition_takes_little_memory() {
        assert!(map(100, 128 << 20).bytes() < 4096);
        assert_eq!(map(u64::MAX, 2400).bytes(), 2400);
    }
}
