//! Which partition of its topic a record goes to.
//!
//! ```text
//!   Record::partition(n)      n, always
//!   a key, Murmur2            (murmur2(key) & 0x7fffffff) % partitions: the same key, the same partition
//!   a key, Spread             from that partition on, n partitions in turn
//!   no key                    the sticky one, until about a batch went there
//! ```
//!
//! Invariant: what [`Murmur2`] answers for a key is what Kafka's producers answer, so that both may write one topic.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Chooses the partition of each record that does not name its own (Kafka: `partitioner.class`).
///
/// ```
/// use taffrail::{Choice, Murmur2, Partitioner};
///
/// /// Everything of the head office goes to partition 0, all else by its key to the others.
/// #[derive(Debug)]
/// struct HeadOffice;
///
/// impl Partitioner for HeadOffice {
///     fn partition(&self, choice: &Choice<'_>) -> u32 {
///         match choice.key {
///             Some(b"head-office") => 0,
///             _ if choice.partitions == 1 => 0,
///             _ => 1 + Murmur2.partition(&Choice { partitions: choice.partitions - 1, ..*choice }) % (choice.partitions - 1),
///         }
///     }
/// }
///
/// let choice = Choice { topic: "sales", key: Some(b"head-office"), value: None, partitions: 8, sticky: 3 };
/// assert_eq!(HeadOffice.partition(&choice), 0);
/// ```
#[doc(alias = "partitioner.class")]
pub trait Partitioner: Send + Sync + fmt::Debug + 'static {
    /// The number of the partition, from 0. `send` refuses one that the topic does not have with
    /// [`Error::UnknownPartition`](crate::Error::UnknownPartition).
    ///
    /// It is called on the sending thread, once a record; again where the sticky partition has moved on meanwhile.
    fn partition(&self, choice: &Choice<'_>) -> u32;
}

/// What a [`Partitioner`] chooses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The record's key, where it has one. An empty key is a key.
    pub key: Option<&'a [u8]>,
    /// The record's value; none in a tombstone.
    pub value: Option<&'a [u8]>,
    /// How many partitions the topic has, at least 1.
    pub partitions: u32,
    /// Where records without a key go now: to one partition until about a batch went there, then to another. What
    /// any partitioner sends there counts.
    pub sticky: u32,
}

impl Choice<'_> {
    /// Where the key belongs, or the sticky partition where there is no key.
    fn own(&self) -> u32 {
        let Some(key) = self.key else { return self.sticky };
        (murmur2(key) & 0x7fff_ffff) % self.partitions.max(1)
    }
}

/// Kafka's choice, and the default: by the hash of the key; without a key the sticky partition.
///
/// The same key goes to the same partition as long as the topic keeps its number of partitions: of the keys of a topic
/// that grows from 8 to 10 partitions four in five move, from 8 to 16 every other.
///
/// ```
/// use taffrail::{Choice, Murmur2, Partitioner};
/// let choice = Choice { topic: "orders", key: Some(b"abc"), value: None, partitions: 10, sticky: 3 };
/// assert_eq!(Murmur2.partition(&choice), 7);
/// assert_eq!(Murmur2.partition(&Choice { key: None, ..choice }), 3);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Murmur2;

impl Partitioner for Murmur2 {
    #[inline]
    fn partition(&self, choice: &Choice<'_>) -> u32 {
        choice.own()
    }
}

/// For hot keys whose order does not matter: the records of a key go in turn to several partitions, the key's own (the
/// one that [`Murmur2`] chooses) first, then those behind it. Records without a key go where [`Murmur2`] sends them.
///
/// Turns are counted per topic and key, by a hash of both into 4,096 counters: keys that share one share its turns.
///
/// ```
/// use taffrail::{Choice, Partitioner, Spread};
/// let spread = Spread::over(3).only(["abc"]);
/// let hot = Choice { topic: "orders", key: Some(b"abc"), value: None, partitions: 10, sticky: 0 };
/// assert_eq!([(); 4].map(|()| spread.partition(&hot)), [7, 8, 9, 7]);
/// let other = Choice { key: Some(b"21"), ..hot };
/// assert_eq!(spread.partition(&other), spread.partition(&other));
/// ```
#[derive(Debug)]
pub struct Spread {
    over: u32,
    /// The keys that are spread; none: all.
    only: Option<BTreeSet<Box<[u8]>>>,
    turns: Box<[AtomicU32]>,
}

const TURN_COUNTERS: u32 = 4096;

impl Spread {
    /// Spreads every key over `partitions` partitions, or over all where the topic has fewer; 0 counts as 1.
    #[must_use]
    pub fn over(partitions: u32) -> Self {
        let turns = (0..TURN_COUNTERS).map(|_| AtomicU32::new(0)).collect();
        Self { over: partitions.max(1), only: None, turns }
    }

    /// Spreads these keys alone; all others stay in their one partition. Repeated, it adds.
    #[must_use]
    pub fn only<K: AsRef<[u8]>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = keys.into_iter().map(|key| key.as_ref().into());
        self.only.get_or_insert_default().extend(keys);
        self
    }

    /// The next turn of a key.
    fn turn(&self, topic: &str, key: &[u8]) -> u32 {
        // The partition is the low end of the key's hash: the counter is chosen by the high one.
        let mixed = (murmur2(key) ^ murmur2(topic.as_bytes())).wrapping_mul(0x9e37_79b1);
        let counter = mixed >> (32 - TURN_COUNTERS.trailing_zeros());
        self.turns[counter as usize].fetch_add(1, Ordering::Relaxed)
    }
}

impl Partitioner for Spread {
    fn partition(&self, choice: &Choice<'_>) -> u32 {
        let own = choice.own();
        match choice.key {
            Some(key) if self.only.as_ref().is_none_or(|only| only.contains(key)) => {
                let over = self.over.min(choice.partitions).max(1);
                let place = u64::from(own) + u64::from(self.turn(choice.topic, key) % over);
                // It is less than the number of partitions, a `u32`.
                u32::try_from(place % u64::from(choice.partitions.max(1))).unwrap_or(own)
            }
            _ => own,
        }
    }
}

/// The hash that Kafka's producers take of a key: murmur2 of 32 bits with the seed `0x9747b28c`. Kafka's own is signed:
/// `murmur2(bytes).cast_signed()`.
///
/// ```
/// let partition = |key: &str, partitions: u32| (taffrail::murmur2(key.as_bytes()) & 0x7fff_ffff) % partitions;
/// assert_eq!(taffrail::murmur2(b"foobar").cast_signed(), -790_332_482);
/// assert_eq!(partition("abc", 10), 7);
/// ```
#[must_use]
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Kafka's lengths are of 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "no key of a record is as long")]
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !tail.is_empty() {
        let bits = tail.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        hash = (hash ^ bits).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::{Choice, Murmur2, Partitioner, Spread, murmur2};

    fn choice(key: Option<&[u8]>, partitions: u32) -> Choice<'_> {
        Choice { topic: "orders", key, value: None, partitions, sticky: 4 }
    }

    #[test]
    fn hashes_are_kafkas() {
        for (key, hash) in [
            ("", 275_646_681),
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key:?}");
        }
    }

    #[test]
    fn a_negative_hash_loses_its_sign_and_an_empty_key_is_a_key() {
        let masked = u32::try_from(i64::from(-973_932_308) & 0x7fff_ffff).expect("it has 31 bits");
        assert_eq!(Murmur2.partition(&choice(Some(b"21"), 10)), masked % 10);
        assert_eq!(Murmur2.partition(&choice(Some(b""), 10)), 1);
        assert_eq!(Murmur2.partition(&choice(None, 10)), 4);
    }

    #[test]
    fn a_spread_key_goes_round_from_its_own_partition() {
        let spread = Spread::over(3);
        assert_eq!([0; 5].map(|_| spread.partition(&choice(Some(b"abc"), 8))), [3, 4, 5, 3, 4]);
        // 7 is its own of 10; over more than there are it goes to all.
        let spread = Spread::over(99);
        let seen: Vec<_> = (0..11).map(|_| spread.partition(&choice(Some(b"abc"), 10))).collect();
        assert_eq!(seen, [7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Spread::over(0).partition(&choice(Some(b"abc"), 10)), 7);
    }

    #[test]
    fn keys_and_topics_take_turns_of_their_own() {
        let spread = Spread::over(2);
        let other_topic = Choice { topic: "refunds", ..choice(Some(b"abc"), 8) };
        let round = || {
            let keyed = [b"abc".as_slice(), b"foobar"].map(|key| spread.partition(&choice(Some(key), 8)));
            [keyed[0], keyed[1], spread.partition(&other_topic)]
        };
        let own = [3, Murmur2.partition(&choice(Some(b"foobar"), 8)), 3];
        assert_eq!([round(), round()], [own, own.map(|own| (own + 1) % 8)]);
    }

    #[test]
    fn only_the_listed_keys_are_spread() {
        let spread = Spread::over(8).only(["foobar"]).only(["21"]);
        for (key, places) in [("abc", 1), ("foobar", 8), ("21", 8)] {
            let mut seen: Vec<_> = (0..8).map(|_| spread.partition(&choice(Some(key.as_bytes()), 8))).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), places, "{key}");
        }
        assert_eq!([0; 3].map(|_| spread.partition(&choice(None, 8))), [4; 3]);
    }
}
