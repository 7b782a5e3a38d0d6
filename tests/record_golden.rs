//! The golden batches: bytes made and checked by Kafka's own classes are read as what they are, and written again.
//!
//! `tests/data/batches.json` says of each whether Kafka's Java client makes the same bytes. What only compaction or a
//! coordinator makes (L, M) or only a partition (K) is written again by the unit tests beside the code for it.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

use std::collections::BTreeMap;

use bytes::Bytes;
use taffrail::{
    Batch, BatchBuilder, BatchHeader, Batches, Compression, ControlRecord, LeaderEpoch, Marker, Offset, Outcome,
    ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TimestampType, marker_batch, set_base_offset,
    set_leader_epoch, verify_checksum,
};

const T: i64 = 1_700_000_000_000;
const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

struct Vector {
    bytes: Vec<u8>,
    alternative: Option<Vec<u8>>,
    is_kafkas: bool,
}

fn vectors() -> BTreeMap<String, Vector> {
    let json: serde_json::Value = serde_json::from_str(include_str!("data/batches.json")).unwrap();
    let entries = json.as_object().unwrap().iter();
    entries
        .map(|(name, entry)| {
            let hex = |field: &str| entry.get(field).and_then(|value| value.as_str()).map(unhex);
            let bytes = hex("batch_hex").unwrap();
            assert_eq!(entry["length_bytes"].as_u64().unwrap(), bytes.len() as u64, "{name}");
            let is_kafkas = entry["byte_identical_to_java_client"].as_bool().unwrap();
            (name.clone(), Vector { bytes, alternative: hex("alternative_batch_hex_java"), is_kafkas })
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn vector(letter: char) -> Vector {
    let mut found = vectors().into_iter().filter(|(name, _)| name.starts_with(letter));
    found.next().unwrap_or_else(|| panic!("there is no vector {letter}")).1
}

fn parse(bytes: &[u8]) -> Batches {
    Batches::parse(Bytes::copy_from_slice(bytes), DECOMPRESSED_BYTES_MAX).unwrap()
}

/// Everything that can be read of a record, owned.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    offset: u64,
    timestamp: i64,
    sequence: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn read(batch: Batch<'_>) -> Vec<Read> {
    let records = batch.records();
    assert_eq!(records.len(), batch.header().record_count() as usize);
    records
        .map(|record| Read {
            offset: record.offset().0,
            timestamp: Timestamp::to_i64(record.timestamp()),
            sequence: record.sequence().map(|sequence| sequence.0),
            key: record.key().map(<[u8]>::to_vec),
            value: record.value().map(<[u8]>::to_vec),
            headers: record.headers().map(|h| (h.name().to_vec(), h.value().map(<[u8]>::to_vec))).collect(),
        })
        .collect()
}

fn expect(offset: u64, timestamp: i64, key: Option<&str>, value: Option<&str>) -> Read {
    let owned = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    Read { offset, timestamp, sequence: None, key: owned(key), value: owned(value), headers: Vec::new() }
}

fn one(batches: &Batches) -> Batch<'_> {
    assert_eq!(batches.len(), 1);
    batches.iter().next().unwrap()
}

#[test]
fn every_vector_passes_and_is_lent_as_it_is() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 13);
    for (name, vector) in &vectors {
        for bytes in [Some(&vector.bytes), vector.alternative.as_ref()].into_iter().flatten() {
            let header = BatchHeader::parse(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(header.size(), bytes.len() as u64, "{name}");
            verify_checksum(bytes, &header).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        #[cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]
        {
            let batches = parse(&vector.bytes);
            assert_eq!(one(&batches).bytes(), vector.bytes, "{name}");
            assert_eq!(one(&batches).to_bytes(), vector.bytes, "{name}");
            assert_eq!(batches.size_bytes(), vector.bytes.len(), "{name}");
        }
    }
}

#[test]
fn a_empty_and_null_keys_and_values() {
    let vector = vector('A');
    let batches = parse(&vector.bytes);
    let header = one(&batches).header();
    assert_eq!((header.base_offset(), header.last_offset(), header.next_offset()), (Offset(0), Offset(3), Offset(4)));
    assert_eq!(header.leader_epoch(), Some(LeaderEpoch(0)));
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (T, Some(Timestamp(T + 5))));
    assert_eq!((header.producer_id(), header.producer_epoch(), header.base_sequence()), (None, None, None));
    assert_eq!((header.compression(), header.timestamp_type()), (Compression::None, TimestampType::CreateTime));
    assert_eq!(
        read(one(&batches)),
        [
            expect(0, T, Some(""), Some("")),
            expect(1, T + 1, None, None),
            expect(2, T + 5, Some("k"), None),
            expect(3, T + 3, None, Some("v")),
        ]
    );

    let mut builder = BatchBuilder::new();
    builder.leader_epoch(LeaderEpoch(0));
    let nothing = "";
    builder.push(&Record::new(nothing).key(nothing).timestamp(Timestamp(T))).unwrap();
    builder.push(&Record::null().timestamp(Timestamp(T + 1))).unwrap();
    builder.push(&Record::tombstone("k").timestamp(Timestamp(T + 5))).unwrap();
    builder.push(&Record::new("v").timestamp(Timestamp(T + 3))).unwrap();
    assert!(vector.is_kafkas);
    assert_eq!(builder.encode().unwrap(), vector.bytes);
}

#[test]
fn b_headers_keep_order_and_duplicates() {
    let vector = vector('B');
    let batches = parse(&vector.bytes);
    assert_eq!(one(&batches).header().leader_epoch(), Some(LeaderEpoch(7)));
    let mut expected = expect(100, T, Some("key"), Some("value"));
    let header = |name: &str, value: Option<&[u8]>| (name.as_bytes().to_vec(), value.map(<[u8]>::to_vec));
    expected.headers = vec![
        header("h1", Some(b"x")),
        header("empty", Some(b"")),
        header("null", None),
        header("h1", Some(b"dup")),
        header("é", Some(&[0, 0xff])),
    ];
    assert_eq!(read(one(&batches)), [expected]);
    let record = one(&batches).records().next().unwrap();
    assert_eq!(record.headers().last().unwrap().name_str(), Some("é"));

    let mut builder = BatchBuilder::new();
    builder.base_offset(Offset(100));
    builder.leader_epoch(LeaderEpoch(7));
    let record = Record::new("value").key("key").timestamp(Timestamp(T)).header("h1", "x").header("empty", "");
    builder.push(&record.null_header("null").header("h1", "dup").header("é", &[0, 0xff])).unwrap();
    assert!(vector.is_kafkas);
    assert_eq!(builder.encode().unwrap(), vector.bytes);
}

/// C to F: the same four records in each codec, from more than one writer.
fn check_compressed(letter: char, compression: Compression) {
    let vector = vector(letter);
    let expected: Vec<Read> = (0..4)
        .map(|i| {
            let value = format!("value-value-value-{i}");
            expect(i, T + i.cast_signed(), Some(&format!("key-{i}")), Some(&value))
        })
        .collect();
    for bytes in [Some(&vector.bytes), vector.alternative.as_ref()].into_iter().flatten() {
        let batches = parse(bytes);
        assert_eq!(one(&batches).header().compression(), compression);
        assert_eq!(read(one(&batches)), expected);
    }

    let mut builder = BatchBuilder::new().compression(compression);
    builder.leader_epoch(LeaderEpoch(0));
    for record in &expected {
        let (key, value) = (record.key.as_ref().unwrap(), record.value.as_ref().unwrap());
        builder.push(&Record::new(value).key(key).timestamp(Timestamp(record.timestamp))).unwrap();
    }
    let bytes = builder.encode().unwrap();
    assert_eq!(read(one(&parse(bytes))), expected);
    if vector.is_kafkas && compression != Compression::Lz4 {
        assert_eq!(bytes, vector.bytes);
    }
}

#[test]
#[cfg(feature = "gzip")]
fn c_gzip() {
    check_compressed('C', Compression::Gzip);
}

#[test]
#[cfg(feature = "snappy")]
fn d_snappy() {
    check_compressed('D', Compression::Snappy);
}

#[test]
#[cfg(feature = "lz4")]
fn e_lz4() {
    // The frame is Kafka's; the library behind it finds its matches elsewhere.
    check_compressed('E', Compression::Lz4);
}

#[test]
#[cfg(feature = "zstd")]
fn f_zstd() {
    check_compressed('F', Compression::Zstd);
}

#[test]
fn g_and_h_transaction_markers() {
    let cases = [
        ('G', Outcome::Committed, 42, T + 100, ControlRecord::Commit { coordinator_epoch: 9 }),
        ('H', Outcome::Aborted, 43, T + 101, ControlRecord::Abort { coordinator_epoch: 9 }),
    ];
    for (letter, outcome, offset, timestamp, control) in cases {
        let vector = vector(letter);
        let batches = parse(&vector.bytes);
        let header = one(&batches).header();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!((header.producer_id(), header.producer_epoch()), (Some(ProducerId(1000)), Some(ProducerEpoch(5))));
        assert_eq!((header.base_sequence(), header.last_sequence()), (None, None));
        assert_eq!(one(&batches).control(), Some(control));

        let mut bytes = marker_batch(&Marker {
            outcome,
            producer_id: ProducerId(1000),
            producer_epoch: ProducerEpoch(5),
            coordinator_epoch: 9,
            timestamp: Timestamp(timestamp),
        });
        set_base_offset(&mut bytes, Offset(offset));
        set_leader_epoch(&mut bytes, LeaderEpoch(3));
        assert!(vector.is_kafkas);
        assert_eq!(bytes, vector.bytes);
    }
}

#[test]
fn i_sequences_wrap_to_zero() {
    let vector = vector('I');
    let batches = parse(&vector.bytes);
    let sequences: Vec<_> = read(one(&batches)).iter().map(|record| record.sequence.unwrap()).collect();
    assert_eq!(sequences, [i32::MAX - 1, i32::MAX, 0]);
    assert_eq!(one(&batches).header().last_sequence(), Some(Sequence(0)));

    let mut builder = BatchBuilder::new();
    builder.base_offset(Offset(500));
    builder.leader_epoch(LeaderEpoch(4));
    builder.producer(ProducerId(4242), ProducerEpoch(1), Sequence(i32::MAX - 1));
    assert!(rebuilds(&mut builder, &vector));
}

#[test]
fn j_transactional_data() {
    let vector = vector('J');
    let batches = parse(&vector.bytes);
    let header = one(&batches).header();
    assert!(header.is_transactional() && !header.is_control());
    assert_eq!((header.base_sequence(), header.last_sequence()), (Some(Sequence(0)), Some(Sequence(1))));
    assert_eq!(one(&batches).control(), None);

    let mut builder = BatchBuilder::new();
    builder.base_offset(Offset(40));
    builder.leader_epoch(LeaderEpoch(3));
    builder.producer(ProducerId(1000), ProducerEpoch(5), Sequence(0));
    builder.transactional(true);
    assert!(rebuilds(&mut builder, &vector));
}

/// Pushes what the vector holds into a builder that has been told the rest; whether that gives the same bytes.
fn rebuilds(builder: &mut BatchBuilder, vector: &Vector) -> bool {
    for record in read(one(&parse(&vector.bytes))) {
        let (key, value) = (record.key.unwrap(), record.value.unwrap());
        builder.push(&Record::new(&value).key(&key).timestamp(Timestamp(record.timestamp))).unwrap();
    }
    vector.is_kafkas && builder.encode().unwrap() == vector.bytes
}

#[test]
fn k_log_append_time_is_every_records_time() {
    let batches = parse(&vector('K').bytes);
    let header = one(&batches).header();
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (T, Some(Timestamp(T + 1234))));
    let times: Vec<_> = read(one(&batches)).iter().map(|record| record.timestamp).collect();
    assert_eq!(times, [T + 1234, T + 1234]);
}

#[test]
fn l_compacted_with_gaps_and_a_delete_horizon() {
    let batches = parse(&vector('L').bytes);
    let header = one(&batches).header();
    assert_eq!((header.base_offset(), header.last_offset(), header.record_count()), (Offset(200), Offset(209), 2));
    assert_eq!(header.delete_horizon(), Some(Timestamp(T + 86_400_000)));
    assert_eq!((header.base_sequence(), header.last_sequence()), (Some(Sequence(10)), Some(Sequence(19))));
    let records = read(one(&batches));
    assert_eq!((records[0].offset, records[0].timestamp, records[0].sequence), (202, T + 2, Some(12)));
    assert_eq!((records[0].key.as_deref(), records[0].value.as_deref()), (Some(&b"k2"[..]), None));
    assert_eq!((records[1].offset, records[1].timestamp, records[1].sequence), (205, T + 7, Some(15)));
}

#[test]
fn m_an_empty_batch_keeps_its_place() {
    let vector = vector('M');
    assert_eq!(vector.bytes.len(), taffrail::HEADER_BYTES);
    let batches = parse(&vector.bytes);
    let header = one(&batches).header();
    assert_eq!((header.base_offset(), header.next_offset(), header.record_count()), (Offset(300), Offset(305), 0));
    assert_eq!((header.base_sequence(), header.last_sequence()), (Some(Sequence(20)), Some(Sequence(24))));
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (-1, Some(Timestamp(T + 40))));
    assert_eq!(one(&batches).records().len(), 0);
    assert!(one(&batches).records().next().is_none());
}
