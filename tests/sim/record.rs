//! What was sent: every record has a serial number of its own, from which its bytes follow.

use taffrail::{RecordView, Timestamp, TopicId};

/// One record that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) producer: usize,
    pub(super) topic: TopicId,
    pub(super) partition: u32,
    pub(super) key: Option<String>,
    pub(super) bytes: usize,
    pub(super) timestamp: Timestamp,
    /// Where it was found, once it was.
    pub(super) offset: Option<u64>,
    /// `send` has refused it.
    pub(super) refused: bool,
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
    let value = record.value()?;
    let digits = value.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Sent {
    /// What is other in what was read than in what was sent.
    pub(super) fn difference(&self, serial: u64, record: &RecordView<'_>) -> Option<String> {
        if record.value() != Some(&value(serial, self.bytes)) {
            return Some(format!("its value is {:?}", record.value_str()));
        }
        if record.key() != self.key.as_deref().map(str::as_bytes) {
            return Some(format!("its key is {:?}, not {:?}", record.key(), self.key));
        }
        let headers: Vec<_> = record.headers().map(|header| (header.name_str(), header.value())).collect();
        let mark = [(Some("of"), Some(&b"sim"[..]))];
        let expected = if serial.is_multiple_of(5) { &mark[..] } else { &[] };
        (headers != expected).then(|| format!("its headers are {headers:?}"))
    }
}
