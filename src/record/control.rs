//! Control records: what the log says about itself, in batches that no consumer is given.
//!
//! ```text
//! key     version i16 (0), type i16       (longer ones and higher versions are read)
//! value   ABORT, COMMIT: version i16 (0), coordinator epoch i32; longer ones are read
//! ```
//!
//! The other types belong to Kafka's metadata log; they are named here and their values are not read.

use crate::record::batch::{Attributes, BatchHeader};
use crate::record::encode::{BatchEncoder, RecordParts};
use crate::types::{ProducerEpoch, ProducerId, Timestamp};

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlRecord {
    /// The producer's open transaction was aborted.
    Abort {
        /// The epoch of the transaction coordinator that decided.
        coordinator_epoch: i32,
    },
    /// The producer's open transaction was committed.
    Commit {
        /// The epoch of the transaction coordinator that decided.
        coordinator_epoch: i32,
    },
    /// A leader of Kafka's metadata quorum was elected.
    LeaderChange,
    /// The first record of a metadata snapshot.
    SnapshotHeader,
    /// The last record of a metadata snapshot.
    SnapshotFooter,
    /// The version of the metadata quorum's protocol.
    KraftVersion,
    /// The voters of the metadata quorum.
    KraftVoters,
    /// A type that this release does not know.
    Unknown(i16),
}

impl ControlRecord {
    /// How a transaction ended, where it says that.
    pub(crate) const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Abort { .. } => Some(Outcome::Aborted),
            Self::Commit { .. } => Some(Outcome::Committed),
            _ => None,
        }
    }

    /// Reads a control record; the error is what is wrong with it.
    pub(crate) fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Self, &'static str> {
        let key = key.ok_or("a control record has a key")?;
        let [v0, v1, t0, t1, ..] = *key else { return Err("a control record's key has 4 bytes or more") };
        if i16::from_be_bytes([v0, v1]) < 0 {
            return Err("the version of a control record's key is negative");
        }
        Ok(match i16::from_be_bytes([t0, t1]) {
            ABORT => Self::Abort { coordinator_epoch: coordinator_epoch(value)? },
            COMMIT => Self::Commit { coordinator_epoch: coordinator_epoch(value)? },
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            other => Self::Unknown(other),
        })
    }
}

fn coordinator_epoch(value: Option<&[u8]>) -> Result<i32, &'static str> {
    let value = value.ok_or("a transaction marker has a value")?;
    let [v0, v1, e0, e1, e2, e3, ..] = *value else { return Err("a transaction marker's value has 6 bytes or more") };
    if i16::from_be_bytes([v0, v1]) < 0 {
        return Err("the version of a transaction marker is negative");
    }
    Ok(i32::from_be_bytes([e0, e1, e2, e3]))
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its records count.
    Committed,
    /// Its records are skipped by readers of committed records.
    Aborted,
}

/// By which rule a partition takes a transaction marker. Its bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionVersion {
    /// The marker carries the producer's epoch, or a later one that fences it.
    V1,
    /// The marker's epoch is later than that of the transaction's records, so that nothing of this transaction can be
    /// taken for a part of the next (Kafka: `transaction.version` 2, KIP-890). One that comes again is answered without
    /// being written.
    #[default]
    V2,
}

impl TransactionVersion {
    /// The epoch of the records that a marker of this epoch ends, and of all before.
    pub(crate) const fn ends(self, marker: ProducerEpoch) -> ProducerEpoch {
        match self {
            Self::V1 => marker,
            Self::V2 => ProducerEpoch(marker.0.saturating_sub(1)),
        }
    }
}

/// What a transaction marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// How the transaction ended.
    pub outcome: Outcome,
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// That producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// The epoch of the transaction coordinator that decided.
    pub coordinator_epoch: i32,
    /// When it decided.
    pub timestamp: Timestamp,
}

/// The batch that ends a transaction in a partition: 78 bytes, at offset 0 and without a leader epoch until a
/// partition takes it.
///
/// ```
/// use taffrail::{BatchHeader, Marker, Outcome, ProducerEpoch, ProducerId, Timestamp, marker_batch};
/// let bytes = marker_batch(&Marker {
///     outcome: Outcome::Committed,
///     producer_id: ProducerId(1000),
///     producer_epoch: ProducerEpoch(5),
///     coordinator_epoch: 9,
///     timestamp: Timestamp(1_700_000_000_100),
/// });
/// assert!(BatchHeader::parse(&bytes)?.is_control());
/// # Ok::<(), taffrail::Corruption>(())
/// ```
#[must_use]
pub fn marker_batch(marker: &Marker) -> Vec<u8> {
    let kind = if marker.outcome == Outcome::Committed { COMMIT } else { ABORT };
    let [k0, k1] = kind.to_be_bytes();
    let [e0, e1, e2, e3] = marker.coordinator_epoch.to_be_bytes();
    let attributes = Attributes { transactional: true, control: true, ..Attributes::default() };
    let header = BatchHeader {
        base_timestamp: marker.timestamp.0,
        max_timestamp: marker.timestamp.0,
        producer_id: marker.producer_id.0,
        producer_epoch: marker.producer_epoch.0,
        record_count: 1,
        attributes: attributes.bits(),
        ..BatchHeader::EMPTY
    };
    let mut encoder = BatchEncoder::default();
    let key = [0, 0, k0, k1];
    let value = [0, 0, e0, e1, e2, e3];
    let parts = RecordParts { timestamp_delta: 0, offset_delta: 0, key: Some(&key), value: Some(&value) };
    let sealed = encoder.push(parts, [].into_iter()).and_then(|()| encoder.seal(header));
    debug_assert!(sealed.is_ok(), "17 bytes fit into a batch, and nothing is compressed");
    encoder.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_control_record_says_why() {
        let parse = |key: &[u8], value: &[u8]| ControlRecord::parse(Some(key), Some(value));
        assert_eq!(parse(&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 9]), Ok(ControlRecord::Commit { coordinator_epoch: 9 }));
        assert_eq!(parse(&[0, 7, 0, 0, 1], &[0, 1, 0, 0, 0, 9, 4]), Ok(ControlRecord::Abort { coordinator_epoch: 9 }));
        assert_eq!(parse(&[0, 0, 0, 77], &[]), Ok(ControlRecord::Unknown(77)));
        assert!(parse(&[0, 0, 0], &[]).is_err());
        assert!(parse(&[0xff, 0, 0, 1], &[0; 6]).is_err());
        assert!(parse(&[0, 0, 0, 1], &[0; 5]).is_err());
        assert!(ControlRecord::parse(None, None).is_err());
    }
}
