//! A partition as a broker left it: every batch, every offset, every timestamp lookup of Kafka's own log classes.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use support::segments::Rig;
use taffrail::{
    FileStorage, Offset, ReadBounds, RecoveryOptions, Segment, SegmentConfig, SegmentReader, Storage, Timestamp,
};

const INTERVAL: u32 = 4096;

struct Partition {
    expected: Value,
    segments: Vec<Segment>,
    epochs: Vec<(taffrail::LeaderEpoch, Offset)>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn config() -> SegmentConfig {
    SegmentConfig { index_interval_bytes: INTERVAL, ..SegmentConfig::default() }
}

/// Loads the fixture from a copy of it on `rig`, leaving out files that `skip` names.
fn partition(rig: &Rig, skip: impl Fn(&str) -> bool) -> Partition {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-partition-a");
    let expected: Value = serde_json::from_slice(&std::fs::read(fixture.join("expected.json")).unwrap()).unwrap();
    for entry in std::fs::read_dir(fixture.join("orders-0")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((base, extension)) = name.split_once('.').filter(|_| !skip(name)) else { continue };
        if let Ok(base) = base.parse() {
            rig.put(base, extension, &std::fs::read(&path).unwrap());
        }
    }
    let bases = expected["segments"].as_array().unwrap().iter().map(|s| number(&s["base_offset"]));
    let segments = bases.map(|base| rig.load(base, &config())).collect();
    let epochs = expected["leader_epochs"].as_array().unwrap().iter();
    let epochs = epochs
        .map(|e| (taffrail::LeaderEpoch(number(&e["epoch"]) as i32), Offset(number(&e["start_offset"]))))
        .collect();
    Partition { expected, segments, epochs }
}

impl Partition {
    fn readers(&self) -> impl Iterator<Item = (&Arc<SegmentReader>, ReadBounds<'_>)> {
        self.segments.iter().enumerate().map(|(at, segment)| {
            let next_base = self.segments.get(at + 1).map(Segment::base_offset);
            (segment.reader(), ReadBounds { next_base, epochs: Some(&self.epochs), ..ReadBounds::default() })
        })
    }

    fn batches(&self) -> BTreeMap<u64, Vec<&Value>> {
        let mut batches = BTreeMap::<_, Vec<_>>::new();
        for batch in self.expected["batches"].as_array().unwrap() {
            let base = batch["segment"].as_str().unwrap().trim_end_matches(".log").parse().unwrap();
            batches.entry(base).or_default().push(batch);
        }
        batches
    }
}

/// The same on every storage, with Kafka's indexes and without any.
fn each(check: impl Fn(&Rig, &Partition)) {
    for rig in support::segments::rigs() {
        check(&rig, &partition(&rig, |_| false));
        check(&rig, &partition(&rig, |name| name.ends_with("index") && !name.ends_with("txnindex")));
    }
}

#[test]
fn every_batch_is_read_where_it_lies() {
    each(|rig, partition| {
        let batches = partition.batches();
        for (reader, bounds) in partition.readers() {
            let expected = &batches[&reader.base_offset().0];
            let mut next = reader.base_offset();
            let mut found = Vec::new();
            while found.len() < expected.len() {
                let answer = reader.read(next, 3000, &bounds).unwrap();
                assert!(!answer.batches.is_empty(), "{}", rig.name);
                found.extend(answer.batches.iter().map(|batch| (*batch.header(), batch.records().count())));
                next = answer.next;
            }
            let mut position = 0;
            for ((header, records), expected) in found.iter().zip(expected) {
                assert_eq!(position, number(&expected["position"]));
                assert_eq!(header.size(), number(&expected["size"]));
                assert_eq!(header.base_offset().0, number(&expected["base_offset"]));
                assert_eq!(header.last_offset().0, number(&expected["last_offset"]));
                assert_eq!(format!("{:08x}", header.checksum()), expected["crc"].as_str().unwrap());
                assert_eq!(*records as u64, number(&expected["record_count"]));
                position += header.size();
            }
            assert_eq!(position, reader.size());
            let end = reader.read(next, 3000, &bounds).unwrap();
            assert!(end.batches.is_empty() && end.end_of_segment);
        }
    });
}

#[test]
fn every_offset_is_found() {
    each(|rig, partition| {
        let batches = partition.batches();
        for (reader, bounds) in partition.readers() {
            let expected = &batches[&reader.base_offset().0];
            let end = bounds.next_base.map_or(354, |next| next.0);
            for offset in reader.base_offset().0..end {
                let holder = expected.iter().find(|batch| number(&batch["last_offset"]) >= offset);
                let found = reader.read(Offset(offset), 1, &bounds).unwrap();
                let base = found.batches.iter().next().map(|batch| batch.header().base_offset().0);
                assert_eq!(base, holder.map(|batch| number(&batch["base_offset"])), "{} {offset}", rig.name);
                let position = reader.position_of(Offset(offset), &bounds).unwrap();
                assert_eq!(position, holder.map(|batch| number(&batch["position"])));
            }
        }
    });
}

#[test]
fn every_timestamp_is_found_where_kafka_finds_it() {
    each(|rig, partition| {
        for lookup in partition.expected["timestamp_lookups"].as_array().unwrap() {
            let wanted = Timestamp(lookup["timestamp"].as_i64().unwrap());
            let hit = partition.readers().find_map(|(reader, bounds)| {
                let largest = reader.largest_timestamp().unwrap();
                assert_eq!(largest, reader.largest_timestamp_by_headers().unwrap());
                let found = reader.find_timestamp(wanted, Offset(0), &bounds).unwrap();
                assert_eq!(found.is_some(), largest >= Some(wanted), "{} {wanted}", rig.name);
                found
            });
            let expected = lookup["found"].as_object().map(|found| {
                let epoch = taffrail::LeaderEpoch(number(&found["leader_epoch"]) as i32);
                (Timestamp(found["timestamp"].as_i64().unwrap()), Offset(number(&found["offset"])), Some(epoch))
            });
            assert_eq!(hit, expected, "{} {wanted}", rig.name);
        }
    });
}

#[test]
fn aborted_transactions_are_those_of_the_index_files() {
    each(|_, partition| {
        let found: Vec<_> = partition.readers().flat_map(|(reader, _)| reader.aborted().unwrap().to_vec()).collect();
        let expected = partition.expected["aborted_transactions"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.producer_id.0, expected["producer_id"].as_i64().unwrap());
            assert_eq!(found.first_offset.0, number(&expected["first_offset"]));
            assert_eq!(found.last_offset.0, number(&expected["last_offset"]));
            assert_eq!(found.last_stable_offset.0, number(&expected["last_stable_offset"]));
        }
    });
}

/// A recovery finds nothing wrong, and the same ends.
#[test]
fn a_recovery_finds_everything_valid() {
    for rig in support::segments::rigs() {
        let Partition { expected, mut segments, .. } = partition(&rig, |_| false);
        let bases: Vec<_> = segments.iter().map(Segment::base_offset).collect();
        for (at, segment) in segments.iter_mut().enumerate() {
            let options = bases.get(at + 1).map_or(RecoveryOptions::active(), |next| RecoveryOptions::sealed(*next));
            let recovery = segment.recover(&options, &mut ()).unwrap();
            let expected = &expected["segments"][at];
            assert_eq!(recovery.stop, None);
            assert_eq!(recovery.damaged, []);
            assert_eq!(recovery.batches, number(&expected["batches"]));
            assert_eq!(recovery.valid_bytes, number(&expected["size"]));
            assert_eq!(recovery.next_offset, Some(Offset(number(&expected["next_offset"]))));
        }
    }
}

/// [`Segment::open`] looks into one file by itself.
#[test]
fn a_segment_opens_by_its_path() {
    let rig = support::segments::rigs().remove(1);
    let partition = partition(&rig, |_| false);
    let path = partition.segments[3].reader().path();
    let segment = Segment::open(&path).unwrap();
    assert_eq!(segment.base_offset(), Offset(251));
    assert_eq!(segment.index().entries(), partition.segments[3].index().entries());
    assert!(Segment::open(path.with_extension("index")).is_err());
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new());
    assert!(Segment::load(&storage, rig.directory.as_path(), Offset(1), 0, &config()).is_err());
}
