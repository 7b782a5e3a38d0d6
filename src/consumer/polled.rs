//! What one poll hands out: records of one partition, and where they came from.
//!
//! Invariant: it holds at least one record to show, or it is empty because nothing came.

use std::sync::Arc;

use crate::partition::{Fetched, FetchedRecords};
use crate::record::decode::RecordView;
use crate::types::Offset;

/// Records of one partition. It keeps their bytes alive by itself, and with them the files that they lie in: whatever
/// happens to the log, they do not change. Iterating cannot fail: everything in it was checked.
///
/// Where time ran out before anything came it is empty: [`Polled::is_empty`].
#[derive(Clone, Debug, Default)]
#[doc(alias = "ConsumerRecords")]
pub struct Polled {
    topic: Arc<str>,
    partition: u32,
    fetched: Fetched,
}

impl Polled {
    /// What was fetched from a partition; there is a record in it to show.
    pub(super) fn new(topic: Arc<str>, partition: u32, fetched: Fetched) -> Self {
        Self { topic, partition, fetched }
    }

    /// The topic of the records; the empty string where there are none.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition of the records, from 0; of no meaning where there are none.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Where reading goes on behind these records; of no meaning where there are none.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.fetched.next_offset()
    }

    /// The partition's high watermark when they were read; of no meaning where there are none.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.fetched.high_watermark()
    }

    /// Whether nothing came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fetched.is_empty()
    }

    /// Iterates over [`Polled::records`].
    pub fn iter(&self) -> FetchedRecords<'_> {
        self.records()
    }

    /// The records, in order: those that the reader's isolation shows.
    pub fn records(&self) -> FetchedRecords<'_> {
        self.fetched.records()
    }
}

impl<'a> IntoIterator for &'a Polled {
    type Item = RecordView<'a>;
    type IntoIter = FetchedRecords<'a>;

    fn into_iter(self) -> FetchedRecords<'a> {
        self.records()
    }
}
