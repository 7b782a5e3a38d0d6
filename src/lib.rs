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
mod types;

pub use clock::{Clock, ManualClock, Moment, Now, SystemClock};
pub use config::{Cleanup, Durability, PartitionConfig, Retention, TimestampType};
pub use epochs::Epochs;
pub use error::{Corruption, Error, ErrorKind, Result};
pub use storage::{
    BootId, Entry, Fault, FileStorage, LockMode, MemoryStorage, Operation, OperationKind, Reads, Storage, StorageFile,
    StorageLock,
};
pub use types::{Isolation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition};
