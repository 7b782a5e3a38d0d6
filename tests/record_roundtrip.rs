//! What a builder writes is read back as it was pushed: every codec, every shape of record.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use taffrail::{
    BatchBuilder, Batches, Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp,
};

/// The codecs that are compiled in.
fn codecs() -> Vec<Compression> {
    let mut codecs = vec![Compression::None];
    for (is_there, codec) in [
        (cfg!(feature = "gzip"), Compression::Gzip),
        (cfg!(feature = "snappy"), Compression::Snappy),
        (cfg!(feature = "lz4"), Compression::Lz4),
        (cfg!(feature = "zstd"), Compression::Zstd),
    ] {
        if is_there {
            codecs.push(codec);
        }
    }
    codecs
}

/// A record, owned: what the model keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: i64,
}

impl Owned {
    fn record(&self) -> Record<'_> {
        let mut record = match (&self.key, &self.value) {
            (None, None) => Record::null(),
            (Some(key), None) => Record::tombstone(key),
            (None, Some(value)) => Record::new(value),
            (Some(key), Some(value)) => Record::new(value).key(key),
        };
        for (name, value) in &self.headers {
            record = match value {
                Some(value) => record.header(name, value),
                None => record.null_header(name),
            };
        }
        record.timestamp(Timestamp(self.timestamp))
    }
}

fn some_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    let size = prop_oneof![8 => 0..80_usize, 2 => 80..300_usize, 1 => 8_000..20_000_usize];
    let compressible = (size, any::<u8>()).prop_map(|(size, byte)| vec![byte; size]);
    prop_oneof![1 => Just(None), 4 => vec(any::<u8>(), 0..200).prop_map(Some), 2 => compressible.prop_map(Some)]
}

fn a_record() -> impl Strategy<Value = Owned> {
    // Few names, so that they come twice.
    let name = prop_oneof![Just(String::new()), Just("a".to_owned()), Just("é".to_owned()), "[a-z]{1,90}"];
    let headers = prop_oneof![3 => Just(Vec::new()), 1 => vec((name, some_bytes()), 0..70)];
    let timestamp = prop_oneof![4 => 1_700_000_000_000..1_700_000_000_200_i64, 1 => 0..=i64::MAX];
    (some_bytes(), some_bytes(), headers, timestamp).prop_map(|(key, value, headers, timestamp)| Owned {
        key,
        value,
        headers,
        timestamp,
    })
}

fn read(batches: &Batches) -> Vec<Owned> {
    let records = batches.iter().flat_map(|batch| batch.records());
    records
        .map(|record| Owned {
            key: record.key().map(<[u8]>::to_vec),
            value: record.value().map(<[u8]>::to_vec),
            headers: record
                .headers()
                .map(|header| (header.name_str().unwrap().to_owned(), header.value().map(<[u8]>::to_vec)))
                .collect(),
            timestamp: record.timestamp().unwrap().0,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_read_as_they_were_pushed(
        runs in vec(vec(a_record(), 1..90), 1..4),
        codec in prop::sample::select(codecs()),
        base in 0..1_u64 << 40,
    ) {
        let mut builder = BatchBuilder::new().compression(codec);
        let mut bytes = Vec::new();
        let mut next = base;
        for run in &runs {
            builder.clear();
            builder.base_offset(Offset(next));
            builder.leader_epoch(LeaderEpoch(3));
            for record in run {
                builder.push(&record.record()).unwrap();
            }
            bytes.extend_from_slice(builder.encode().unwrap());
            next += run.len() as u64;
        }
        let len = bytes.len();
        let batches = Batches::parse(Bytes::from(bytes), 64 << 20).unwrap();
        prop_assert_eq!((batches.len(), batches.size_bytes()), (runs.len(), len));
        prop_assert_eq!(read(&batches), runs.concat());
        let offsets: Vec<u64> = batches.iter().flat_map(|batch| batch.records()).map(|r| r.offset().0).collect();
        prop_assert_eq!(offsets, (base..next).collect::<Vec<u64>>());
        for (batch, run) in batches.iter().zip(&runs) {
            let max = run.iter().map(|record| record.timestamp).max();
            prop_assert_eq!(batch.header().max_timestamp(), max.map(Timestamp));
            prop_assert_eq!(batch.header().base_timestamp(), run[0].timestamp);
            prop_assert_eq!(batch.header().compression(), codec);
        }
    }

    #[test]
    fn the_size_is_what_an_uncompressed_batch_takes(run in vec(a_record(), 1..40)) {
        let mut builder = BatchBuilder::new();
        for record in &run {
            builder.push(&record.record()).unwrap();
        }
        let size = builder.size_bytes();
        prop_assert_eq!(builder.encode().unwrap().len(), size);
    }
}

#[test]
fn sequences_run_on_from_the_first() {
    let mut builder = BatchBuilder::new();
    builder.producer(ProducerId(9), ProducerEpoch(2), Sequence(i32::MAX));
    for value in ["a", "b"] {
        builder.push(&Record::new(value)).unwrap();
    }
    let batches = Batches::parse(Bytes::copy_from_slice(builder.encode().unwrap()), 1 << 20).unwrap();
    let sequences: Vec<_> = batches.iter().flat_map(|batch| batch.records()).map(|r| r.sequence()).collect();
    assert_eq!(sequences, [Some(Sequence(i32::MAX)), Some(Sequence(0))]);
}

#[test]
fn a_builder_is_used_again_with_nothing_left_of_the_last_batch() {
    let mut used = BatchBuilder::new();
    used.producer(ProducerId(9), ProducerEpoch(2), Sequence(5));
    used.transactional(true);
    used.base_offset(Offset(77));
    used.leader_epoch(LeaderEpoch(6));
    for _ in 0..50 {
        used.push(&Record::new(&[7; 5000]).key("key").header("name", "value")).unwrap();
    }
    used.encode().unwrap();
    used.clear();
    assert!(used.is_empty());
    assert!(used.encode().is_err());

    let mut fresh = BatchBuilder::new();
    for builder in [&mut used, &mut fresh] {
        builder.push(&Record::new("value").timestamp(Timestamp(1))).unwrap();
    }
    assert_eq!(used.encode().unwrap(), fresh.encode().unwrap());
}

#[test]
fn pushing_goes_on_behind_an_encoded_batch() {
    for codec in codecs() {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(&Record::new("a").timestamp(Timestamp(1))).unwrap();
        let first = builder.encode().unwrap().to_vec();
        assert_eq!(builder.encode().unwrap(), first);
        builder.push(&Record::new("b").timestamp(Timestamp(2))).unwrap();
        let batches = Batches::parse(Bytes::copy_from_slice(builder.encode().unwrap()), 1 << 20).unwrap();
        let values: Vec<_> = batches.iter().flat_map(|batch| batch.records()).map(|r| r.value_str()).collect();
        assert_eq!(values, [Some("a"), Some("b")]);
    }
}

#[test]
fn a_codec_that_is_compiled_out_names_its_feature() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(&Record::new("value")).unwrap();
        match builder.encode() {
            Ok(_) => assert!(codecs().contains(&codec)),
            Err(error) => {
                assert!(!codecs().contains(&codec), "{error}");
                assert!(error.to_string().contains(&format!("feature `{}`", codec.name())), "{error}");
            }
        }
    }
}
