//! Records inside a batch.
//!
//! ```text
//! length          varint    bytes behind it
//! attributes      i8        unused
//! timestampDelta  varlong   against the batch's base timestamp
//! offsetDelta     varint    against the batch's base offset
//! keyLength       varint    negative: null
//! key
//! valueLength     varint    negative: null, a tombstone
//! value
//! headerCount     varint
//!   nameLength    varint    a name is never null
//!   name
//!   valueLength   varint    negative: null
//!   value
//! ```
//!
//! Two passes read this: [`check`] once, when a batch is taken in, and [`Records`] whenever somebody iterates.
//! Both are [`Parts::take`], so they cannot disagree about where a record ends; `check` walks the headers
//! and compares offsets besides.
//!
//! Invariant: bytes that `check` accepted yield exactly the batch's number of records. (Should another process
//! change a mapped file in between, iterating ends early; it does not panic.)

use std::fmt;
use std::iter::FusedIterator;

use crate::config::TimestampType;
use crate::error::Corruption;
use crate::record::batch::BatchHeader;
use crate::record::varint::{self, take_i32, take_i64};
use crate::types::{Offset, Sequence, Timestamp};

/// The records of one batch, in order. It cannot fail: the batch was checked when it was read.
#[derive(Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    remaining: u32,
    base_sequence: i32,
    base_offset: u64,
    base_timestamp: i64,
    /// All ones where the deltas count, 0 where the log's own time is every record's.
    timestamp_delta_mask: i64,
}

impl<'a> Records<'a> {
    /// `records` are the uncompressed records of the batch, and were checked.
    #[inline]
    pub(super) fn new(header: &BatchHeader, records: &'a [u8]) -> Self {
        let (base_timestamp, timestamp_delta_mask) = match header.timestamp_type() {
            TimestampType::CreateTime => (header.base_timestamp, -1),
            TimestampType::LogAppendTime => (header.max_timestamp, 0),
        };
        Self {
            rest: records,
            remaining: header.record_count,
            base_sequence: header.base_sequence().map_or(-1, |sequence| sequence.0),
            base_offset: header.base_offset,
            base_timestamp,
            timestamp_delta_mask,
        }
    }
}

impl Records<'_> {
    /// No records.
    pub(crate) const fn none() -> Self {
        let (base_offset, base_timestamp) = (0, 0);
        Self { rest: &[], remaining: 0, base_sequence: -1, base_offset, base_timestamp, timestamp_delta_mask: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordView<'a>;

    #[expect(clippy::inline_always, reason = "a call per record, and its result through memory, take as long again")]
    #[inline(always)]
    fn next(&mut self) -> Option<RecordView<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let Ok(parts) = Parts::take(&mut self.rest) else {
            self.remaining = 0;
            return None;
        };
        let delta = parts.timestamp_delta & self.timestamp_delta_mask;
        Some(RecordView {
            offset: Offset(self.base_offset.wrapping_add(u64::from(parts.offset_delta))),
            timestamp: self.base_timestamp.wrapping_add(delta),
            base_sequence: self.base_sequence,
            parts,
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.remaining as usize;
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for Records<'_> {}
impl FusedIterator for Records<'_> {}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

/// A record that was read. It borrows the bytes that the read returned.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    parts: Parts<'a>,
    offset: Offset,
    timestamp: i64,
    base_sequence: i32,
}

impl<'a> RecordView<'a> {
    /// Its position in the partition.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> Offset {
        self.offset
    }

    /// Its offset against the batch's base offset.
    #[inline]
    pub(super) const fn offset_delta(&self) -> u32 {
        self.parts.offset_delta
    }

    /// Its timestamp: the producer's, or when the log appended it.
    #[inline]
    #[must_use]
    pub const fn timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_i64(self.timestamp)
    }

    /// Its number among the records that its idempotent producer sent to the partition.
    #[inline]
    #[must_use]
    pub const fn sequence(&self) -> Option<Sequence> {
        if self.base_sequence < 0 { None } else { Some(Sequence(self.base_sequence).plus(self.parts.offset_delta)) }
    }

    /// The key. An empty one is not the same as none.
    #[inline]
    #[must_use]
    pub const fn key(&self) -> Option<&'a [u8]> {
        self.parts.key
    }

    /// The value; `None` is a tombstone.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> Option<&'a [u8]> {
        self.parts.value
    }

    /// The value as text; `None` where it is none, or not UTF-8.
    #[must_use]
    pub fn value_str(&self) -> Option<&'a str> {
        self.parts.value.and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The headers, in the order in which they were added, duplicates included.
    #[inline]
    #[must_use]
    pub const fn headers(&self) -> Headers<'a> {
        Headers { rest: self.parts.headers, remaining: self.parts.header_count }
    }
}

impl fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordView")
            .field("offset", &self.offset)
            .field("timestamp", &self.timestamp)
            .field("key", &self.key().map(<[u8]>::escape_ascii).map(|text| text.to_string()))
            .field("value", &self.value().map(<[u8]>::escape_ascii).map(|text| text.to_string()))
            .field("headers", &self.headers())
            .finish()
    }
}

/// The headers of a record.
#[derive(Clone)]
pub struct Headers<'a> {
    rest: &'a [u8],
    remaining: u32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    #[inline]
    fn next(&mut self) -> Option<Header<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        if let Ok(header) = Header::take(&mut self.rest) {
            return Some(header);
        }
        self.remaining = 0;
        None
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.remaining as usize;
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for Headers<'_> {}
impl FusedIterator for Headers<'_> {}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// One header of a record: a name and a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    #[inline]
    pub(super) const fn new(name: &'a [u8], value: Option<&'a [u8]>) -> Self {
        Self { name, value }
    }

    /// The name. Writers make it UTF-8; that is not checked.
    #[inline]
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The name as text; `None` where it is not UTF-8.
    #[must_use]
    pub const fn name_str(&self) -> Option<&'a str> {
        match std::str::from_utf8(self.name) {
            Ok(name) => Some(name),
            Err(_) => None,
        }
    }

    /// The value.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> Option<&'a [u8]> {
        self.value
    }

    fn take(rest: &mut &'a [u8]) -> Result<Self, &'static str> {
        let name = take_bytes(rest, "a header's name is cut off")?.ok_or("a header's name is null")?;
        let value = take_bytes(rest, "a header's value is cut off")?;
        Ok(Self { name, value })
    }
}

impl fmt::Debug for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.map(|value| value.escape_ascii().to_string());
        write!(f, "{}: {value:?}", self.name.escape_ascii())
    }
}

/// The fields of one record as they lie in the bytes; the headers are one piece still.
#[derive(Clone, Copy)]
struct Parts<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: &'a [u8],
    header_count: u32,
    offset_delta: u32,
    timestamp_delta: i64,
}

impl<'a> Parts<'a> {
    /// Takes one record off the front of `rest`. The error is what is wrong with it.
    #[expect(clippy::inline_always, reason = "a call per record, and its result through memory, take as long again")]
    #[inline(always)]
    fn take(rest: &mut &'a [u8]) -> Result<Self, &'static str> {
        let body = take_body(rest)?;
        match Self::of_common(body) {
            Some(parts) => Ok(parts),
            None => Self::of_any(body),
        }
    }

    /// The record whose fields take at most two bytes each, which nearly every one is; `None` for any other.
    /// The bytes of the first three fields are looked at in a register.
    #[expect(clippy::inline_always, reason = "see take")]
    #[inline(always)]
    fn of_common(body: &'a [u8]) -> Option<Self> {
        let window = u64::from_le_bytes(*body.first_chunk()?) >> 8; // without the attributes
        let (timestamp, timestamp_bits) = varint::short(window)?;
        let (offset, offset_bits) = varint::short(window >> timestamp_bits)?;
        let bits = timestamp_bits + offset_bits;
        let (key_length, key_bits) = varint::short(window >> bits)?;
        let rest = body.get(1 + (bits + key_bits) as usize / 8..)?;
        let (key, rest) = split_nullable(rest, key_length)?;
        let (value_length, value_bits) = varint::short(u64::from(u16::from_le_bytes(*rest.first_chunk()?)))?;
        let (value, rest) = split_nullable(rest.get(value_bits as usize / 8..)?, value_length)?;
        let (&header_count, headers) = rest.split_first()?;
        if offset & 1 != 0 || header_count & 0x81 != 0 || (header_count == 0 && !headers.is_empty()) {
            return None;
        }
        let timestamp_delta = i64::from(varint::unzigzag32(timestamp));
        let header_count = u32::from(header_count >> 1);
        Some(Self { key, value, headers, header_count, offset_delta: offset >> 1, timestamp_delta })
    }

    #[inline(never)]
    fn of_any(body: &'a [u8]) -> Result<Self, &'static str> {
        let [_attributes, rest @ ..] = body else { return Err("it is empty") };
        let mut rest = rest;
        let timestamp_delta = take_i64(&mut rest).ok_or("its timestamp is cut off")?;
        let offset_delta = take_i32(&mut rest).ok_or("its offset is cut off")?;
        let key = take_bytes(&mut rest, "its key is cut off")?;
        let value = take_bytes(&mut rest, "its value is cut off")?;
        let header_count = take_i32(&mut rest).ok_or("its number of headers is cut off")?;
        let offset_delta = u32::try_from(offset_delta).map_err(|_| "its offset is below the batch's")?;
        let header_count = u32::try_from(header_count).map_err(|_| "its number of headers is negative")?;
        if header_count == 0 && !rest.is_empty() {
            return Err("bytes are left behind it");
        }
        Ok(Self { key, value, headers: rest, header_count, offset_delta, timestamp_delta })
    }
}

/// Takes a record's length and the record off the front of `rest`. Where the next record begins hangs on this, so
/// it is what an iteration waits for: one load, and few steps to the length.
#[expect(clippy::inline_always, reason = "see take")]
#[inline(always)]
fn take_body<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    if let Some(front) = rest.first_chunk()
        && let Some((length, bits)) = varint::short(u64::from(u16::from_le_bytes(*front)))
        && length & 1 == 0
        && let Some((body, after)) = rest[bits as usize / 8..].split_at_checked((length >> 1) as usize)
    {
        *rest = after;
        return Ok(body);
    }
    take_bytes(rest, "it is cut off")?.ok_or("its length is negative")
}

/// Splits off as many bytes as a zig-zagged length says; a negative length is null.
#[inline]
fn split_nullable(bytes: &[u8], zigzagged: u32) -> Option<(Option<&[u8]>, &[u8])> {
    if zigzagged & 1 != 0 {
        return Some((None, bytes));
    }
    let (taken, rest) = bytes.split_at_checked((zigzagged >> 1) as usize)?;
    Some((Some(taken), rest))
}

/// Takes a length and as many bytes off the front of `rest`; a negative length is null.
#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8], cut_off: &'static str) -> Result<Option<&'a [u8]>, &'static str> {
    let length = take_i32(rest).ok_or(cut_off)?;
    let Ok(length) = usize::try_from(length) else { return Ok(None) };
    let (bytes, after) = rest.split_at_checked(length).ok_or(cut_off)?;
    *rest = after;
    Ok(Some(bytes))
}

/// Checks the framing of all records of a batch; `records` is all that it holds, uncompressed.
pub(super) fn check(header: &BatchHeader, records: &[u8]) -> Result<(), Corruption> {
    let mut rest = records;
    let mut next_delta = 0;
    for index in 0..header.record_count {
        let checked = Parts::take(&mut rest).and_then(|parts| check_parts(header, &parts, next_delta));
        match checked {
            Ok(delta) => next_delta = delta + 1,
            Err(reason) => return Err(Corruption::Record { index, reason }),
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    Err(Corruption::Record { index: header.record_count, reason: "bytes are left behind the last record" })
}

/// What the shape of a record does not say; returns its offset delta.
#[inline]
fn check_parts(header: &BatchHeader, parts: &Parts<'_>, next_delta: u32) -> Result<u32, &'static str> {
    if parts.header_count != 0 {
        check_headers(parts)?;
    }
    match parts.offset_delta {
        delta if delta < next_delta => Err("its offset does not rise"),
        delta if delta > header.last_offset_delta => Err("its offset is above the batch's"),
        delta => Ok(delta),
    }
}

fn check_headers(parts: &Parts<'_>) -> Result<(), &'static str> {
    let mut rest = parts.headers;
    for _ in 0..parts.header_count {
        Header::take(&mut rest)?;
    }
    if rest.is_empty() { Ok(()) } else { Err("bytes are left behind its headers") }
}
