//! Bad input gets a clear error, and nothing has changed afterwards.

use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Cleanup, Commits, Compression, Error, ErrorKind, Fault, Isolation, LeaderEpoch, ManualClock,
    MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record, Retention, Storage, Timestamp,
    TimestampType,
};

const NOW: Timestamp = Timestamp(1_000_000);

fn open_on(storage: &MemoryStorage, config: PartitionConfig) -> taffrail::Result<Partition> {
    Partition::builder("data/wal-0")
        .config(config)
        .storage(storage.shared())
        .clock(Arc::new(ManualClock::at(NOW)))
        .open()
}

fn open(config: PartitionConfig) -> Partition {
    open_on(&MemoryStorage::new(1), config).expect("an empty disk opens")
}

fn batch(records: &[Record<'_>]) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for record in records {
        batch.push(record).expect("the record fits");
    }
    batch
}

/// The partition refuses the batch, is as it was, and takes the next one.
fn refused(partition: &Partition, batch: &mut BatchBuilder) -> Error {
    let (end, bytes, records) = (partition.end(), partition.stats().bytes, batch.len());
    let error = partition.append(batch).expect_err("it is refused");
    assert_eq!((partition.end(), partition.stats().bytes), (end, bytes), "something was appended");
    assert_eq!(batch.len(), records, "the builder keeps its records");
    let mut good = self::batch(&[Record::new("good").key("k").timestamp(NOW)]);
    partition.append(&mut good).expect("the next one is taken").wait().expect("stored");
    assert_eq!(partition.end(), end.plus(1));
    error
}

#[test]
fn a_batch_that_is_too_large() {
    let partition = open(PartitionConfig::new().batch_bytes_max(1_000));
    let value = vec![0; 2_000];
    let error = refused(&partition, &mut batch(&[Record::new(&value)]));
    assert!(matches!(error, Error::BatchTooLarge { size: 2_0.., limit: 1_000 }), "{error}");
    let partition = open(PartitionConfig::new().segment_bytes(500));
    let error = refused(&partition, &mut batch(&[Record::new(&value)]));
    assert!(matches!(error, Error::BatchTooLarge { limit: 500, .. }), "{error}");
}

#[test]
fn an_empty_batch() {
    let error = refused(&open(PartitionConfig::new()), &mut BatchBuilder::new());
    assert!(matches!(error, Error::InvalidRecord(_)), "{error}");
}

#[test]
fn a_record_without_a_key_on_a_compacted_log() {
    let partition = open(PartitionConfig::new().cleanup(Cleanup::Compact));
    let error = refused(&partition, &mut batch(&[Record::new("a").key("k"), Record::new("b")]));
    assert!(matches!(error, Error::NullKey { index: 1 }), "{error}");
}

#[test]
fn timestamps_out_of_bounds() {
    let mut builder = BatchBuilder::new();
    let error = builder.push(&Record::new("v").timestamp(Timestamp(-2))).expect_err("negative");
    assert!(matches!(error, Error::InvalidTimestamp { timestamp: Timestamp(-2), .. }), "{error}");
    assert!(builder.is_empty());

    let second = Some(Duration::from_secs(1));
    let partition = open(PartitionConfig::new().timestamp_before_max(second).timestamp_after_max(second));
    for wrong in [NOW.0 - 1_001, NOW.0 + 1_001] {
        let error = refused(&partition, &mut batch(&[Record::new("v").timestamp(Timestamp(wrong))]));
        assert!(matches!(error, Error::InvalidTimestamp { timestamp, .. } if timestamp.0 == wrong), "{error}");
    }
    for right in [NOW.0 - 1_000, NOW.0 + 1_000] {
        partition
            .append(&mut batch(&[Record::new("v").timestamp(Timestamp(right))]))
            .expect("within")
            .wait()
            .expect("stored");
    }
}

#[test]
fn offsets_outside_of_the_log() {
    let partition = open(PartitionConfig::new());
    for _ in 0..5 {
        partition.append(&mut batch(&[Record::new("v")])).expect("taken").wait().expect("stored");
    }
    partition.trim_before(Offset(2)).expect("trimmed");
    for wrong in [0, 1, 6, u64::MAX] {
        let error = partition.read(Offset(wrong), ReadOptions::new()).expect_err("outside");
        assert!(
            matches!(error, Error::OffsetOutOfRange { requested, start: Offset(2), end: Offset(5), .. } if requested.0 == wrong),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Fix);
    }
    assert!(partition.read(Offset(5), ReadOptions::new()).expect("the end itself").is_empty());
    assert!(matches!(partition.trim_before(Offset(6)), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(partition.delete_records(Some(Offset(6))), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(partition.hold(Offset(1)), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(partition.sync_to(Offset(6)), Err(Error::UnexpectedEnd { .. })));
}

#[test]
fn a_directory_that_is_in_use() {
    let storage = MemoryStorage::new(1);
    let first = open_on(&storage, PartitionConfig::new()).expect("it opens");
    let error = open_on(&storage, PartitionConfig::new()).expect_err("it is in use");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    first.close().expect("it closes");
    open_on(&storage, PartitionConfig::new()).expect("it is free again");
}

#[test]
fn a_directory_that_is_not_writable() {
    let storage = MemoryStorage::new(1);
    storage.fail_from(0, Fault::Denied);
    let error = open_on(&storage, PartitionConfig::new()).expect_err("nothing may be written");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Fix);
    assert!(storage.paths().is_empty());
}

#[test]
fn a_format_version_that_is_not_known() {
    let storage = MemoryStorage::new(1);
    open_on(&storage, PartitionConfig::new()).expect("it opens").close().expect("it closes");
    let path = "data/wal-0/history.taffrail";
    let sound = storage.bytes_of(path).expect("it is there");
    let mut later = 99_u16.to_be_bytes().to_vec();
    later.extend_from_slice(b"whatever");
    let mut framed = b"TAFF".to_vec();
    framed.extend_from_slice(&crc32(&later).to_be_bytes());
    framed.extend_from_slice(&later);
    storage.set_bytes(path, &framed).expect("replaced");
    let error = open_on(&storage, PartitionConfig::new()).expect_err("another version");
    assert!(matches!(error, Error::UnsupportedVersion { found: 99, known: 1, .. }), "{error}");
    storage.set_bytes(path, &sound).expect("replaced");
    open_on(&storage, PartitionConfig::new()).expect("it opens again");
}

#[test]
fn messages_of_the_legacy_formats() {
    for magic in [0_u8, 1] {
        let storage = MemoryStorage::new(1);
        let mut body = vec![magic, 0];
        if magic == 1 {
            body.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
        }
        body.extend_from_slice(&(-1_i32).to_be_bytes());
        body.extend_from_slice(&5_i32.to_be_bytes());
        body.extend_from_slice(b"value");
        let mut crc = crc32(&body).to_be_bytes().to_vec();
        crc.extend_from_slice(&body);
        let mut message = 0_i64.to_be_bytes().to_vec();
        message.extend_from_slice(&i32::try_from(crc.len()).expect("small").to_be_bytes());
        message.extend_from_slice(&crc);
        storage.set_bytes("data/wal-0/00000000000000000000.log", &message).expect("placed");
        let error = open_on(&storage, PartitionConfig::new()).expect_err("it is not read");
        assert!(
            matches!(error, Error::LegacyFormat { position: 0, magic: found, .. } if found.cast_unsigned() == magic),
            "{error}"
        );
        let left = storage.bytes_of("data/wal-0/00000000000000000000.log").expect("it is there");
        assert_eq!(&left[..], &message[..], "nothing was cut");
    }
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(not(feature = "zstd"))]
#[test]
fn a_codec_that_is_compiled_out() {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    builder.push(&Record::new("v")).expect("small");
    let error = open(PartitionConfig::new()).append(&mut builder).expect_err("compiled out");
    assert!(matches!(error, Error::CodecDisabled { codec: "zstd" }), "{error}");
}

#[cfg(feature = "zstd")]
#[test]
fn a_batch_that_decompresses_beyond_the_bound() {
    let partition = open(PartitionConfig::new());
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    let zeros = vec![0; 100_000];
    builder.push(&Record::new(&zeros)).expect("it fits");
    partition.append(&mut builder).expect("compressed it is small").wait().expect("stored");
    partition.set_config(PartitionConfig::new().decompressed_bytes_max(10_000)).expect("changed");
    let error = partition.read(Offset(0), ReadOptions::new()).expect_err("too much");
    assert!(matches!(error, Error::DecompressionBound { limit: 10_000, .. }), "{error}");
}

#[test]
fn a_clock_that_goes_backwards_does_no_harm() {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(NOW));
    let config = PartitionConfig::new()
        .timestamp_type(TimestampType::LogAppendTime)
        .segment_age(Some(Duration::from_secs(1)))
        .retention(Retention::forever().age(Duration::from_secs(10)));
    let partition =
        Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock.clone()).open();
    let partition = partition.expect("it opens");
    for (offset, wall) in (0..).zip([NOW.0, NOW.0 - 500_000, NOW.0 - 900_000, NOW.0 + 5_000, 0]) {
        clock.set_wall(Timestamp(wall));
        let appended = partition.append(&mut batch(&[Record::new("v")])).expect("taken");
        assert_eq!(appended.offsets.start, Offset(offset));
        appended.wait().expect("stored");
        partition.maintain(taffrail::Clock::now(&*clock)).expect("maintained");
    }
    let fetched = partition.read(partition.start(), ReadOptions::new()).expect("readable");
    assert!(fetched.records().next().is_some());
}

#[test]
fn a_configuration_that_contradicts_itself() {
    let second = Some(Duration::from_secs(1));
    for (setting, config) in [
        ("segment_bytes", PartitionConfig::new().segment_bytes(10)),
        ("segment_bytes", PartitionConfig::new().segment_bytes(u32::MAX)),
        ("batch_bytes_max", PartitionConfig::new().batch_bytes_max(0)),
        ("index_bytes_max", PartitionConfig::new().index_bytes_max(20)),
        (
            "timestamp_type",
            PartitionConfig::new().timestamp_type(TimestampType::LogAppendTime).timestamp_after_max(second),
        ),
        ("retention", PartitionConfig::new().cleanup(Cleanup::Compact).retention(Retention::forever().bytes(1))),
    ] {
        let storage = MemoryStorage::new(1);
        let error = open_on(&storage, config).expect_err(setting);
        assert!(matches!(error, Error::InvalidConfig { setting: found, .. } if found == setting), "{error}");
        assert!(storage.paths().is_empty(), "nothing was touched");
    }
}

#[test]
fn names_that_are_not_partitions() {
    for name in ["wal", "wal-", "wal-x", "-0", "wa l-0", "wal-99999999999"] {
        let storage = MemoryStorage::new(1);
        let error = Partition::builder(name).storage(storage.shared()).open().expect_err(name);
        assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error}");
    }
}

#[test]
fn use_after_close() {
    let partition = open(PartitionConfig::new());
    let other = partition.clone();
    partition.close().expect("it closes");
    assert!(matches!(other.append(&mut batch(&[Record::new("v")])), Err(Error::Closed)));
    assert!(matches!(other.read(Offset(0), ReadOptions::new()), Err(Error::Closed)));
    assert!(matches!(other.reopen(), Err(Error::Closed)));
    assert!(matches!(other.sync(), Err(Error::Closed)));
    other.close().expect("closing twice is no error");
}

#[test]
fn the_policy_is_kept() {
    let partition = open(PartitionConfig::new().cleanup(Cleanup::Compact));
    assert!(matches!(partition.delete_records(None), Err(Error::Policy(_))));
    assert!(matches!(partition.commit_to(Offset(0)), Err(Error::Policy(_))));
    let partition = open(PartitionConfig::new().commits(Commits::ByHost));
    assert!(matches!(partition.commit_to(Offset(1)), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(partition.begin_epoch(LeaderEpoch(0)), Err(Error::Policy(_))));
}

/// What another copy sends is checked before anything is written.
#[test]
fn a_replicas_nonsense() {
    let partition = open(PartitionConfig::new());
    let mut builder = batch(&[Record::new("a").timestamp(NOW), Record::new("b").timestamp(NOW)]);
    builder.base_offset(Offset(0));
    builder.leader_epoch(LeaderEpoch(0));
    let sound = builder.encode().expect("it encodes").to_vec();
    for byte in 0..sound.len() {
        for bit in 0..8 {
            let mut bytes = sound.clone();
            bytes[byte] ^= 1 << bit;
            let before = partition.end();
            if partition.append_replica(&bytes, LeaderEpoch(0)).is_err() {
                assert_eq!(partition.end(), before);
            } else {
                // Outside of the checksum lie the base offset, the length (a shorter piece then) and the epoch.
                assert!(byte < 16, "byte {byte} bit {bit} passed");
                partition.truncate_from(Offset(0), taffrail::Force::Yes).expect("cut again");
            }
        }
    }
    for cut in 0..sound.len() {
        let appended = partition.append_replica(&sound[..cut], LeaderEpoch(0)).expect("a piece is left out");
        assert!(appended.offsets.is_empty());
    }
    let appended = partition.append_replica(&sound, LeaderEpoch(0)).expect("it is sound");
    assert_eq!(appended.offsets, Offset(0)..Offset(2));
    let error = partition.append_replica(&sound, LeaderEpoch(0)).expect_err("again");
    assert!(matches!(error, Error::UnexpectedEnd { .. }), "{error}");
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(taffrail::UpTo::LogEnd);
    assert_eq!(partition.read(Offset(0), options).expect("readable").records().count(), 2);
}

/// The storage trait is an object: hosts bring their own.
#[test]
fn storage_is_an_object() {
    let storage: Arc<dyn Storage> = MemoryStorage::new(3).shared();
    Partition::builder("wal-0").storage(storage).open().expect("it opens").close().expect("it closes");
}
