//! Bytes that no writer made: damage is found, lies are bounded, and nothing panics.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

use bytes::Bytes;
use taffrail::{
    BatchBuilder, BatchHeader, Batches, Compression, Corruption, Error, HEADER_BYTES, Offset, ProducerEpoch,
    ProducerId, Record, Sequence, Timestamp,
};

const LIMIT: usize = 1 << 20;

fn parse(bytes: &[u8]) -> taffrail::Result<Batches> {
    Batches::parse(Bytes::copy_from_slice(bytes), LIMIT)
}

/// What is wrong with it.
fn corruption(bytes: &[u8]) -> Corruption {
    match parse(bytes) {
        Err(Error::InvalidBatch { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn builder(codec: Compression) -> BatchBuilder {
    let mut builder = BatchBuilder::new().compression(codec);
    builder.base_offset(Offset(100));
    builder.producer(ProducerId(7), ProducerEpoch(1), Sequence(0));
    for value in ["some value", "some other value"] {
        builder.push(&Record::new(value).key("key").header("name", "x").timestamp(Timestamp(1_000))).unwrap();
    }
    builder
}

/// A batch of one record out of `payload`, with the right length and checksum, which says it is compressed with `codec`.
fn framed(codec: u8, count: u32, payload: &[u8]) -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("").timestamp(Timestamp(1_000))).unwrap();
    let mut bytes = batch.encode().unwrap()[..HEADER_BYTES].to_vec();
    bytes[22] = codec;
    bytes[23..27].copy_from_slice(&(count.max(1) - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(payload);
    reseal(&mut bytes);
    bytes
}

fn reseal(bytes: &mut [u8]) {
    let length = u32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = crc_fast::crc32_iscsi(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
}

fn codecs() -> Vec<Compression> {
    let all = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let there = |codec: &Compression| match codec {
        Compression::Gzip => cfg!(feature = "gzip"),
        Compression::Snappy => cfg!(feature = "snappy"),
        Compression::Lz4 => cfg!(feature = "lz4"),
        Compression::Zstd => cfg!(feature = "zstd"),
        _ => true,
    };
    all.into_iter().filter(there).collect()
}

#[test]
fn a_flipped_bit_under_the_checksum_is_found() {
    for codec in codecs() {
        let bytes = builder(codec).encode().unwrap().to_vec();
        assert!(parse(&bytes).is_ok());
        for at in 17..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(parse(&damaged).is_err(), "{}: bit {bit} of byte {at}", codec.name());
            }
        }
    }
}

#[test]
fn a_batch_that_is_cut_off_is_an_error() {
    for codec in codecs() {
        let bytes = builder(codec).encode().unwrap().to_vec();
        for len in 1..bytes.len() {
            assert!(matches!(corruption(&bytes[..len]), Corruption::Truncated { .. }), "{len}");
        }
        let mut two = bytes.clone();
        two.extend_from_slice(&bytes[..70]);
        match parse(&two) {
            Err(Error::InvalidBatch { position, .. }) => assert_eq!(position, bytes.len() as u64),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_payload_that_is_cut_off_under_a_right_checksum_is_an_error() {
    for codec in codecs() {
        let bytes = builder(codec).encode().unwrap().to_vec();
        for len in HEADER_BYTES..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            reseal(&mut cut);
            assert!(parse(&cut).is_err(), "{} cut to {len}", codec.name());
        }
    }
}

#[test]
fn zeros_are_no_batch() {
    assert_eq!(BatchHeader::parse(&[0; 100]), Err(Corruption::Length(0)));
    assert_eq!(BatchHeader::parse(&[0; 16]), Err(Corruption::Truncated { needed: 61, present: 16 }));
}

#[test]
fn each_header_field_is_held_against_what_writers_make() {
    let good = builder(Compression::None).encode().unwrap().to_vec();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        BatchHeader::parse(&changed)
    };
    let field = |field, value| Err(Corruption::Header { field, value });
    assert_eq!(with(0, &(-1_i64).to_be_bytes()), field("baseOffset", -1));
    assert_eq!(with(0, &i64::MAX.to_be_bytes()), field("lastOffsetDelta", 1));
    assert!(with(0, &(i64::MAX - 1).to_be_bytes()).is_ok());
    assert_eq!(with(8, &48_i32.to_be_bytes()), Err(Corruption::Length(48)));
    assert_eq!(with(8, &(-1_i32).to_be_bytes()), Err(Corruption::Length(-1)));
    assert!(with(8, &i32::MAX.to_be_bytes()).is_ok());
    for magic in [0, 1, 3, -1_i8] {
        assert_eq!(with(16, &magic.to_be_bytes()), Err(Corruption::Magic(magic)));
    }
    for codec in 5..8_i16 {
        assert_eq!(with(21, &codec.to_be_bytes()), field("attributes", i64::from(codec)));
    }
    assert_eq!(with(23, &(-5_i32).to_be_bytes()), field("lastOffsetDelta", -5));
    assert_eq!(with(43, &(-2_i64).to_be_bytes()), field("producerId", -2));
    assert_eq!(with(51, &(-1_i16).to_be_bytes()), field("producerEpoch", -1));
    assert_eq!(with(53, &(-2_i32).to_be_bytes()), field("baseSequence", -2));
    assert_eq!(with(57, &(-1_i32).to_be_bytes()), field("recordCount", -1));
    assert_eq!(with(57, &3_i32.to_be_bytes()), field("recordCount", 3));
    assert_eq!(with(57, &i32::MAX.to_be_bytes()), field("recordCount", i64::from(i32::MAX)));
}

#[test]
fn records_that_do_not_fit_their_frame_are_errors() {
    let cases: [(&str, &[u8]); 14] = [
        ("no record", &[]),
        ("length beyond the batch", &[0x20, 0, 0, 0, 1, 1, 0]),
        ("greatest length", &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0]),
        ("negative length", &[0x01, 0, 0, 0, 1, 1, 0]),
        ("empty", &[0x00]),
        ("endless varint", &[0x0c, 0, 0x80, 0x80, 0x80, 0x80, 0x80]),
        ("negative offset", &[0x0c, 0, 0, 1, 1, 1, 0]),
        ("offset above the batch's", &[0x0c, 0, 0, 2, 1, 1, 0]),
        ("key beyond the record", &[0x0c, 0, 0, 0, 0x40, 1, 0]),
        ("value beyond the record", &[0x0c, 0, 0, 0, 1, 0x40, 0]),
        ("bytes behind the record", &[0x0e, 0, 0, 0, 1, 1, 0, 0]),
        ("negative number of headers", &[0x0c, 0, 0, 0, 1, 1, 1]),
        ("a header's name is null", &[0x10, 0, 0, 0, 1, 1, 2, 1, 1]),
        ("bytes behind the batch's records", &[0x0c, 0, 0, 0, 1, 1, 0, 0]),
    ];
    assert!(parse(&framed(0, 1, &[0x0c, 0, 0, 0, 1, 1, 0])).is_ok());
    for (what, payload) in cases {
        assert!(matches!(corruption(&framed(0, 1, payload)), Corruption::Record { .. }), "{what}");
    }
    let many_headers = [0x16, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(matches!(corruption(&framed(0, 1, &many_headers)), Corruption::Record { .. }), "headers");
    let twice_the_same_offset = [0x0c, 0, 0, 0, 1, 1, 0, 0x0c, 0, 0, 0, 1, 1, 0];
    assert!(matches!(corruption(&framed(0, 2, &twice_the_same_offset)), Corruption::Record { index: 1, .. }));
    let too_few = framed(0, i32::MAX.unsigned_abs(), &[0x0c, 0, 0, 0, 1, 1, 0]);
    assert!(matches!(corruption(&too_few), Corruption::Record { index: 1, .. }));
}

#[test]
fn fields_longer_than_needed_are_read() {
    // Every varint padded to its full length; lengths of -2 are null like -1.
    let payload = [
        0x38, 0, 0x8a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x80, 0x80, 0x80, 0x80, 0, 0x83, 0x80, 0x80,
        0x80, 0, 0x82, 0x80, 0x00, b'v', 0x80, 0x80, 0,
    ];
    let batches = parse(&framed(0, 1, &payload)).unwrap();
    let record = batches.iter().next().unwrap().records().next().unwrap();
    assert_eq!((record.key(), record.value_str()), (None, Some("v")));
    assert_eq!(record.timestamp(), Some(Timestamp(1_005)));
}

#[test]
fn a_control_batch_that_says_nothing_is_an_error() {
    let mut bytes = framed(0, 1, &[0x0c, 0, 0, 0, 1, 1, 0]);
    bytes[22] = 0x20;
    reseal(&mut bytes);
    assert!(matches!(corruption(&bytes), Corruption::Record { index: 0, .. }));
}

#[test]
fn what_stands_behind_an_empty_header_is_not_looked_at() {
    let batches = parse(&framed(4, 0, b"no zstd at all")).unwrap();
    assert_eq!(batches.iter().next().unwrap().records().len(), 0);
}

#[test]
fn a_bomb_is_bounded() {
    for codec in codecs().into_iter().filter(|codec| *codec != Compression::None) {
        for size in [LIMIT, 8 << 20] {
            let mut builder = BatchBuilder::new().compression(codec);
            builder.push(&Record::new(&vec![0; size])).unwrap();
            let bytes = builder.encode().unwrap();
            assert!(bytes.len() < size / 10, "{} of a bomb", bytes.len());
            match parse(bytes) {
                Err(Error::DecompressionBound { codec: named, limit }) => {
                    assert_eq!((named, limit), (codec.name(), LIMIT));
                }
                other => panic!("{}: {other:?}", codec.name()),
            }
            assert!(Batches::parse(Bytes::copy_from_slice(bytes), size + 100).is_ok(), "{}", codec.name());
        }
    }
}

#[test]
fn garbage_in_a_codecs_place_is_an_error() {
    for (attribute, codec) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        for payload in [&b""[..], b"\0", b"garbage that is no codec's", &[0xff; 64]] {
            match parse(&framed(attribute, 1, payload)) {
                Err(Error::InvalidBatch { reason: Corruption::Compression { codec: named, .. }, .. }) => {
                    assert_eq!(named, codec);
                }
                Err(Error::InvalidBatch { reason: Corruption::Record { .. }, .. }) => {} // decompressed to nothing
                Err(Error::CodecDisabled { codec: named }) => assert_eq!(named, codec),
                other => panic!("{codec}: {other:?}"),
            }
        }
    }
}
