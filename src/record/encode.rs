//! The bytes of one batch in the making: room for the header, then the records, then the seal.
//!
//! ```text
//!   plain    ┌─header─┬─records, as they are pushed──┬─slack─┐     the batch, where nothing is compressed
//!   packed   ┌─header─┬─compressed records─┐                      the batch, where something is; it belongs to the press
//! ```
//!
//! [`BatchBuilder`](super::builder::BatchBuilder) and [`Rewriter`](super::rewrite::Rewriter) say what the header
//! holds; here are the bytes.
//!
//! Invariants: `plain` is initialised beyond `used` by at least [`SLACK_BYTES`], so that the small fields of a
//! record are written as one copy of fixed size; both buffers only grow, so that zeroing them happens once.
//! What a failed push may have left behind `used` is overwritten by the next.

use std::fmt;

use crate::error::{Error, Result};
use crate::record::Rejection;
use crate::record::batch::{BATCH_BYTES_MAX, BatchHeader, CHECKED_FROM, HEADER_BYTES, LENGTH_END, crc32c};
use crate::record::compression::Compressor;
use crate::record::decode::Header;
use crate::record::varint;
use crate::types::Compression;

/// What the fields of a record before its key, its value or its headers may take: length 5, attributes 1,
/// timestamp 10, offset 5, key length 5 bytes.
const SLACK_BYTES: usize = 32;

/// The largest batch with its slack.
const LEN_MAX: usize = i32::MAX as usize + SLACK_BYTES;

/// One record, but for its headers.
#[derive(Clone, Copy)]
pub(super) struct RecordParts<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: u32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

/// The bytes that a record takes, its length field included.
pub(super) fn record_size<'h>(record: &RecordParts<'_>, headers: impl ExactSizeIterator<Item = Header<'h>>) -> u64 {
    Fields::of(record, headers).size()
}

/// The buffers of one batch.
pub(super) struct BatchEncoder {
    plain: Vec<u8>,
    /// Where the records in `plain` end, or will begin.
    used: usize,
    press: Press,
    /// Where the batch in `packed` ends, and the codec that made it, while it is of the records in `plain`.
    packed_end: Option<(Compression, usize)>,
    sealed: Option<BatchHeader>,
}

/// What compressing takes: room for the batch, and what the codec keeps. Another encoder may go on with it.
#[derive(Default)]
pub(crate) struct Press {
    packed: Vec<u8>,
    compressor: Compressor,
}

impl Press {
    /// Whether it has compressed anything, and so holds memory.
    pub(crate) fn is_used(&self) -> bool {
        !self.packed.is_empty()
    }
}

impl fmt::Debug for Press {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Press").field("packed", &self.packed.len()).finish_non_exhaustive()
    }
}

impl Default for BatchEncoder {
    fn default() -> Self {
        Self { plain: Vec::new(), used: HEADER_BYTES, press: Press::default(), packed_end: None, sealed: None }
    }
}

impl BatchEncoder {
    /// The room is zeros that nobody writes: of what the allocator has fresh from the system, pages are taken only as
    /// records reach them.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { plain: vec![0; bytes.max(HEADER_BYTES).saturating_add(SLACK_BYTES).min(LEN_MAX)], ..Self::default() }
    }

    /// Puts in another press, and answers the one that was there. What was sealed is to be sealed again.
    pub(super) fn exchange_press(&mut self, press: Press) -> Press {
        self.unpack();
        std::mem::replace(&mut self.press, press)
    }

    /// Forgets the records and keeps the buffers.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = HEADER_BYTES;
        self.unpack();
    }

    /// The bytes of header and uncompressed records.
    #[inline]
    pub(super) fn size_bytes(&self) -> usize {
        self.used
    }

    /// Writes one record behind the others. On an error nothing has changed.
    #[inline]
    pub(super) fn push<'h, H>(&mut self, record: RecordParts<'_>, headers: H) -> Result<()>
    where
        H: ExactSizeIterator<Item = Header<'h>> + Clone,
    {
        let common = if headers.len() == 0 { Common::of(&record) } else { None };
        let Some(common) = common else { return self.push_any(record, headers) };
        let room = self.plain.len().saturating_sub(self.used);
        if room < common.size + SLACK_BYTES {
            self.reserve(common.size as u64)?;
        }
        self.used += common.write(&mut self.plain[self.used..], &record);
        self.unpack();
        Ok(())
    }

    /// By value, so that the record of the usual way stays in registers.
    #[inline(never)]
    fn push_any<'h, H>(&mut self, record: RecordParts<'_>, headers: H) -> Result<()>
    where
        H: ExactSizeIterator<Item = Header<'h>> + Clone,
    {
        let fields = Fields::of(&record, headers.clone());
        self.reserve(fields.size())?;
        self.used += fields.write(&mut self.plain[self.used..], &record, headers);
        self.unpack();
        Ok(())
    }

    /// Forgets what was made of the records before they changed.
    #[inline]
    fn unpack(&mut self) {
        self.packed_end = None;
        self.sealed = None;
    }

    /// Makes room for `size` bytes and the slack behind the records.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, size: u64) -> Result<()> {
        let limit = BATCH_BYTES_MAX - self.used as u64;
        if size > limit {
            return Err(Error::RecordTooLarge { size, limit });
        }
        grow(&mut self.plain, self.used + usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Compresses the records as the attributes of `header` say, fills in its length and checksum, and writes it
    /// in front of them. On an error the encoder is as before.
    pub(super) fn seal(&mut self, header: BatchHeader) -> Result<&BatchHeader> {
        let codec = header.compression();
        let batch = if codec == Compression::None {
            grow(&mut self.plain, self.used);
            &mut self.plain[..self.used]
        } else {
            let end = self.pack(codec)?;
            &mut self.press.packed[..end]
        };
        if batch.len() as u64 > BATCH_BYTES_MAX {
            return Err(Error::RecordTooLarge { size: batch.len() as u64, limit: BATCH_BYTES_MAX });
        }
        Ok(self.sealed.insert(write_header(batch, header)))
    }

    /// The header, where it is sealed.
    #[inline]
    pub(super) fn sealed_header(&self) -> Option<&BatchHeader> {
        self.sealed.as_ref()
    }

    /// The bytes of the sealed batch, to be patched outside their checksum; empty where nothing is sealed.
    #[inline]
    pub(super) fn sealed_mut(&mut self) -> &mut [u8] {
        let Some(header) = &self.sealed else { return &mut [] };
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        let bytes = if header.compression() == Compression::None { &mut self.plain } else { &mut self.press.packed };
        bytes.get_mut(..size).unwrap_or_default()
    }

    /// Has the next seal write the header anew.
    #[inline]
    pub(super) fn unseal(&mut self) {
        self.sealed = None;
    }

    /// The bytes of the sealed batch.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        let size = self.sealed_mut().len();
        let packed = self.packed_end.is_some();
        let mut bytes = if packed { self.press.packed } else { self.plain };
        bytes.truncate(size);
        bytes
    }

    /// Compresses the records, unless they are already; returns where the batch in `packed` ends.
    fn pack(&mut self, codec: Compression) -> Result<usize> {
        if let Some((with, end)) = self.packed_end
            && with == codec
        {
            return Ok(end);
        }
        let records = self.plain.get(HEADER_BYTES..self.used).unwrap_or_default();
        let packed = self.press.compressor.compress(codec, records, &mut self.press.packed, HEADER_BYTES);
        let end = packed.map_err(|rejection: Rejection| {
            rejection.into_error(|_| Error::InvalidRecord("the codec refuses to compress it"))
        })?;
        self.packed_end = Some((codec, end));
        Ok(end)
    }
}

impl fmt::Debug for BatchEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchEncoder").field("used", &self.used).field("sealed", &self.sealed).finish_non_exhaustive()
    }
}

/// Fills in length and checksum and writes the header in front of the records.
#[inline]
fn write_header(batch: &mut [u8], mut header: BatchHeader) -> BatchHeader {
    header.length = u32::try_from(batch.len() - LENGTH_END).unwrap_or(u32::MAX);
    if let Some(front) = batch.first_chunk_mut::<HEADER_BYTES>() {
        header.write(front);
    }
    header.checksum = crc32c(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&header.checksum.to_be_bytes());
    header
}

/// Makes `buffer` hold `size` bytes and the slack, initialised, and at least twice what it held. What the largest batch
/// needs it never exceeds, so that what is inside it is inside a batch's bounds.
fn grow(buffer: &mut Vec<u8>, size: usize) {
    let len_min = size.saturating_add(SLACK_BYTES).min(LEN_MAX);
    if buffer.len() < len_min {
        buffer.resize(buffer.len().saturating_mul(2).clamp(len_min, LEN_MAX), 0);
    }
}

/// The small fields of a record without headers whose fields take at most two bytes each, which is nearly every
/// one: they are put together in registers and written by three stores.
struct Common {
    /// Attributes, timestamp, offset and the key's length; the lowest byte comes first.
    before_key: u64,
    before_key_size: usize,
    value_length: u64,
    value_length_size: usize,
    body_length: u64,
    body_length_size: usize,
    size: usize,
}

impl Common {
    #[inline]
    fn of(record: &RecordParts<'_>) -> Option<Self> {
        let (timestamp, timestamp_bits) = varint::short_of(varint::zigzag64(record.timestamp_delta))?;
        let (offset, offset_bits) = varint::short_of(u64::from(record.offset_delta) << 1)?;
        let (key_length, key_bits) = varint::short_of(length_of(record.key))?;
        let (value_length, value_bits) = varint::short_of(length_of(record.value))?;
        let (offset_at, key_at) = (8 + timestamp_bits, 8 + timestamp_bits + offset_bits);
        let before_key = timestamp << 8 | offset << offset_at | key_length << key_at;
        let before_key_size = (key_at + key_bits) as usize / 8;
        let value_length_size = value_bits as usize / 8;
        let key_and_value = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        let body_size = before_key_size + value_length_size + key_and_value + 1;
        let (body_length, body_bits) = varint::short_of(zigzag_count(body_size))?;
        let body_length_size = body_bits as usize / 8;
        let size = body_length_size + body_size;
        Some(Self { before_key, before_key_size, value_length, value_length_size, body_length, body_length_size, size })
    }

    /// Writes the record at the front of `out`, which has room for it and the slack; returns where it ends.
    #[inline]
    fn write(&self, out: &mut [u8], record: &RecordParts<'_>) -> usize {
        put_short(out, 0, self.body_length);
        let mut at = self.body_length_size;
        out[at..at + 8].copy_from_slice(&self.before_key.to_le_bytes());
        at = put_bytes(out, at + self.before_key_size, record.key);
        put_short(out, at, self.value_length);
        at = put_bytes(out, at + self.value_length_size, record.value);
        out[at] = 0; // headers
        at + 1
    }
}

/// A record's small fields, encoded, and the sizes of the rest.
struct Fields {
    /// Attributes, timestamp, offset and the key's length.
    before_key: [u8; SLACK_BYTES],
    before_key_size: usize,
    /// Zig-zagged: the value's length and the number of headers.
    value_length: u64,
    header_count: u64,
    /// What the record's length field says.
    body_size: u64,
}

impl Fields {
    fn of<'h>(record: &RecordParts<'_>, headers: impl ExactSizeIterator<Item = Header<'h>>) -> Self {
        let mut before_key = [0; SLACK_BYTES];
        let mut at = varint::put(&mut before_key, 1, varint::zigzag64(record.timestamp_delta));
        at = varint::put(&mut before_key, at, u64::from(record.offset_delta) << 1);
        at = varint::put(&mut before_key, at, length_of(record.key));
        let value_length = length_of(record.value);
        let header_count = zigzag_count(headers.len());
        let key_and_value = record.key.map_or(0, <[u8]>::len) as u64 + record.value.map_or(0, <[u8]>::len) as u64;
        let lengths = at + varint::size(value_length) + varint::size(header_count);
        let headers_size = if header_count == 0 { 0 } else { headers.map(|header| header_size(&header)).sum() };
        let body_size = lengths as u64 + key_and_value + headers_size;
        Self { before_key, before_key_size: at, value_length, header_count, body_size }
    }

    /// The bytes that the record takes, its length field included.
    #[inline]
    fn size(&self) -> u64 {
        varint::size(self.body_size << 1) as u64 + self.body_size
    }

    /// Writes the record at the front of `out`, which has room for it and the slack; returns where it ends.
    fn write<'h>(&self, out: &mut [u8], record: &RecordParts<'_>, headers: impl Iterator<Item = Header<'h>>) -> usize {
        let mut at = varint::put(out, 0, self.body_size << 1);
        out[at..at + SLACK_BYTES].copy_from_slice(&self.before_key);
        at = put_bytes(out, at + self.before_key_size, record.key);
        at = varint::put(out, at, self.value_length);
        at = put_bytes(out, at, record.value);
        at = varint::put(out, at, self.header_count);
        for header in headers {
            at = varint::put(out, at, zigzag_count(header.name().len()));
            at = put_bytes(out, at, Some(header.name()));
            at = varint::put(out, at, length_of(header.value()));
            at = put_bytes(out, at, header.value());
        }
        at
    }
}

/// Writes the two bytes of a short varint; the second is overwritten where it has but one.
#[inline]
fn put_short(out: &mut [u8], at: usize, bytes: u64) {
    let [first, second, ..] = bytes.to_le_bytes();
    out[at..at + 2].copy_from_slice(&[first, second]);
}

#[inline]
fn put_bytes(out: &mut [u8], at: usize, bytes: Option<&[u8]>) -> usize {
    let Some(bytes) = bytes else { return at };
    let end = at + bytes.len();
    out[at..end].copy_from_slice(bytes);
    end
}

/// The zig-zagged length of bytes that may be null: −1 is 1.
#[inline]
fn length_of(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(1, |bytes| zigzag_count(bytes.len()))
}

#[inline]
fn zigzag_count(count: usize) -> u64 {
    (count as u64) << 1
}

fn header_size(header: &Header<'_>) -> u64 {
    let name = header.name().len();
    let value = header.value().map_or(0, <[u8]>::len);
    let lengths = varint::size(zigzag_count(name)) + varint::size(length_of(header.value()));
    (name as u64) + (value as u64) + (lengths as u64)
}
