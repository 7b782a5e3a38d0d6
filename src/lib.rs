//! Kafka's log inside your own process.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod config;
mod epochs;
mod error;
mod partition;
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
pub use config::{Cleanup, Commits, Durability, PartitionConfig, Retention, TimestampType};
pub use epochs::Epochs;
pub use error::{Corruption, Error, ErrorKind, Result};
pub use partition::{
    Appended, Cut, DamagedRange, Fetched, FetchedRecords, Force, Found, Hold, Maintenance, Partition, PartitionBuilder,
    ReadOptions, Recovery, RemovalReason, Removed, SegmentSummary, Stats, UpTo,
};
pub use record::batch::{BatchHeader, HEADER_BYTES, set_base_offset, set_leader_epoch, verify_checksum};
pub use record::batches::{Batch, BatchIter, Batches};
pub use record::builder::{BatchBuilder, Record};
pub use record::compression::Compression;
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
pub use types::{Isolation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition};

/// The program in the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
