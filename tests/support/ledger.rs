//! What a test knows of a partition: what was ever appended where, what was acknowledged, what a reader saw.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::collections::BTreeMap;

use taffrail::{BatchBuilder, Isolation, Offset, Partition, ReadOptions, Record, UpTo};

/// A batch, by the values of its records.
pub type Values = Vec<Vec<u8>>;

/// The history of one partition as its user knows it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Every batch that was ever handed in for an offset; more than one where truncation or a crash gave it away.
    pub attempted: BTreeMap<u64, Vec<Values>>,
    /// Records whose storage was acknowledged.
    pub acknowledged: BTreeMap<u64, Vec<u8>>,
    /// Records that a reader was given below the high watermark.
    pub seen: BTreeMap<u64, Vec<u8>>,
    /// The highest offset that a removal from the front was ever asked to reach.
    pub start_at_most: u64,
    /// The log start that the last completed removal left.
    pub start_at_least: u64,
    next_value: u64,
}

/// What a read of everything gives: the batches' base offsets with the values of their records.
pub type Content = BTreeMap<u64, Values>;

impl Ledger {
    /// A batch of `records` records whose values have never been used before, about `bytes` long each.
    pub fn batch(&mut self, records: u64, bytes: usize) -> (BatchBuilder, Values) {
        let mut builder = BatchBuilder::new();
        let mut values = Values::new();
        for _ in 0..records {
            let mut value = format!("value-{}-", self.next_value).into_bytes();
            value.resize(value.len().max(bytes), b'.');
            self.next_value += 1;
            let stamp = taffrail::Timestamp(1_000 + self.next_value.cast_signed());
            builder.push(&Record::new(&value).key("key").timestamp(stamp)).expect("a record of the test fits");
            values.push(value);
        }
        (builder, values)
    }

    /// The batch is about to be appended at the partition's end.
    pub fn attempt(&mut self, at: Offset, values: &Values) {
        self.attempted.entry(at.0).or_default().push(values.clone());
    }

    /// The batch is acknowledged.
    pub fn acknowledge(&mut self, at: Offset, values: &Values) {
        for (offset, value) in (at.0..).zip(values) {
            self.acknowledged.insert(offset, value.clone());
        }
    }

    /// A forced truncation is about to take the records from `offset` on back: they may be there or not from now on.
    pub fn forget_from(&mut self, offset: u64) {
        self.acknowledged.retain(|at, _| *at < offset);
        self.seen.retain(|at, _| *at < offset);
    }

    /// A truncation to `end` has returned: what it took back never comes again.
    pub fn truncated_to(&mut self, end: Offset) {
        self.attempted.retain(|at, _| *at < end.0);
    }

    /// Reads what a reader is given now, and remembers it.
    pub fn look(&mut self, partition: &Partition) {
        let options = ReadOptions::new().isolation(Isolation::Uncommitted);
        let mut at = partition.start();
        while let Ok(fetched) = partition.try_read(at, options) {
            for record in &fetched {
                self.seen.insert(record.offset().0, record.value().expect("values are not null").to_vec());
            }
            if fetched.is_empty() {
                break;
            }
            at = fetched.next_offset();
        }
    }

    /// Everything that must be true of a partition that was reopened after a crash, or after a kill.
    pub fn check(&self, partition: &Partition) -> Content {
        let content = content(partition);
        let start = partition.start().0;
        assert!(
            start <= self.start_at_most,
            "the log starts at {start}, nothing asked for more than {}",
            self.start_at_most
        );
        assert!(start >= self.start_at_least, "the log starts at {start} again, below {}", self.start_at_least);
        for (base, values) in &content {
            let attempted = self.attempted.get(base).map(Vec::as_slice).unwrap_or_default();
            assert!(attempted.contains(values), "at offset {base} stands what was never appended there");
        }
        let records = records(&content);
        Self::check_there("acknowledged", &self.acknowledged, &records, start);
        Self::check_there("seen by a reader", &self.seen, &records, start);
        content
    }

    fn check_there(what: &str, known: &BTreeMap<u64, Vec<u8>>, records: &BTreeMap<u64, Vec<u8>>, start: u64) {
        for (offset, value) in known.range(start..) {
            let found = records.get(offset).map(|value| String::from_utf8_lossy(value));
            let expected = String::from_utf8_lossy(value);
            assert_eq!(found.as_deref(), Some(&*expected), "the record {what} at offset {offset}");
        }
    }
}

/// Reads everything up to the log's end. Offsets rise and leave nothing out; no batch is half there.
pub fn content(partition: &Partition) -> Content {
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd).max_bytes(10_000);
    let mut content = Content::new();
    let mut at = partition.start();
    let mut due = None;
    while at < partition.end() {
        // The fault that a test injects may meet the check itself: it comes once.
        let fetched = partition.try_read(at, options).or_else(|_| partition.try_read(at, options));
        let fetched = fetched.expect("a recovered log reads");
        assert!(!fetched.is_empty(), "nothing at offset {at} of a log that ends at {}", partition.end());
        for batch in fetched.batches() {
            let header = batch.header();
            let base = header.base_offset();
            assert!(due.is_none_or(|due| due == base), "offset {base} follows, {due:?} was due");
            due = Some(header.next_offset());
            let values: Values = batch.records().map(|record| record.value().expect("not null").to_vec()).collect();
            assert_eq!(values.len() as u64, header.next_offset().0 - base.0, "the batch at {base} is half there");
            content.insert(base.0, values);
        }
        at = fetched.next_offset();
    }
    content
}

/// The records of some content, by offset.
pub fn records(content: &Content) -> BTreeMap<u64, Vec<u8>> {
    content.iter().flat_map(|(base, values)| (*base..).zip(values.iter().cloned())).collect()
}
