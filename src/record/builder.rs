//! What is published, and the batch that it is published in.
//!
//! [`Record`] borrows; [`BatchBuilder::push`] writes it straight into the bytes of the batch, which is the only
//! copy of the way. [`BatchBuilder::encode`] compresses if that is asked for, and adds header and checksum.
//!
//! Invariants: a push that failed has changed nothing; sealing twice without a push between gives the same
//! bytes; the buffers are kept over [`BatchBuilder::clear`].

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::record::batch::{Attributes, BatchHeader};
use crate::record::decode::Header;
pub(crate) use crate::record::encode::Press;
use crate::record::encode::{BatchEncoder, RecordParts, record_size};
use crate::types::{Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// A record to be published. It borrows key, value and headers.
///
/// ```
/// use taffrail::{Record, Timestamp};
/// let order = String::from("{\"amount\":7}");
/// let record = Record::new(&order).key("customer-7").header("source", "web").timestamp(Timestamp(1_700_000_000_000));
/// let gone = Record::tombstone("customer-7");
/// # let _ = (record, gone);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Record<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    headers: Vec<Header<'a>>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) partition: Option<u32>,
}

impl<'a> Record<'a> {
    /// A record with a value, and no key.
    #[inline]
    pub fn new<V: AsRef<[u8]> + ?Sized>(value: &'a V) -> Self {
        Self { key: None, value: Some(value.as_ref()), headers: Vec::new(), timestamp: None, partition: None }
    }

    /// A record without a value: where the log keeps the latest record per key, it deletes the key.
    #[inline]
    pub fn tombstone<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self { key: Some(key.as_ref()), value: None, headers: Vec::new(), timestamp: None, partition: None }
    }

    /// A record with neither key nor value.
    #[inline]
    pub const fn null() -> Self {
        Self { key: None, value: None, headers: Vec::new(), timestamp: None, partition: None }
    }

    /// Gives it a key. An empty key is a key.
    #[inline]
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'a K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Adds a header. Order and duplicates are kept.
    pub fn header<V: AsRef<[u8]> + ?Sized>(mut self, name: &'a str, value: &'a V) -> Self {
        self.headers.push(Header::new(name.as_bytes(), Some(value.as_ref())));
        self
    }

    /// Adds a header whose value is null.
    pub fn null_header(mut self, name: &'a str) -> Self {
        self.headers.push(Header::new(name.as_bytes(), None));
        self
    }

    /// When it happened. Without it the batch's stamp is taken.
    #[inline]
    pub const fn timestamp(mut self, timestamp: Timestamp) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// To which partition of its topic it goes, from 0, whatever its key is. Only `Producer::send` asks for it: who
    /// appends to a [`Partition`](crate::Partition) has chosen already. Default: the producer's partitioner decides.
    #[inline]
    pub const fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// It takes at most this many bytes of a batch, whatever stands before it.
    #[inline]
    pub(crate) fn size_bytes_max(&self) -> u64 {
        let payload = self.key.map_or(0, <[u8]>::len) as u64 + self.value.map_or(0, <[u8]>::len) as u64;
        let headers = if self.headers.is_empty() { 0 } else { self.headers.iter().map(header_bytes_max).sum() };
        payload + headers + FIELD_BYTES_MAX
    }

    /// The size of the batch that holds nothing else, uncompressed.
    pub(crate) fn batch_size_bytes(&self) -> u64 {
        BatchBuilder::new().size_with(self, self.timestamp.unwrap_or_default())
    }
}

/// What the fields of a record besides its payload take at most.
const FIELD_BYTES_MAX: u64 = 36;

fn header_bytes_max(header: &Header<'_>) -> u64 {
    header.name().len() as u64 + header.value().map_or(0, <[u8]>::len) as u64 + 10
}

/// Encodes records into one batch, straight into its bytes, and keeps its buffers for the next.
///
/// A builder holds at most 2^31 − 1 bytes; how large a batch may be is for the partition to say that takes it.
///
/// ```
/// use taffrail::{BatchBuilder, Compression, Record};
/// let mut builder = BatchBuilder::with_capacity(16 << 10).compression(Compression::None);
/// builder.push(&Record::new("placed").key("customer-7"))?;
/// builder.push(&Record::new("paid").key("customer-7"))?;
/// assert_eq!(builder.encode()?.len(), builder.size_bytes());
/// builder.clear();
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct BatchBuilder {
    encoder: BatchEncoder,
    compression: Compression,
    batch: Pending,
    /// What the sealed header says of the append time; only of meaning while the encoder is sealed.
    append_time: Option<Timestamp>,
}

/// What belongs to the batch in the making, and goes with it.
#[derive(Debug, Default)]
struct Pending {
    count: u32,
    base_timestamp: Timestamp,
    min_timestamp: Timestamp,
    max_timestamp: Timestamp,
    first_null_key: Option<u32>,
    stamp: Option<Timestamp>,
    producer: Option<(ProducerId, ProducerEpoch, Sequence)>,
    transactional: bool,
    base_offset: Offset,
    leader_epoch: Option<LeaderEpoch>,
}

impl BatchBuilder {
    /// An empty builder. It allocates at the first push.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty builder with room for `bytes` of batch.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { encoder: BatchEncoder::with_capacity(bytes), ..Self::default() }
    }

    /// How records are compressed (Kafka: `compression.type`). The default is not at all.
    #[doc(alias = "compression.type")]
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self.encoder.unseal();
        self
    }

    /// The timestamp of records in this batch that are pushed from now on without one. Where it is not set, the
    /// system clock is read once per batch, at the first such record.
    pub fn stamp(&mut self, stamp: Timestamp) {
        self.batch.stamp = Some(stamp);
    }

    /// Makes this batch one of an idempotent producer; `first` is the sequence of its first record.
    pub fn producer(&mut self, id: ProducerId, epoch: ProducerEpoch, first: Sequence) {
        self.batch.producer = Some((id, epoch, first));
        self.encoder.unseal();
    }

    /// Makes this batch part of its producer's transaction.
    pub fn transactional(&mut self, transactional: bool) {
        self.batch.transactional = transactional;
        self.encoder.unseal();
    }

    /// The offset of the first record of this batch. The default is 0: the partition that appends it decides.
    pub fn base_offset(&mut self, offset: Offset) {
        self.batch.base_offset = offset;
        self.encoder.unseal();
    }

    /// The leader epoch of this batch. The default is none: the partition that appends it decides.
    pub fn leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.batch.leader_epoch = Some(epoch);
        self.encoder.unseal();
    }

    /// Encodes a record behind the others.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`] where the batch would pass 2^31 − 1 bytes, [`Error::InvalidTimestamp`] for one
    /// below zero. The builder is then as before.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) -> Result<()> {
        let timestamp = match record.timestamp.or(self.batch.stamp) {
            Some(timestamp) if timestamp.0 < 0 => return Err(negative(timestamp)),
            Some(timestamp) => timestamp,
            None => SystemClock.wall(),
        };
        let base = if self.batch.count == 0 { timestamp } else { self.batch.base_timestamp };
        let parts = RecordParts {
            timestamp_delta: timestamp.0 - base.0,
            offset_delta: self.batch.count,
            key: record.key,
            value: record.value,
        };
        self.encoder.push(parts, record.headers.iter().copied())?;
        self.batch.note(record, timestamp);
        Ok(())
    }

    /// How many records are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.count as usize
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.count == 0
    }

    /// The bytes that the batch would take uncompressed, header included; 61 while it is empty.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.encoder.size_bytes()
    }

    /// What [`Self::size_bytes`] says once `record` is pushed; without a timestamp of its own it gets `stamp`.
    pub(crate) fn size_with(&self, record: &Record<'_>, stamp: Timestamp) -> u64 {
        let timestamp = record.timestamp.unwrap_or(stamp);
        let base = if self.batch.count == 0 { timestamp } else { self.batch.base_timestamp };
        let parts = RecordParts {
            timestamp_delta: timestamp.0.wrapping_sub(base.0),
            offset_delta: self.batch.count,
            key: record.key,
            value: record.value,
        };
        self.encoder.size_bytes() as u64 + record_size(&parts, record.headers.iter().copied())
    }

    /// Begins the next batch. Buffers and compression are kept; records, stamp, producer, transaction, base offset
    /// and leader epoch belonged to the last one.
    pub fn clear(&mut self) {
        self.encoder.clear();
        self.batch = Pending::default();
    }

    /// Compresses with `press` from now on, which was another builder's, and drops its own.
    pub(crate) fn put_press(&mut self, press: Press) {
        drop(self.encoder.exchange_press(press));
    }

    /// Gives away what it compresses with: all memory that it holds besides the records.
    pub(crate) fn take_press(&mut self) -> Press {
        self.encoder.exchange_press(Press::default())
    }

    /// Compresses the records if that is asked for, adds header and checksum, and lends the bytes of the batch.
    /// Repeated without a push between it does nothing more.
    ///
    /// # Errors
    /// [`Error::InvalidRecord`] where the builder is empty, a sequence, producer id or epoch is negative, or the
    /// batch is transactional without a producer; [`Error::CodecDisabled`] where the codec is compiled out.
    #[inline]
    pub fn encode(&mut self) -> Result<&[u8]> {
        self.seal(None)?;
        Ok(self.encoder.sealed_mut())
    }

    /// Seals the batch. With an append time, that is the timestamp of all its records.
    #[inline]
    pub(crate) fn seal(&mut self, append_time: Option<Timestamp>) -> Result<&BatchHeader> {
        if self.append_time != append_time {
            self.encoder.unseal();
        }
        if self.encoder.sealed_header().is_none() {
            let header = self.batch.header(self.compression, append_time)?;
            self.append_time = append_time;
            return self.encoder.seal(header);
        }
        self.encoder.sealed_header().ok_or(Error::InvalidRecord("the batch is empty"))
    }

    /// The bytes of the sealed batch, to be patched outside their checksum and written; empty before it is sealed.
    #[inline]
    pub(crate) fn sealed(&mut self) -> &mut [u8] {
        self.encoder.sealed_mut()
    }

    /// Which record is the first without a key.
    #[inline]
    pub(crate) fn first_null_key(&self) -> Option<u32> {
        self.batch.first_null_key
    }

    /// The smallest and the greatest timestamp of its records.
    #[inline]
    pub(crate) fn timestamps(&self) -> Option<(Timestamp, Timestamp)> {
        (self.batch.count != 0).then_some((self.batch.min_timestamp, self.batch.max_timestamp))
    }
}

impl Pending {
    /// Counts a record that was encoded.
    #[inline]
    fn note(&mut self, record: &Record<'_>, timestamp: Timestamp) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
            self.min_timestamp = timestamp;
            self.max_timestamp = timestamp;
        } else if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
        } else if timestamp < self.min_timestamp {
            self.min_timestamp = timestamp;
        }
        if record.timestamp.is_none() {
            self.stamp = Some(timestamp);
        }
        if record.key.is_none() && self.first_null_key.is_none() {
            self.first_null_key = Some(self.count);
        }
        self.count += 1;
    }

    /// What the header says, but for length and checksum.
    #[inline]
    fn header(&self, compression: Compression, append_time: Option<Timestamp>) -> Result<BatchHeader> {
        self.check()?;
        let attributes = Attributes {
            compression,
            log_append_time: append_time.is_some(),
            transactional: self.transactional,
            ..Attributes::default()
        };
        let mut header = BatchHeader {
            base_timestamp: self.base_timestamp.0,
            max_timestamp: append_time.unwrap_or(self.max_timestamp).0,
            last_offset_delta: self.count - 1,
            record_count: self.count,
            attributes: attributes.bits(),
            ..BatchHeader::EMPTY
        };
        if let Some((id, epoch, first)) = self.producer {
            (header.producer_id, header.producer_epoch, header.base_sequence) = (id.0, epoch.0, first.0);
        }
        Ok(header.assigned(self.base_offset, self.leader_epoch))
    }

    #[inline]
    fn check(&self) -> Result<()> {
        if self.count == 0 {
            return Err(Error::InvalidRecord("it is empty"));
        }
        match self.producer {
            Some((id, epoch, first)) if id.0 < 0 || epoch.0 < 0 || first.0 < 0 => {
                Err(Error::InvalidRecord("producer id, epoch and sequence are not negative"))
            }
            None if self.transactional => Err(Error::InvalidRecord("a transaction needs a producer")),
            _ => Ok(()),
        }
    }
}

#[cold]
fn negative(timestamp: Timestamp) -> Error {
    Error::InvalidTimestamp { timestamp, reason: "timestamps are not negative" }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests {
    use super::*;

    const T: i64 = 1_700_000_000_000;

    /// Golden batch K.
    const LOG_APPEND_TIME: &str = "000000000000000a0000004300000001027f123d680008000000010000018bcfe568000000018bcfe56cd2\
        ffffffffffffffffffffffffffff00000002100000000261023100100012020262023200";

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn two_records() -> BatchBuilder {
        let mut builder = BatchBuilder::new();
        builder.base_offset(Offset(10));
        builder.leader_epoch(LeaderEpoch(1));
        builder.push(&Record::new("1").key("a").timestamp(Timestamp(T))).unwrap();
        builder.push(&Record::new("2").key("b").timestamp(Timestamp(T + 9))).unwrap();
        builder
    }

    #[test]
    fn an_append_time_gives_kafkas_bytes_and_goes_again() {
        let mut builder = two_records();
        let plain = builder.encode().unwrap().to_vec();
        assert_eq!(builder.seal(Some(Timestamp(T + 1234))).unwrap().max_timestamp(), Some(Timestamp(T + 1234)));
        assert_eq!(builder.sealed(), unhex(LOG_APPEND_TIME));
        assert_eq!(builder.encode().unwrap(), plain);
    }

    #[test]
    fn what_the_partition_asks_is_of_the_records_pushed() {
        let mut builder = BatchBuilder::new();
        assert_eq!((builder.timestamps(), builder.first_null_key()), (None, None));
        assert!(builder.sealed().is_empty());
        builder.push(&Record::new("1").key("a").timestamp(Timestamp(T))).unwrap();
        builder.push(&Record::new("2").timestamp(Timestamp(T - 5))).unwrap();
        builder.push(&Record::new("3").timestamp(Timestamp(T + 5))).unwrap();
        assert_eq!(builder.timestamps(), Some((Timestamp(T - 5), Timestamp(T + 5))));
        assert_eq!(builder.first_null_key(), Some(1));
        builder.clear();
        assert_eq!((builder.timestamps(), builder.first_null_key()), (None, None));
    }

    #[test]
    fn sizes_are_known_before_the_push() {
        let long = "v".repeat(70_000);
        let records = [
            Record::null(),
            Record::new("1").key("a").timestamp(Timestamp(T)),
            Record::new(&long).timestamp(Timestamp(T - 1_000_000)),
            Record::tombstone(&long).header("h", "v").null_header(&long).timestamp(Timestamp(T)),
        ];
        let mut builder = BatchBuilder::new();
        for record in &records {
            let mut alone = BatchBuilder::new();
            alone.push(record).unwrap();
            assert_eq!(record.batch_size_bytes(), alone.size_bytes() as u64);
            let (before, expected) = (builder.size_bytes() as u64, builder.size_with(record, Timestamp(T)));
            builder.stamp(Timestamp(T));
            builder.push(record).unwrap();
            assert_eq!(builder.size_bytes() as u64, expected);
            assert!(expected - before <= record.size_bytes_max());
        }
    }

    #[test]
    fn a_failed_push_changes_nothing() {
        let mut builder = two_records();
        let before = builder.encode().unwrap().to_vec();
        let negative = Record::new("3").timestamp(Timestamp(-1));
        assert!(matches!(builder.push(&negative), Err(Error::InvalidTimestamp { .. })));
        assert_eq!(builder.encode().unwrap(), before);
    }

    #[test]
    fn what_no_batch_can_say_is_refused() {
        assert!(matches!(BatchBuilder::new().encode(), Err(Error::InvalidRecord(_))));
        let mut builder = two_records();
        builder.transactional(true);
        assert!(matches!(builder.encode(), Err(Error::InvalidRecord(_))));
        builder.producer(ProducerId(7), ProducerEpoch(0), Sequence(-1));
        assert!(matches!(builder.encode(), Err(Error::InvalidRecord(_))));
        builder.producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
        assert!(builder.encode().is_ok());
    }

    #[test]
    fn one_stamp_serves_the_batch() {
        let mut builder = BatchBuilder::new();
        builder.stamp(Timestamp(T));
        builder.push(&Record::new("1")).unwrap();
        builder.push(&Record::new("2")).unwrap();
        assert_eq!(builder.timestamps(), Some((Timestamp(T), Timestamp(T))));
        builder.clear();
        builder.push(&Record::new("3")).unwrap();
        assert!(builder.timestamps().unwrap().0 > Timestamp(T), "the stamp went with its batch");
    }
}
