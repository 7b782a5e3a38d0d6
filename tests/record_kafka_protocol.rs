//! An independent decoder, the crate kafka-protocol, reads what we write.
//!
//! Within its limits: it keeps headers in a map (so names here come once), does not wrap sequences, and reports −1,
//! 0, 1, … where a batch has no sequence.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
#![cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]

use bytes::Bytes;
use kafka_protocol::records::{self as theirs, RecordBatchDecoder};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use taffrail::{
    BatchBuilder, Compression, LeaderEpoch, Marker, Offset, Outcome, ProducerEpoch, ProducerId, Record, Sequence,
    Timestamp, marker_batch,
};

type Headers = std::collections::BTreeMap<String, Option<Vec<u8>>>;
type Owned = (Option<Vec<u8>>, Vec<u8>, Headers, i64);

fn a_record() -> impl Strategy<Value = Owned> {
    let some_bytes = || proptest::option::of(vec(any::<u8>(), 0..100));
    let headers = btree_map("[a-z]{0,8}", some_bytes(), 0..4);
    let value = prop_oneof![vec(any::<u8>(), 0..300), (0..5_000_usize).prop_map(|size| vec![b'x'; size])];
    (some_bytes(), value, headers, 1_700_000_000_000..1_700_000_100_000_i64)
}

fn decode(bytes: &[u8]) -> Vec<theirs::Record> {
    let mut bytes = Bytes::copy_from_slice(bytes);
    let set = RecordBatchDecoder::decode(&mut bytes).unwrap();
    assert!(bytes.is_empty());
    set.records
}

fn owned(record: &theirs::Record) -> Owned {
    let headers = record.headers.iter().map(|(name, value)| (name.to_string(), value.as_ref().map(|v| v.to_vec())));
    let key = record.key.as_ref().map(|key| key.to_vec());
    (key, record.value.clone().unwrap().to_vec(), headers.collect(), record.timestamp)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_of_data(
        records in vec(a_record(), 1..60),
        codec in prop::sample::select(vec![
            Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd,
        ]),
        base in 0..1_u64 << 50,
    ) {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.base_offset(Offset(base));
        builder.leader_epoch(LeaderEpoch(5));
        builder.producer(ProducerId(4242), ProducerEpoch(3), Sequence(17));
        builder.transactional(true);
        for (key, value, headers, timestamp) in &records {
            let mut record = Record::new(value).timestamp(Timestamp(*timestamp));
            if let Some(key) = key {
                record = record.key(key);
            }
            for (name, value) in headers {
                record = match value {
                    Some(value) => record.header(name, value),
                    None => record.null_header(name),
                };
            }
            builder.push(&record).unwrap();
        }
        let decoded = decode(builder.encode().unwrap());
        prop_assert_eq!(decoded.iter().map(owned).collect::<Vec<_>>(), records);
        for ((record, offset), sequence) in decoded.iter().zip(base.cast_signed()..).zip(17..) {
            prop_assert_eq!((record.offset, record.sequence), (offset, sequence));
            prop_assert_eq!((record.producer_id, record.producer_epoch), (4242, 3));
            prop_assert_eq!((record.partition_leader_epoch, record.transactional, record.control), (5, true, false));
        }
    }
}

#[test]
fn tombstones() {
    let mut builder = BatchBuilder::new();
    builder.push(&Record::tombstone("k").timestamp(Timestamp(7))).unwrap();
    let decoded = decode(builder.encode().unwrap());
    assert_eq!((decoded[0].key.as_deref(), &decoded[0].value, decoded[0].timestamp), (Some(&b"k"[..]), &None, 7));
}

#[test]
fn markers() {
    for (outcome, kind) in [(Outcome::Aborted, 0), (Outcome::Committed, 1)] {
        let bytes = marker_batch(&Marker {
            outcome,
            producer_id: ProducerId(1000),
            producer_epoch: ProducerEpoch(5),
            coordinator_epoch: 258,
            timestamp: Timestamp(1_700_000_000_000),
        });
        assert_eq!(bytes.len(), 78);
        let decoded = decode(&bytes);
        assert_eq!(decoded.len(), 1);
        assert!(decoded[0].control && decoded[0].transactional);
        assert_eq!(decoded[0].key.as_deref(), Some(&[0, 0, 0, kind][..]));
        assert_eq!(decoded[0].value.as_deref(), Some(&[0, 0, 0, 0, 1, 2][..]));
    }
}
