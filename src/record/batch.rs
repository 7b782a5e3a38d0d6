//! The header of a batch: 61 bytes of fixed fields in front of the records.
//!
//! ```text
//!  0        8      12     16 17    21   23     27              35             43         51   53    57    61
//!  ┌────────┬──────┬──────┬─┬──────┬────┬──────┬───────────────┬──────────────┬──────────┬────┬─────┬─────┬────────
//!  │ base   │length│leader│2│ CRC  │attr│ last │ base timestamp│ max timestamp│ producer │prod│base │count│ records
//!  │ offset │      │epoch │ │      │    │delta │ or horizon    │              │ id       │ept │seq  │     │ …
//!  └────────┴──────┴──────┴─┴──────┴────┴──────┴───────────────┴──────────────┴──────────┴────┴─────┴─────┴────────
//!   i64      i32    i32    i8 u32   i16  i32    i64             i64            i64        i16  i32   i32
//! ```
//!
//! All big-endian. `length` counts the bytes behind itself, so a batch takes `12 + length`. The CRC-32C covers
//! everything from the attributes on: base offset and leader epoch lie before it, and the partition that
//! appends a batch patches them in place without touching the checksum. (For the same reason the checksum
//! says nothing about them, and whoever reads a file compares them with their neighbours.)
//!
//! Attributes: bits 0–2 the codec, 3 log append time, 4 transactional, 5 control batch, 6 delete horizon.
//!
//! Invariants: a [`BatchHeader`] that exists has passed every check that needs the header alone. Its offsets
//! fit into `i64`, it does not hold more records than offsets, and its producer fields are what a writer makes.

use std::fmt;

use crate::config::TimestampType;
use crate::error::Corruption;
use crate::types::{Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// The bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;
/// The bytes before what the length field counts.
pub(super) const LENGTH_END: usize = 12;
/// Where the bytes begin that the checksum covers.
pub(super) const CHECKED_FROM: usize = 21;
/// The smallest length field of a batch: that of a header without records.
const LENGTH_MIN: i32 = 49;
/// The smallest length field of anything that Kafka ever wrote.
const LEGACY_LENGTH_MIN: i32 = 14;
/// The largest batch, in bytes: positions in a segment are 31 bits wide.
pub(super) const BATCH_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

const CODEC_BITS: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// The parsed header of a batch.
///
/// ```
/// use taffrail::{BatchBuilder, BatchHeader, Offset, Record};
/// let mut builder = BatchBuilder::new();
/// builder.base_offset(Offset(7));
/// builder.push(&Record::new("placed"))?;
/// builder.push(&Record::new("paid"))?;
/// let header = BatchHeader::parse(builder.encode()?).expect("a builder makes valid batches");
/// assert_eq!((header.base_offset(), header.last_offset()), (Offset(7), Offset(8)));
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub(super) base_offset: u64,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    /// The length field: bytes behind it.
    pub(super) length: u32,
    pub(super) leader_epoch: i32,
    pub(super) checksum: u32,
    pub(super) last_offset_delta: u32,
    pub(super) base_sequence: i32,
    pub(super) record_count: u32,
    pub(super) attributes: i16,
    pub(super) producer_epoch: i16,
}

impl BatchHeader {
    /// The header of a batch without anything: no leader epoch, no producer, no record. Its length and
    /// checksum are filled in when it is sealed.
    pub(super) const EMPTY: Self = Self {
        base_offset: 0,
        base_timestamp: -1,
        max_timestamp: -1,
        producer_id: -1,
        length: LENGTH_MIN.cast_unsigned(),
        leader_epoch: -1,
        checksum: 0,
        last_offset_delta: 0,
        base_sequence: -1,
        record_count: 0,
        attributes: 0,
        producer_epoch: -1,
    };

    /// Reads the header at the front of `bytes`, of which 61 are needed, not the whole batch.
    ///
    /// # Errors
    /// [`Corruption::Truncated`] where there are fewer, [`Corruption::Length`] and [`Corruption::Magic`] where
    /// these fields are no batch's (0 and 1 are the legacy formats), [`Corruption::Header`] for any other field.
    /// The checksum is compared by [`verify_checksum`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Corruption> {
        check_framing(bytes)?;
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Corruption::Truncated { needed: HEADER_BYTES as u64, present: bytes.len() as u64 });
        };
        let base_offset = i64::from_be_bytes(field(header, 0));
        let last_offset_delta = i32::from_be_bytes(field(header, 23));
        let record_count = i32::from_be_bytes(field(header, 57));
        let parsed = Self {
            base_offset: base_offset.cast_unsigned(),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            length: u32::from_be_bytes(field(header, 8)),
            leader_epoch: i32::from_be_bytes(field(header, 12)),
            checksum: u32::from_be_bytes(field(header, 17)),
            last_offset_delta: last_offset_delta.cast_unsigned(),
            base_sequence: i32::from_be_bytes(field(header, 53)),
            record_count: record_count.cast_unsigned(),
            attributes: i16::from_be_bytes(field(header, 21)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
        };
        if parsed.is_plausible() { Ok(parsed) } else { Err(parsed.fault()) }
    }

    /// The offset of the first record that the batch was made with; compaction may have removed that record.
    #[inline]
    #[must_use]
    pub const fn base_offset(&self) -> Offset {
        Offset(self.base_offset)
    }

    /// The offset of the last record that the batch was made with.
    #[inline]
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        Offset(self.base_offset + self.last_offset_delta as u64)
    }

    /// The offset behind the batch, where reading goes on.
    #[inline]
    #[must_use]
    pub const fn next_offset(&self) -> Offset {
        Offset(self.base_offset + self.last_offset_delta as u64 + 1)
    }

    /// The bytes that the whole batch takes.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u64 {
        LENGTH_END as u64 + self.length as u64
    }

    /// The epoch of the leader that appended the batch.
    #[inline]
    #[must_use]
    pub const fn leader_epoch(&self) -> Option<LeaderEpoch> {
        LeaderEpoch::from_i32(self.leader_epoch)
    }

    /// The CRC-32C that the batch carries, over its bytes from 21 on.
    #[inline]
    #[must_use]
    pub const fn checksum(&self) -> u32 {
        self.checksum
    }

    /// How its records are compressed.
    #[inline]
    #[must_use]
    pub fn compression(&self) -> Compression {
        Compression::from_attribute(self.attributes & CODEC_BITS).unwrap_or_default()
    }

    /// Whose clock its timestamps are.
    #[inline]
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Whether it belongs to a transaction.
    #[inline]
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether its records are control records (transaction markers), which no consumer is given.
    #[inline]
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// What the timestamps of the records count from, in milliseconds: the first record's timestamp, the delete
    /// horizon where there is one, −1 where compaction left no record.
    #[inline]
    #[must_use]
    pub const fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    /// The greatest timestamp of its records, or when the log appended it ([`TimestampType::LogAppendTime`]).
    #[inline]
    #[must_use]
    pub const fn max_timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_i64(self.max_timestamp)
    }

    /// From when on compaction may drop its tombstones and markers; set by the first compaction that met them.
    #[must_use]
    pub const fn delete_horizon(&self) -> Option<Timestamp> {
        if self.attributes & DELETE_HORIZON == 0 { None } else { Timestamp::from_i64(self.base_timestamp) }
    }

    /// The idempotent or transactional producer that made it.
    #[inline]
    #[must_use]
    pub const fn producer_id(&self) -> Option<ProducerId> {
        if self.producer_id < 0 { None } else { Some(ProducerId(self.producer_id)) }
    }

    /// That producer's epoch.
    #[inline]
    #[must_use]
    pub const fn producer_epoch(&self) -> Option<ProducerEpoch> {
        if self.producer_id < 0 { None } else { Some(ProducerEpoch(self.producer_epoch)) }
    }

    /// The sequence of its first record. Markers have a producer and no sequence.
    #[inline]
    #[must_use]
    pub const fn base_sequence(&self) -> Option<Sequence> {
        if self.producer_id < 0 || self.base_sequence < 0 { None } else { Some(Sequence(self.base_sequence)) }
    }

    /// The sequence of its last record: 0 follows `i32::MAX`.
    #[inline]
    #[must_use]
    pub const fn last_sequence(&self) -> Option<Sequence> {
        match self.base_sequence() {
            Some(first) => Some(first.plus(self.last_offset_delta)),
            None => None,
        }
    }

    /// How many records are in it; compaction may have left fewer than it has offsets, even none.
    #[inline]
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// The header as it is once [`set_base_offset`] and [`set_leader_epoch`] were applied to its bytes.
    #[inline]
    pub(crate) const fn assigned(mut self, base_offset: Offset, leader_epoch: Option<LeaderEpoch>) -> Self {
        self.base_offset = base_offset.0;
        self.leader_epoch = match leader_epoch {
            Some(epoch) => epoch.0,
            None => -1,
        };
        self
    }

    /// Has the base timestamp be the delete horizon.
    pub(super) const fn set_delete_horizon(&mut self, horizon: Timestamp) {
        self.attributes |= DELETE_HORIZON;
        self.base_timestamp = horizon.0;
    }

    /// The header of a batch that compaction left without records: no codec, no horizon.
    pub(super) const fn set_empty(&mut self) {
        self.attributes &= !(CODEC_BITS | DELETE_HORIZON);
        self.base_timestamp = -1;
        self.record_count = 0;
    }

    /// Every check on single fields and on pairs of them.
    #[inline]
    const fn is_plausible(&self) -> bool {
        let Some(last_offset) = self.base_offset.checked_add(self.last_offset_delta as u64) else { return false };
        let offsets = self.last_offset_delta <= i32::MAX.cast_unsigned() && last_offset <= Offset::MAX.0;
        let records = self.record_count as u64 <= self.last_offset_delta as u64 + 1;
        let codec = self.attributes & CODEC_BITS <= 4;
        offsets && records && codec && self.producer_is_plausible()
    }

    #[inline]
    const fn producer_is_plausible(&self) -> bool {
        match self.producer_id {
            -1 => !self.is_transactional(),
            ..0 => false,
            _ => self.producer_epoch >= 0 && self.base_sequence >= -1,
        }
    }

    /// Which field is at fault in a header that is not plausible.
    #[cold]
    fn fault(&self) -> Corruption {
        let last_delta = i64::from(self.last_offset_delta.cast_signed());
        let count = i64::from(self.record_count.cast_signed());
        let base = self.base_offset.cast_signed();
        let (field, value) = match () {
            () if base < 0 => ("baseOffset", base),
            () if last_delta < 0 || base.checked_add(last_delta).is_none() => ("lastOffsetDelta", last_delta),
            () if !(0..=last_delta + 1).contains(&count) => ("recordCount", count),
            () if self.attributes & CODEC_BITS > 4 => ("attributes", i64::from(self.attributes)),
            () if self.producer_id < 0 => ("producerId", self.producer_id),
            () if self.producer_epoch < 0 => ("producerEpoch", i64::from(self.producer_epoch)),
            () => ("baseSequence", i64::from(self.base_sequence)),
        };
        Corruption::Header { field, value }
    }

    /// The 61 bytes.
    #[inline]
    pub(super) fn write(&self, out: &mut [u8; HEADER_BYTES]) {
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        out[16] = 2;
        out[17..21].copy_from_slice(&self.checksum.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }
}

impl fmt::Debug for BatchHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchHeader")
            .field("offsets", &(self.base_offset..=self.last_offset().0))
            .field("record_count", &self.record_count)
            .field("size", &self.size())
            .field("leader_epoch", &self.leader_epoch)
            .field("checksum", &format_args!("{:08x}", self.checksum))
            .field("attributes", &format_args!("{:#b}", self.attributes))
            .field("base_timestamp", &self.base_timestamp)
            .field("max_timestamp", &self.max_timestamp)
            .field("producer_id", &self.producer_id)
            .field("producer_epoch", &self.producer_epoch)
            .field("base_sequence", &self.base_sequence)
            .finish_non_exhaustive()
    }
}

/// What is said of the records in a header, in the form of the attributes field.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the bits of one field")]
pub(super) struct Attributes {
    pub(super) compression: Compression,
    pub(super) log_append_time: bool,
    pub(super) transactional: bool,
    pub(super) control: bool,
    pub(super) delete_horizon: bool,
}

impl Attributes {
    #[inline]
    pub(super) const fn bits(self) -> i16 {
        self.compression.attribute()
            | flag(self.log_append_time, LOG_APPEND_TIME)
            | flag(self.transactional, TRANSACTIONAL)
            | flag(self.control, CONTROL)
            | flag(self.delete_horizon, DELETE_HORIZON)
    }
}

#[inline]
const fn flag(set: bool, bit: i16) -> i16 {
    if set { bit } else { 0 }
}

/// Length and magic, which decide whether the rest can be a header of this format at all.
#[inline]
fn check_framing(bytes: &[u8]) -> Result<(), Corruption> {
    let Some(front) = bytes.first_chunk::<17>() else {
        return Err(Corruption::Truncated { needed: HEADER_BYTES as u64, present: bytes.len() as u64 });
    };
    let length = i32::from_be_bytes([front[8], front[9], front[10], front[11]]);
    let magic = front[16].cast_signed();
    if length < LEGACY_LENGTH_MIN {
        return Err(Corruption::Length(length));
    }
    if magic != 2 {
        return Err(Corruption::Magic(magic));
    }
    if length < LENGTH_MIN { Err(Corruption::Length(length)) } else { Ok(()) }
}

#[inline]
fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

/// Compares the checksum of `batch`, which is exactly the bytes of the batch that `header` was read from.
///
/// # Errors
/// [`Corruption::Checksum`] where it differs, [`Corruption::Truncated`] where `batch` is not
/// [`BatchHeader::size`] bytes long.
#[inline]
pub fn verify_checksum(batch: &[u8], header: &BatchHeader) -> Result<(), Corruption> {
    let checked = batch.get(CHECKED_FROM..).filter(|_| batch.len() as u64 == header.size());
    let Some(checked) = checked else {
        return Err(Corruption::Truncated { needed: header.size(), present: batch.len() as u64 });
    };
    let computed = crc32c(checked);
    if computed == header.checksum { Ok(()) } else { Err(Corruption::Checksum { stored: header.checksum, computed }) }
}

/// The CRC-32C (Castagnoli) of `bytes`.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Writes the base offset into the bytes of a batch. It lies outside the checksum.
///
/// # Panics
/// Where `batch` is shorter than a header.
#[inline]
pub fn set_base_offset(batch: &mut [u8], offset: Offset) {
    batch[..8].copy_from_slice(&offset.0.to_be_bytes());
}

/// Writes the leader epoch into the bytes of a batch. It lies outside the checksum.
///
/// # Panics
/// Where `batch` is shorter than a header.
#[inline]
pub fn set_leader_epoch(batch: &mut [u8], epoch: LeaderEpoch) {
    batch[LENGTH_END..16].copy_from_slice(&epoch.0.to_be_bytes());
}
