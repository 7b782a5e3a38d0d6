//! The words of the field as types: offsets, timestamps, epochs, identities.
//!
//! Invariants: a value of these types is what it says, never a sentinel. Kafka writes −1 for "none";
//! inside taffrail that is `Option::None`, converted where bytes are read and written.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::error::{Error, Result};

/// The position of a record in its partition: 0 for the first record ever, rising by one with each.
///
/// Offsets are Kafka's non-negative `i64`, so the greatest is [`Offset::MAX`]. An offset is no byte
/// position and no count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset of a new partition.
    pub const ZERO: Self = Self(0);
    /// The greatest offset that Kafka's files can hold.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The offset `count` records further on, stopping at `u64::MAX`.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Reads Kafka's `i64`; `None` where it is negative.
    #[must_use]
    pub const fn from_i64(value: i64) -> Option<Self> {
        if value < 0 { None } else { Some(Self(value.cast_unsigned())) }
    }

    /// Kafka's `i64`.
    #[must_use]
    pub const fn to_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since 1 January 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads Kafka's `i64`; −1, its word for "none", and everything below it become `None`.
    #[must_use]
    pub const fn from_i64(value: i64) -> Option<Self> {
        if value < 0 { None } else { Some(Self(value)) }
    }

    /// Kafka's `i64`: −1 for none.
    #[must_use]
    pub fn to_i64(timestamp: Option<Self>) -> i64 {
        timestamp.map_or(-1, |t| t.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often the leadership of a partition has changed; each batch carries the epoch it was appended in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    /// Reads Kafka's `i32`; `None` where it is negative (Kafka writes −1 for "unknown").
    #[must_use]
    pub const fn from_i32(value: i32) -> Option<Self> {
        if value < 0 { None } else { Some(Self(value)) }
    }
}

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of an idempotent or transactional producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

/// Which incarnation of a producer wrote a batch; a higher one fences the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

/// The running number of a producer's record in one partition, modulo 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub i32);

impl Sequence {
    /// The sequence `count` records further on: 0 follows `i32::MAX`.
    ///
    /// ```
    /// use taffrail::Sequence;
    /// assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
    /// ```
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self((self.0.cast_unsigned().wrapping_add(count) & 0x7fff_ffff).cast_signed())
    }

    /// The sequence `count` records before: `i32::MAX` precedes 0.
    pub(crate) const fn minus(self, count: u32) -> Self {
        Self((self.0.cast_unsigned().wrapping_sub(count) & 0x7fff_ffff).cast_signed())
    }
}

/// A topic's name and one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic: 1 to 249 characters out of `[a-zA-Z0-9._-]`.
    pub topic: String,
    /// The partition's number, from 0.
    pub partition: u32,
}

impl TopicPartition {
    /// Reads a directory name as Kafka has it, `orders-0`: the last dash divides.
    ///
    /// # Errors
    /// [`Error::InvalidName`] where the name is not of that form.
    ///
    /// ```
    /// use taffrail::TopicPartition;
    /// let parsed = TopicPartition::from_directory_name("my-orders-12")?;
    /// assert_eq!((parsed.topic.as_str(), parsed.partition), ("my-orders", 12));
    /// # Ok::<(), taffrail::Error>(())
    /// ```
    pub fn from_directory_name(name: &str) -> Result<Self> {
        let invalid = |reason| Error::InvalidName { name: name.to_owned(), reason };
        let (topic, number) = name
            .rsplit_once('-')
            .ok_or_else(|| invalid("a partition's directory is named TOPIC-NUMBER, as orders-0"))?;
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let partition = number.parse::<i32>().ok().filter(|_| digits).and_then(|n| u32::try_from(n).ok());
        let partition = partition
            .ok_or_else(|| invalid("after the last dash a partition's directory has its number, as orders-0"))?;
        check_topic_name(topic).map_err(invalid)?;
        Ok(Self { topic: topic.to_owned(), partition })
    }
}

impl<T: Into<String>> From<(T, u32)> for TopicPartition {
    fn from((topic, partition): (T, u32)) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl From<&TopicPartition> for TopicPartition {
    fn from(one: &TopicPartition) -> Self {
        one.clone()
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Kafka's rules for a topic's name; the error is the rule that was broken.
pub(crate) fn check_topic_name(topic: &str) -> std::result::Result<(), &'static str> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match topic {
        "" => Err("a topic's name is not empty"),
        "." | ".." => Err("a topic is not named . or .."),
        _ if topic.len() > 249 => Err("a topic's name has at most 249 characters"),
        _ if !topic.bytes().all(legal) => Err("a topic's name consists of letters, digits, dot, underscore and dash"),
        _ => Ok(()),
    }
}

/// What a producer waits for before a record counts as stored (Kafka: `acks`, with `0`, `1` and `all`).
#[doc(alias = "acks")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acks {
    /// Nothing: no promise is made.
    None,
    /// The leader has written it, so that it survives the end of the leader's process. No sync is waited for.
    Leader,
    /// Every copy in sync has stored it as the topic's [`Durability`](crate::Durability) says.
    #[default]
    All,
}

/// The identity of a topic: a topic that is deleted and created again under its name has another.
///
/// ```
/// use taffrail::TopicId;
/// let id: TopicId = "ASNFZ4mrze_-3LqYdlQyEA".parse()?;
/// assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    /// As Kafka writes it: base64url without padding, 22 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        for digit in 0..22 {
            let shift = 122 - 6 * digit;
            let value = if shift >= 0 { bits >> shift } else { bits << -shift };
            f.write_char(char::from(BASE64_URL[(value & 0x3f) as usize]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

impl FromStr for TopicId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::InvalidName { name: text.to_owned(), reason: "a topic's id is 16 bytes in base64url" };
        let digit = |byte| BASE64_URL.iter().position(|other| *other == byte);
        let mut bits = 0_u128;
        if text.len() != 22 {
            return Err(invalid());
        }
        for (at, byte) in text.bytes().enumerate() {
            let value = digit(byte).ok_or_else(invalid)? as u128;
            // The last character holds two bits; the other four are zero.
            if at < 21 {
                bits = bits << 6 | value;
            } else if value.trailing_zeros() >= 4 {
                bits = bits << 2 | value >> 4;
            } else {
                return Err(invalid());
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The identity of a node of a cluster. A log without a cluster is node 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which records a reader is given where transactions are in the log (Kafka: `isolation.level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Records of committed transactions and records outside of any, up to the first open transaction.
    /// The default here; Kafka's consumer defaults to uncommitted.
    #[default]
    Committed,
    /// Every record below the high watermark.
    Uncommitted,
}

/// How the records of a batch are compressed (Kafka: `compression.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Feature `gzip`.
    Gzip,
    /// Feature `snappy`.
    Snappy,
    /// Feature `lz4`.
    Lz4,
    /// Feature `zstd`.
    Zstd,
}

impl Compression {
    /// Kafka's name of the codec, which is that of the crate's feature; `none` where there is none.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}
