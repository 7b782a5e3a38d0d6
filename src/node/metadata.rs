//! The partition that the catalogue's quorum keeps its journal in, and the snapshot beside it.
//!
//! ```text
//!   <log>/__taffrail_metadata-0/*.log                 the journal's records (quorum/record.rs), one batch a persist
//!   <log>/__taffrail_metadata-0/catalogue.taffrail    the latest snapshot, version 0:
//!
//!      byte  0  8  index  of the last entry that is in it
//!            8  4  epoch  of that entry
//!           12  .. the machine's snapshot
//! ```
//!
//! A snapshot is durable before the journal's marker says so; then the journal is written again behind it, and the
//! partition trimmed. Damage in the middle of this partition is an error at open: cutting it would lose topics.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::home::{Home, OWN_PREFIX};
use crate::clock::Clock;
use crate::config::{Durability, PartitionConfig};
use crate::error::{Error, Result};
use crate::machine::fields::Fields;
use crate::partition::{Books, InLog, Partition, ReadOptions, Receipt, UpTo};
use crate::quorum::record::Record as JournalRecord;
use crate::quorum::{EntryId, Journal, Persist, Replay};
use crate::record::builder::{BatchBuilder, Record};
use crate::storage::checkpoint::{read_own, write_own};
use crate::types::{LeaderEpoch, Offset, TopicId};

const SNAPSHOT: &str = "catalogue.taffrail";
const SNAPSHOT_VERSION: u16 = 0;
/// A hundred thousand topics with long names and every setting fit.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// The topic's id: Kafka's own metadata topic has 1 as its last byte too.
const TOPIC: TopicId = TopicId(*b"taffrail\0\0\0\0\0\0\0\x01");
const SEGMENT_BYTES: u32 = 16 << 20;
/// The journal is written again in batches of about this many bytes.
const BATCH_BYTES: usize = 512 << 10;

/// The journal on the disk.
#[derive(Debug)]
pub(super) struct Metadata {
    partition: Partition,
    storage: Arc<dyn crate::storage::Storage>,
    path: std::path::PathBuf,
    clock: Arc<dyn Clock>,
    builder: BatchBuilder,
}

/// A machine's snapshot, and the last entry that is in it.
pub(super) type Snapshot = (EntryId, Bytes);

impl Metadata {
    /// Opens the partition; creates it where it is missing.
    pub(super) fn open(home: &Home, books: &Arc<Books>, clock: &Arc<dyn Clock>) -> Result<Self> {
        let path = home.path(&format!("{OWN_PREFIX}metadata-0"));
        let log = InLog { books: Arc::clone(books), topic: TOPIC, unsynced: None, refuses_damage: true };
        let config = PartitionConfig::new()
            .durability(Durability::Sync)
            .segment_bytes(SEGMENT_BYTES)
            .batch_bytes_max(SEGMENT_BYTES);
        let partition = Partition::builder(&path)
            .config(config)
            .storage(Arc::clone(&home.storage))
            .clock(Arc::clone(clock))
            .in_log(log)
            .open()?;
        home.sync()?;
        Ok(Self {
            partition,
            storage: Arc::clone(&home.storage),
            path,
            clock: Arc::clone(clock),
            builder: BatchBuilder::new(),
        })
    }

    pub(super) const fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the journal, and the snapshot that it begins behind.
    pub(super) fn load(&self) -> Result<(Journal, Option<Snapshot>)> {
        let mut replay = Replay::default();
        let mut offset = self.partition.start();
        let options = ReadOptions::new().up_to(UpTo::LogEnd);
        while offset < self.partition.end() {
            let fetched = self.partition.try_read(offset, options)?;
            for record in &fetched {
                let taken = replay.take(record.value().unwrap_or_default());
                taken.map_err(|reason| self.corrupt(record.offset(), reason))?;
            }
            offset = fetched.next_offset();
        }
        let journal = replay.finish().map_err(|reason| self.corrupt(offset, reason))?;
        let snapshot = self.load_snapshot(&journal)?;
        Ok((journal, snapshot))
    }

    /// The snapshot may be newer than the journal's marker, where a crash came between the two; never older.
    fn load_snapshot(&self, journal: &Journal) -> Result<Option<Snapshot>> {
        let path = self.path.join(SNAPSHOT);
        let bytes = read_own(&*self.storage, &path, SNAPSHOT_VERSION, SNAPSHOT_BYTES_MAX)?;
        let snapshot = bytes.map(|bytes| parse_snapshot(&bytes)).transpose();
        let snapshot = snapshot.map_err(|reason| self.corrupt(journal.start(), reason))?;
        // Everything that a snapshot has was in the journal, synced, before it was taken; new entries would be passed over.
        if let Some((at, _)) = snapshot.as_ref().filter(|(at, _)| at.index >= journal.end()) {
            return Err(
                self.corrupt(journal.end(), format!("the journal ends there, the snapshot has entries up to {at}"))
            );
        }
        // Only a compaction trims the partition, behind the marker of its snapshot.
        if self.partition.start() > Offset::ZERO && journal.snapshot().is_none() {
            let reason = format!("the log begins at {}, and no snapshot says why", self.partition.start());
            return Err(self.corrupt(self.partition.start(), reason));
        }
        let has = |at: EntryId| snapshot.as_ref().is_some_and(|(found, _)| *found >= at);
        match journal.snapshot() {
            Some(at) if !has(at) => Err(self.corrupt(journal.start(), format!("the snapshot up to {at} is missing"))),
            _ => Ok(snapshot),
        }
    }

    /// Appends what an engine wants kept. It is to be synced.
    pub(super) fn append(&mut self, persist: &Persist) -> Result<Receipt> {
        let records: Vec<_> = JournalRecord::of(persist).collect();
        self.append_records(&records)
    }

    fn append_records(&mut self, records: &[JournalRecord]) -> Result<Receipt> {
        self.builder.clear();
        self.builder.stamp(self.clock.wall());
        for record in records {
            self.builder.push(&Record::new(&record.encode()))?;
        }
        let appended = self.partition.append(&mut self.builder)?;
        Ok(appended.receipt())
    }

    /// Makes a snapshot durable, and writes the journal, which has its marker already, behind it.
    pub(super) fn compact(&mut self, journal: &Journal, at: EntryId, snapshot: &[u8]) -> Result<()> {
        let mut content = Vec::with_capacity(12 + snapshot.len());
        content.extend_from_slice(&at.index.to_i64().to_be_bytes());
        content.extend_from_slice(&at.epoch.0.to_be_bytes());
        content.extend_from_slice(snapshot);
        write_own(&*self.storage, &self.path.join(SNAPSHOT), SNAPSHOT_VERSION, &content)?;
        self.partition.roll()?;
        let begin = self.partition.end();
        let mut batch = Vec::new();
        let mut bytes = 0;
        for record in journal.records() {
            bytes += record.encode().len();
            batch.push(record);
            if bytes >= BATCH_BYTES {
                self.append_records(&std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.append_records(&batch)?;
        }
        self.partition.sync()?;
        self.partition.trim_before(begin).map(drop)
    }

    pub(super) fn corrupt(&self, offset: Offset, reason: impl Into<String>) -> Error {
        Error::CorruptCatalogue { path: self.path.clone(), offset, reason: reason.into() }
    }
}

fn parse_snapshot(bytes: &Bytes) -> std::result::Result<Snapshot, String> {
    let mut fields = Fields::of(bytes);
    let index = Offset::from_i64(fields.i64("the snapshot's index")?).ok_or("the snapshot's index is negative")?;
    let epoch = LeaderEpoch::from_i32(fields.i32("the snapshot's epoch")?).ok_or("the snapshot's epoch is negative")?;
    let content = bytes.slice(bytes.len() - fields.rest().len()..);
    Ok((EntryId { index, epoch }, content))
}
