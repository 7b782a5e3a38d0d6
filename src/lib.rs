//! Kafka's log inside your own process.
//!
//! A [`Log`] is a directory of topics, each of them divided into partitions: append-only logs of records. A
//! [`Producer`] publishes to them, a [`Consumer`] shares them with the others of its group, a [`Reader`] reads from any
//! offset or point in time. It is opened like a file, says when a record is stored ([`Delivery::wait`]) and what that is worth ([`Durability`], [`Acks`]), survives crashes, and
//! lies on the disk in Apache Kafka's own formats: directories copied from a broker are adopted, and what is written
//! here can be handed to one.
//!
//! ```
//! use std::time::Duration;
//! use taffrail::{Log, Record, TopicConfig};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("data");
//! let log = Log::open(&path)?;
//! log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
//!
//! let producer = log.producer().open()?;
//! let stored = producer.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
//! println!("stored in partition {} at offset {}", stored.partition, stored.offset);
//!
//! let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
//! for record in &consumer.poll(Duration::from_secs(1))? {
//!     println!("{} {:?}", record.offset(), record.value_str());
//! }
//! consumer.commit()?;
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The layers
//!
//! ```text
//!  Log         topics and their settings; one process at a time, threads of its own or none
//!  Producer    batches per partition, in order of key         Consumer  its group's part of them, and where the group stands
//!  Transaction records and positions, all or none             Reader    positions in many partitions, in turns
//!  Partition   one log: append, read, retention, truncation, recovery
//!  Segment     one .log file and its sparse indexes
//!  Storage     files and directories: the operating system's, in memory, yours
//!  Batches     Kafka's record batches: parsed and checked, built
//! ```
//!
//! Each is public, and those from [`Partition`] down are usable without those above them: a partition is opened alone in
//! its directory ([`Partition::open`]), or borrowed from a log ([`Log::partition`]). [`Segment`] reads and recovers a
//! file; [`FileStorage`] and [`MemoryStorage`] are the two [`Storage`]s that are here; [`Batches`], [`Records`] and
//! [`BatchBuilder`] are the bytes.
//!
//! One partition by itself, without topics or threads:
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
//! # Groups
//!
//! - reading: [`Log::consumer`], [`Consumer`]: at most once, at least once, exactly once ([`Transaction::commit_progress`]);
//! - watching: [`Log::lag`], [`Log::monitor`], [`Log::stats`]; keeping for them: [`Retention::hold_for`];
//! - setting: [`Log::groups`], [`Log::describe_group`], [`Log::reset_group`], [`Log::delete_group`], [`GroupConfig`].
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
//! Every fallible call answers an [`Error`] that says where it happened; [`Error::kind`] says what to do.
//!
//! - A record that could not be stored: its [`Delivery`] answers why, and so does [`Producer::flush`]. Batches behind it
//!   go on.
//! - A failed sync, or a write that could not be undone, fences that partition until [`Log::reopen`] or
//!   [`Partition::reopen`]: it is read, and takes no writes ([`Error::Poisoned`]). Other partitions go on.
//! - Damaged bytes are [`Error::Corrupt`], with the offsets that cannot be read; a [`Reader::seek`] to the end of these
//!   goes on behind them.
//! - A position that the retention has overtaken is [`Error::OffsetOutOfRange`] with both ends; one that the log was cut
//!   below is [`Error::Truncated`]. [`Log::monitor`] says long before that a group is about to be overtaken.
//! - A reader that meets any of these answers it when the turn of that partition comes, and goes on with the others.
//!
//! Nothing is deleted by being read, and nothing is skipped in silence. A log that was not closed is recovered by the
//! next open: what was acknowledged is there, and what was cut off behind it is said ([`Partition::recovery`]).
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod config;
mod consumer;
mod controller;
mod epochs;
mod error;
mod group;
mod lag;
mod log;
mod machine;
mod metrics;
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
mod txn;
mod types;

pub use clock::{Clock, ManualClock, Moment, Now, SystemClock};
pub use config::{
    CleanerConfig, Cleanup, Commits, Durability, GroupConfig, PartitionConfig, Ratio, Retention, SettingDifference,
    TimestampType, TopicConfig,
};
pub use consumer::{
    CommittedOffset, Consumer, ConsumerBuilder, OutOfRange, PollWaker, Polled, Position, Reader, ReaderBuilder,
    Rebalance, RebalanceListener, StartAt, Which,
};
pub use epochs::Epochs;
pub use error::{Corruption, Error, ErrorKind, Result};
pub use group::{Assignor, GroupState, Progress};
pub use lag::{Alert, Astray, GroupLag, Margin, Monitor, MonitorBuilder, PartitionLag, Rate, TotalLag};
pub use log::{
    Ensured, GroupDescription, GroupListing, GroupMember, GroupPosition, Log, LogBuilder, LogStats, MemberState,
    PartitionsAdded, ResetTo, TopicDescription,
};
pub use partition::{
    Appended, Compacting, Compaction, CompactionEnd, Cut, DamagedRange, Fetched, FetchedRecords, Force, Found, Hold,
    Maintenance, Partition, PartitionBuilder, ReadOptions, Recovery, RemovalReason, Removed, SegmentSummary, Stats,
    UpTo,
};
pub use producer::{
    Choice, Delivery, Murmur2, Partitioner, Producer, ProducerBuilder, Spread, Stored, Transaction,
    TransactionalProducer, TransactionalProducerBuilder, WhenFull, murmur2,
};
pub use record::batch::{BatchHeader, HEADER_BYTES, set_base_offset, set_leader_epoch, verify_checksum};
pub use record::batches::{Batch, BatchIter, Batches};
pub use record::builder::{BatchBuilder, Record};
pub use record::control::{ControlRecord, Marker, Outcome, TransactionVersion, marker_batch};
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

/// The programs in the README are compiled; the second one runs. (The first one runs in `tests/readme.rs`.)
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
