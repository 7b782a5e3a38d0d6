//! What was sent: every record has a serial number of its own, from which its bytes follow.

use taffrail::{Moment, Record, RecordView, Timestamp, TopicId};

/// One record that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) producer: usize,
    pub(super) topic: TopicId,
    pub(super) partition: u32,
    pub(super) key: Option<String>,
    /// About how long the value is; `None` where there is none.
    pub(super) bytes: Option<usize>,
    pub(super) timestamp: Timestamp,
    /// When it was sent.
    pub(super) at: Moment,
    /// Where it was found, once it was.
    pub(super) offset: Option<u64>,
    /// `send` has refused it.
    pub(super) refused: bool,
    /// The transaction that it belongs to, by number.
    pub(super) transaction: Option<usize>,
}

/// A record on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) topic: &'static str,
    serial: String,
    key: Option<String>,
    value: Option<Vec<u8>>,
    partition: Option<u32>,
    timestamp: Option<Timestamp>,
    is_marked: bool,
}

impl Outgoing {
    pub(super) fn new(
        topic: &'static str,
        serial: u64,
        sent: &Sent,
        partition: Option<u32>,
        timestamp: Option<i64>,
    ) -> Self {
        Self {
            topic,
            serial: serial.to_string(),
            key: sent.key.clone(),
            value: sent.bytes.map(|bytes| value(serial, bytes)),
            partition,
            timestamp: timestamp.map(Timestamp),
            is_marked: is_marked(serial),
        }
    }

    pub(super) fn record(&self) -> Record<'_> {
        let mut record = match &self.value {
            Some(value) => Record::new(value),
            None => Record::null().header(SERIAL, &self.serial),
        };
        if let Some(key) = &self.key {
            record = record.key(key);
        }
        if let Some(partition) = self.partition {
            record = record.partition(partition);
        }
        if let Some(timestamp) = self.timestamp {
            record = record.timestamp(timestamp);
        }
        if self.is_marked { record.header("of", "sim") } else { record }
    }
}

/// The header that a record without a value has its serial number in.
const SERIAL: &str = "serial";

/// Whether a record has a header.
const fn is_marked(serial: u64) -> bool {
    serial.is_multiple_of(5)
}

/// The value of the record `serial`, in about so many bytes.
pub(super) fn value(serial: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{serial}:").into_bytes();
    let mut state = serial.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    while value.len() < bytes {
        // Half of it compresses.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let byte = if value.len().is_multiple_of(2) { b'-' } else { b'a' + u8::try_from(state % 26).unwrap_or(0) };
        value.push(byte);
    }
    value
}

/// The serial number in a record that was read.
pub(super) fn serial(record: &RecordView<'_>) -> Option<u64> {
    let in_header = || record.headers().find(|header| header.name_str() == Some(SERIAL)).and_then(|one| one.value());
    let text = record.value().or_else(in_header)?;
    let digits = text.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Sent {
    /// What is other in what was read than in what was sent.
    pub(super) fn difference(&self, serial: u64, record: &RecordView<'_>) -> Option<String> {
        if record.value() != self.bytes.map(|bytes| value(serial, bytes)).as_deref() {
            return Some(format!("its value is {:?}", record.value_str()));
        }
        if record.key() != self.key.as_deref().map(str::as_bytes) {
            return Some(format!("its key is {:?}, not {:?}", record.key(), self.key));
        }
        let headers: Vec<_> = record.headers().map(|header| (header.name_str(), header.value())).collect();
        let text = serial.to_string();
        let mut expected = Vec::new();
        if self.bytes.is_none() {
            expected.push((Some(SERIAL), Some(text.as_bytes())));
        }
        if is_marked(serial) {
            expected.push((Some("of"), Some(&b"sim"[..])));
        }
        (headers != expected).then(|| format!("its headers are {headers:?}"))
    }
}
