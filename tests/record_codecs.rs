//! The framings that Kafka's reader takes and those that it does not, beyond what our own writer makes.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
#![cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]

use std::io::Write;

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use taffrail::{BatchBuilder, Batches, Compression, Corruption, Error, HEADER_BYTES, Record, Result, Timestamp};

/// The uncompressed records of a batch whose one value is `value`.
fn records(value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(&Record::new(value).timestamp(Timestamp(1_000))).unwrap();
    builder.encode().unwrap()[HEADER_BYTES..].to_vec()
}

/// Nothing that compresses well and nothing that does not compress, larger than any codec's block.
fn large_value() -> Vec<u8> {
    (0..200_000_u32).map(|i| if i % 3 == 0 { i.wrapping_mul(2_654_435_761).to_le_bytes()[3] } else { b'a' }).collect()
}

/// Puts `payload` behind a header that says it is compressed with the codec of the attribute.
fn framed(attribute: u8, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(&Record::new("").timestamp(Timestamp(1_000))).unwrap();
    let mut bytes = builder.encode().unwrap()[..HEADER_BYTES].to_vec();
    bytes[22] = attribute;
    bytes.extend_from_slice(payload);
    let length = u32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = crc_fast::crc32_iscsi(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn parse(attribute: u8, payload: &[u8]) -> Result<Batches> {
    Batches::parse(Bytes::from(framed(attribute, payload)), 1 << 20)
}

fn reads(attribute: u8, payload: &[u8], value: &[u8]) {
    let batches = parse(attribute, payload).unwrap();
    let values: Vec<_> = batches.iter().flat_map(|batch| batch.records()).map(|record| record.value()).collect();
    assert_eq!(values, [Some(value)]);
}

fn refuses(attribute: u8, payload: &[u8], because: &str) {
    match parse(attribute, payload) {
        Err(Error::InvalidBatch { reason: Corruption::Compression { reason, .. }, .. }) => {
            assert!(reason.contains(because), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

fn xerial(blocks: &[&[u8]]) -> Vec<u8> {
    let mut payload = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in blocks {
        let block = snap::raw::Encoder::new().compress_vec(block).unwrap();
        payload.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
        payload.extend_from_slice(&block);
    }
    payload
}

#[test]
fn snappy_is_read_in_xerial_blocks_of_any_size_or_as_one_raw_block() {
    let value = large_value();
    let records = records(&value);
    let (first, second) = records.split_at(150_000);
    reads(2, &xerial(&[first, second]), &value);
    reads(2, &xerial(&[first, &[], second]), &value);
    reads(2, &snap::raw::Encoder::new().compress_vec(&records).unwrap(), &value);
}

#[test]
fn snappy_in_googles_framing_is_refused() {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(&records(b"value")).unwrap();
    let payload = encoder.into_inner().unwrap();
    assert!(payload.windows(6).any(|window| window == b"sNaPpY"));
    refuses(2, &payload, "");
}

#[test]
fn snappy_is_not_believed_about_its_size() {
    let mut payload = vec![0xff, 0xff, 0xff, 0xff, 0x0f]; // 4 GiB less one
    payload.extend_from_slice(&[0; 100]);
    refuses(2, &payload, "cannot become");
    refuses(2, &xerial(&[&records(b"value")])[..18], "cut off");
    let mut beyond = xerial(&[]);
    beyond.extend_from_slice(&i32::MAX.to_be_bytes());
    refuses(2, &beyond, "cut off");
    beyond.truncate(16);
    beyond.extend_from_slice(&(-1_i32).to_be_bytes());
    refuses(2, &beyond, "cut off");
}

fn lz4(info: FrameInfo, data: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lz4_frames_are_read_with_whatever_kafka_reads() {
    let value = large_value();
    let records = records(&value);
    for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
        let info = FrameInfo::new().block_size(size).block_mode(BlockMode::Independent);
        reads(3, &lz4(info.clone(), &records), &value);
        reads(3, &lz4(info.clone().block_checksums(true), &records), &value);
        reads(3, &lz4(info.clone().content_checksum(true), &records), &value);
        let all = info.content_size(Some(records.len() as u64)).block_checksums(true).content_checksum(true);
        reads(3, &lz4(all, &records), &value);
    }
}

#[test]
fn lz4_blocks_that_depend_on_each_other_are_refused() {
    let records = records(&large_value());
    refuses(3, &lz4(FrameInfo::new().block_mode(BlockMode::Linked), &records), "depend on each other");
}

#[test]
fn lz4_is_one_frame_and_nothing_behind() {
    let records = records(b"value");
    let frame = lz4(FrameInfo::new(), &records);
    refuses(3, &[&frame[..], &frame[..]].concat(), "behind the frame");
    refuses(3, &[&frame[..], &[0]].concat(), "behind the frame");
    for len in 0..frame.len() {
        refuses(3, &frame[..len], "cut off");
    }
}

#[test]
fn lz4_checksums_are_verified() {
    let records = records(&large_value());
    let frame = lz4(FrameInfo::new().block_checksums(true), &records);
    let mut header = frame.clone();
    header[6] ^= 1;
    refuses(3, &header, "header is wrong");
    let mut block = frame;
    block[20] ^= 1;
    refuses(3, &block, "block is wrong");
}

#[test]
fn lz4_blocks_that_did_not_shrink_are_stored() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    let value: Vec<u8> = (0..150_000).map(|_| random()).collect();
    let mut builder = BatchBuilder::new().compression(Compression::Lz4);
    builder.push(&Record::new(&value)).unwrap();
    let bytes = builder.encode().unwrap().to_vec();
    assert!(bytes.len() < value.len() + 200, "{}", bytes.len());
    assert_ne!(bytes[HEADER_BYTES + 7 + 3] & 0x80, 0, "the first block is stored");
    let batches = Batches::parse(Bytes::from(bytes.clone()), 1 << 20).unwrap();
    assert_eq!(batches.iter().next().unwrap().records().next().unwrap().value(), Some(&value[..]));
    let mut theirs = Vec::new();
    let mut decoder = lz4_flex::frame::FrameDecoder::new(&bytes[HEADER_BYTES..]);
    std::io::Read::read_to_end(&mut decoder, &mut theirs).unwrap();
    assert!(theirs.windows(100).any(|window| window == &value[..100]));
}

#[test]
fn gzip_members_and_zstd_frames_follow_one_another() {
    let value = large_value();
    let records = records(&value);
    let (first, second) = records.split_at(1_234);
    let member = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    };
    reads(1, &[member(first), member(second)].concat(), &value);
    let frame = |data: &[u8]| zstd::bulk::compress(data, 1).unwrap();
    reads(4, &[frame(first), frame(second)].concat(), &value);
}

#[test]
fn zstd_from_a_stream_and_with_a_large_window_is_read() {
    let value = large_value();
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 19).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(&records(&value)).unwrap();
    reads(4, &encoder.finish().unwrap(), &value);
}

#[test]
fn zstd_is_not_believed_about_its_size() {
    // A frame that declares 2^62 bytes of content and holds one empty, last block.
    let mut payload = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000];
    payload.extend_from_slice(&(1_u64 << 62).to_le_bytes());
    payload.extend_from_slice(&[1, 0, 0]);
    assert!(matches!(
        parse(4, &payload),
        Err(Error::InvalidBatch { .. } | Error::DecompressionBound { codec: "zstd", .. })
    ));
}

#[test]
fn every_level_of_compressible_is_written_and_read() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        // Around each codec's block size.
        for size in [0, 1, 20, 32 << 10, (32 << 10) + 1, 65_534, 65_535, 65_536, 65_537, 200_000] {
            let mut builder = BatchBuilder::new().compression(codec);
            for _ in 0..2 {
                let value = &large_value()[..size];
                builder.clear();
                builder.push(&Record::new(value)).unwrap();
                let bytes = Bytes::copy_from_slice(builder.encode().unwrap());
                let batches = Batches::parse(bytes, 1 << 20).unwrap();
                let record = batches.iter().next().unwrap().records().next().unwrap();
                assert_eq!(record.value(), Some(value), "{} of {size} bytes", codec.name());
            }
        }
    }
}
