//! A run of checked batches: what a read hands out.
//!
//! Invariants: every batch in it has passed its checksum, and its records their framing; so iterating has no
//! errors. The bytes are shared, not copied; only a compressed batch has its records, decompressed once,
//! in memory of their own.

use std::fmt;
use std::iter::FusedIterator;
use std::slice;

use bytes::Bytes;

use crate::error::{Corruption, Error, Result};
use crate::record::Rejection;
use crate::record::batch::{BatchHeader, HEADER_BYTES, verify_checksum};
use crate::record::compression;
use crate::record::control::ControlRecord;
use crate::record::decode::{self, Records};
use crate::types::Compression;

/// Checked batches, in the order in which they lie in the log.
///
/// ```
/// use bytes::Bytes;
/// use taffrail::{BatchBuilder, Batches, Record};
/// let mut builder = BatchBuilder::new();
/// builder.push(&Record::new("placed").key("customer-7"))?;
/// let bytes = Bytes::copy_from_slice(builder.encode()?);
///
/// let batches = Batches::parse(bytes, 1 << 20)?;
/// for batch in &batches {
///     for record in batch.records() {
///         assert_eq!(record.value_str(), Some("placed"));
///     }
/// }
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Batches {
    bytes: Bytes,
    checked: Vec<Checked>,
    size_bytes: usize,
    decompressed_bytes: usize,
}

/// A batch that passed, and where it is.
#[derive(Clone, Debug)]
struct Checked {
    header: BatchHeader,
    start: usize,
    /// The records of a compressed batch.
    decompressed: Option<Bytes>,
}

impl Batches {
    /// Takes in bytes of which nothing is checked yet; [`push`](Self::push) adds batch after batch.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Reads bytes that are whole batches, one behind the other, and nothing else.
    ///
    /// `decompressed_bytes_max` bounds what one compressed batch may grow to.
    ///
    /// # Errors
    /// [`Error::InvalidBatch`] with the position of the first batch that is damaged or cut off,
    /// [`Error::CodecDisabled`] where one needs a codec that is compiled out, and
    /// [`Error::DecompressionBound`] where one grows beyond the bound.
    pub fn parse(bytes: Bytes, decompressed_bytes_max: usize) -> Result<Self> {
        let mut batches = Self::new(bytes);
        let mut position = 0;
        while position < batches.bytes.len() {
            let invalid = |reason| Error::InvalidBatch { position: position as u64, reason };
            let header = BatchHeader::parse(&batches.bytes[position..]).map_err(invalid)?;
            batches.push(position, header, decompressed_bytes_max).map_err(|r| r.into_error(invalid))?;
            position = batches.size_bytes;
        }
        Ok(batches)
    }

    /// Checks the checksum and the framing of the batch at `start`, whose header is `header`, decompressing it
    /// once, and adds it. On an error nothing is added.
    #[inline]
    pub(crate) fn push(
        &mut self,
        start: usize,
        header: BatchHeader,
        decompressed_bytes_max: usize,
    ) -> std::result::Result<(), Rejection> {
        let batch = slice_of(&self.bytes, start, &header)?;
        verify_checksum(batch, &header)?;
        let decompressed = check(&header, &batch[HEADER_BYTES..], decompressed_bytes_max)?;
        self.size_bytes += batch.len();
        self.decompressed_bytes += decompressed.as_ref().map_or(0, Bytes::len);
        self.checked.push(Checked { header, start, decompressed });
        Ok(())
    }

    /// How many batches there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.checked.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checked.is_empty()
    }

    /// The bytes that they take on disk.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The bytes of memory that the decompressed ones among them hold.
    pub(crate) fn decompressed_bytes(&self) -> usize {
        self.decompressed_bytes
    }

    /// The batches, in order.
    #[must_use]
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter { bytes: &self.bytes, checked: self.checked.iter() }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.checked.iter().map(|checked| &checked.header)).finish()
    }
}

impl<'a> IntoIterator for &'a Batches {
    type Item = Batch<'a>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> BatchIter<'a> {
        self.iter()
    }
}

/// The batches of a [`Batches`], in order.
#[derive(Clone, Debug)]
pub struct BatchIter<'a> {
    bytes: &'a Bytes,
    checked: slice::Iter<'a, Checked>,
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Batch<'a>;

    #[inline]
    fn next(&mut self) -> Option<Batch<'a>> {
        let checked = self.checked.next()?;
        Some(Batch { bytes: self.bytes, checked })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.checked.size_hint()
    }
}

impl DoubleEndedIterator for BatchIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let checked = self.checked.next_back()?;
        Some(Batch { bytes: self.bytes, checked })
    }
}

impl ExactSizeIterator for BatchIter<'_> {}
impl FusedIterator for BatchIter<'_> {}

/// One checked batch.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    bytes: &'a Bytes,
    checked: &'a Checked,
}

impl<'a> Batch<'a> {
    /// Its header.
    #[inline]
    #[must_use]
    pub const fn header(&self) -> &'a BatchHeader {
        &self.checked.header
    }

    /// The whole batch as it lies on disk, still compressed.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        slice_of(self.bytes, self.checked.start, &self.checked.header).unwrap_or_default()
    }

    /// Its bytes and those of the batches that follow, `size` in all.
    pub(crate) fn bytes_with_following(&self, size: usize) -> &'a [u8] {
        let start = self.checked.start;
        self.bytes.get(start..start.saturating_add(size)).unwrap_or_default()
    }

    /// The same, sharing the memory: no byte is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.bytes.slice_ref(self.bytes())
    }

    /// Its records. Those of a control batch are none that a consumer is given: see [`control`](Self::control).
    #[inline]
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        let records = match &self.checked.decompressed {
            Some(decompressed) => decompressed,
            None => self.bytes().get(HEADER_BYTES..).unwrap_or_default(),
        };
        Records::new(&self.checked.header, records)
    }

    /// What a control batch says: its first record. `None` for batches of data, and where compaction left
    /// no record.
    #[must_use]
    pub fn control(&self) -> Option<ControlRecord> {
        let first = self.records().next().filter(|_| self.header().is_control())?;
        ControlRecord::parse(first.key(), first.value()).ok()
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(self.header()).finish()
    }
}

/// The bytes of the batch at `start`.
#[inline]
fn slice_of<'a>(bytes: &'a Bytes, start: usize, header: &BatchHeader) -> std::result::Result<&'a [u8], Corruption> {
    let behind = bytes.get(start..).unwrap_or_default();
    let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
    behind.get(..size).ok_or(Corruption::Truncated { needed: header.size(), present: behind.len() as u64 })
}

/// Checks what stands behind the header; returns the decompressed records of a compressed batch.
#[inline]
fn check(
    header: &BatchHeader,
    payload: &[u8],
    decompressed_bytes_max: usize,
) -> std::result::Result<Option<Bytes>, Rejection> {
    if header.record_count == 0 {
        return Ok(None); // Kafka does not look at what may stand there either
    }
    let codec = header.compression();
    if codec == Compression::None {
        check_records(header, payload)?;
        return Ok(None);
    }
    let records = compression::decompress(codec, payload, decompressed_bytes_max)?;
    check_records(header, &records)?;
    Ok(Some(Bytes::from(records)))
}

#[inline]
fn check_records(header: &BatchHeader, records: &[u8]) -> std::result::Result<(), Corruption> {
    decode::check(header, records)?;
    if header.is_control() { check_control(header, records) } else { Ok(()) }
}

/// A control batch is read by its first record, which therefore has to be one.
fn check_control(header: &BatchHeader, records: &[u8]) -> std::result::Result<(), Corruption> {
    let Some(first) = Records::new(header, records).next() else { return Ok(()) };
    let checked = ControlRecord::parse(first.key(), first.value());
    checked.map(drop).map_err(|reason| Corruption::Record { index: 0, reason })
}
