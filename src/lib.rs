//! Kafka's log inside your own process.
//!
//! A [`Partition`] is an append-only log of records in one directory. It is opened like a file, says when a record is
//! stored ([`Appended::wait`]) and what that is worth ([`Durability`]), survives crashes, and lies on the disk in
//! Apache Kafka's own formats: a directory copied from a broker opens, and what is written here can be handed to one.
//!
//! ```
//! use taffrail::{BatchBuilder, Partition, PartitionConfig, ReadOptions, Record};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("wal-0");
//! let partition = Partition::open(&path, PartitionConfig::default())?;
//! let mut batch = BatchBuilder::new();
//! batch.push(&Record::new("placed").key("customer-7"))?;
//! let appended = partition.append(&mut batch)?; // has its offsets, is in the page cache
//! let first = appended.offsets.start;
//! appended.wait()?; // stored as `Durability` says; one sync serves all who wait
//! for record in &partition.read(first, ReadOptions::default())? {
//!     println!("{} {:?}", record.offset(), record.value_str());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The layers
//!
//! ```text
//!  Partition   log, readers, retention, truncation, recovery      Segment   one .log file and its sparse indexes
//!  Storage     files and directories: the operating system's ([`FileStorage`]), in memory ([`MemoryStorage`]), yours
//!  Batches     Kafka's record batches: parsed and checked ([`Batches`], [`Records`]), built ([`BatchBuilder`])
//! ```
//!
//! Each is public and usable without those above it.
//!
//! # What a database needs
//!
//! - writing: [`Partition::append`], [`Partition::append_at`] (if the end is where it is expected),
//!   [`Partition::append_replica`] (offsets and epochs kept), [`Partition::sync_to`], [`Partition::sync_many`];
//! - reading: [`Partition::read`] (waits on demand), [`Partition::try_read`], [`Partition::find_timestamp`];
//! - the front: [`Partition::trim_before`], [`Partition::hold`], [`Partition::remove_while`], [`Retention`];
//! - the end: [`Partition::truncate_from`], [`Partition::epoch_end`], and for a host with a consensus of its own
//!   [`Commits::ByHost`] with [`Partition::commit_to`] and [`Partition::begin_epoch`];
//! - operation: [`Partition::maintain`], [`Partition::reopen`], [`Partition::export`], [`Partition::stats`],
//!   [`Partition::recovery`].
//!
//! # When something goes wrong
//!
//! Every fallible call answers an [`Error`] that says where it happened; [`Error::kind`] says what to do. A failed sync
//! or a write that could not be undone fences the partition until [`Partition::reopen`]. Damaged bytes are
//! [`Error::Corrupt`], with the offsets that cannot be read; reading goes on behind them. Nothing is deleted by being
//! read, and nothing is skipped in silence.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod config;
mod consumer;
mod controller;
mod epochs;
mod error;
mod log;
mod machine;
mod mutants;
mod node;
mod partition;
mod producer;
pub mod quorum;
mod random;
mod record;
mod segment;
mod storage;
mod sync;
#[cfg(feature = "testkit")]
pub mod testkit;
mod trace;
mod types;

pub use clock::{Clock, ManualClock, Moment, Now, SystemClock};
pub use config::{
    Cleanup, Commits, Durability, PartitionConfig, Retention, SettingDifference, TimestampType, TopicConfig,
};
pub use consumer::{OutOfRange, Polled, Position, Reader, ReaderBuilder, StartAt, Which};
pub use epochs::Epochs;
pub use error::{Corruption, Error, ErrorKind, Result};
pub use log::{Ensured, Log, LogBuilder, PartitionsAdded, TopicDescription};
pub use partition::{
    Appended, Cut, DamagedRange, Fetched, FetchedRecords, Force, Found, Hold, Maintenance, Partition, PartitionBuilder,
    ReadOptions, Recovery, RemovalReason, Removed, SegmentSummary, Stats, UpTo,
};
pub use producer::{
    Choice, Delivery, Murmur2, Partitioner, Producer, ProducerBuilder, Spread, Stored, WhenFull, murmur2,
};
pub use record::batch::{BatchHeader, HEADER_BYTES, set_base_offset, set_leader_epoch, verify_checksum};
pub use record::batches::{Batch, BatchIter, Batches};
pub use record::builder::{BatchBuilder, Record};
pub use record::control::{ControlRecord, Marker, Outcome, marker_batch};
pub use record::decode::{Header, Headers, RecordView, Records};
pub use segment::{
    AbortedTransaction, Damage, Incoming, IndexEntry, OffsetIndex, ReadBounds, RecoveryChecks, RecoveryMode,
    RecoveryOptions, RollReason, Segment, SegmentBatches, SegmentConfig, SegmentReader, SegmentRecovery, Stop,
    TimeIndex, TimeIndexEntry, TxnIndex,
};
pub use storage::{
    BootId, Entry, Fault, FileStorage, LockMode, MemoryStorage, Operation, OperationKind, Reads, Storage, StorageFile,
    StorageLock,
};
pub use types::{
    Acks, Compression, Isolation, LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
    TopicPartition,
};

/// The program in the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
