//! What compaction leaves, against Kafka's bytes.

use bytes::Bytes;

use super::*;
use crate::record::batches::Batches;
use crate::record::builder::{BatchBuilder, Record};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

const T: i64 = 1_700_000_000_000;

fn golden(name: &str) -> Vec<u8> {
    let json: serde_json::Value = serde_json::from_str(include_str!("../../../tests/data/batches.json")).unwrap();
    let text = json[name]["batch_hex"].as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Up to ten records from offset `base` on, the third a tombstone, at T, T + 1, ..., as L and M were before they
/// were compacted.
fn original(base: u64, count: usize, first: Sequence) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.base_offset(Offset(base));
    builder.leader_epoch(LeaderEpoch(2));
    builder.producer(ProducerId(77), ProducerEpoch(0), first);
    for (key, time) in ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"].iter().zip(T..).take(count) {
        let record = if *key == "k2" { Record::tombstone(key) } else { Record::new("v5").key(key) };
        let time = match *key {
            "k5" => T + 7,
            "k4" if count == 5 => T + 40,
            _ => time,
        };
        builder.push(&record.timestamp(Timestamp(time))).unwrap();
    }
    builder.encode().unwrap().to_vec()
}

fn rewrite(bytes: &[u8], horizon: Option<i64>, keep: impl Fn(u64) -> bool) -> Vec<u8> {
    let batches = Batches::parse(Bytes::copy_from_slice(bytes), 1 << 20).unwrap();
    let batch = batches.iter().next().unwrap();
    let mut rewriter = Rewriter::default();
    rewriter.begin(batch.header(), horizon.map(Timestamp));
    for record in batch.records().filter(|record| keep(record.offset().0)) {
        rewriter.push(&record).unwrap();
    }
    rewriter.finish().unwrap().to_vec()
}

#[test]
fn gaps_and_a_horizon_are_kafkas_bytes() {
    let expected = golden("L_compacted_gap_delete_horizon");
    let bytes = original(200, 10, Sequence(10));
    assert_eq!(rewrite(&bytes, Some(T + 86_400_000), |offset| offset == 202 || offset == 205), expected);
}

#[test]
fn a_horizon_is_set_once() {
    let expected = golden("L_compacted_gap_delete_horizon");
    assert_eq!(rewrite(&expected, Some(T + 999_999_999), |_| true), expected);
}

#[test]
fn a_batch_without_records_is_kafkas_bytes() {
    let bytes = rewrite(&original(300, 5, Sequence(20)), Some(T + 86_400_000), |_| false);
    assert_eq!(bytes, golden("M_empty_retained"));
}

#[test]
fn without_a_horizon_times_count_from_the_first_record_kept() {
    let bytes = rewrite(&original(200, 10, Sequence(10)), None, |offset| offset == 203 || offset == 204);
    let batches = Batches::parse(Bytes::from(bytes), 1 << 20).unwrap();
    let header = *batches.iter().next().unwrap().header();
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (T + 3, Some(Timestamp(T + 4))));
    assert_eq!((header.last_offset(), header.delete_horizon()), (Offset(209), None));
}

#[test]
fn the_logs_own_time_stays() {
    let kept = rewrite(&golden("K_log_append_time"), None, |offset| offset == 10);
    let batches = Batches::parse(Bytes::from(kept), 1 << 20).unwrap();
    let batch = batches.iter().next().unwrap();
    assert_eq!(batch.header().max_timestamp(), Some(Timestamp(T + 1234)));
    assert_eq!(batch.records().next().unwrap().timestamp(), Some(Timestamp(T + 1234)));
}
