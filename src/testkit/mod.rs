//! Conformance suites for the traits that a host can implement (feature `testkit`).
//!
//! A host that brings a [`Storage`](crate::Storage) of its own runs [`storage_suite`] against it, in a test:
//!
//! ```
//! use std::sync::Arc;
//! use taffrail::{FileStorage, testkit};
//!
//! let home = tempfile::tempdir()?;
//! let count = std::cell::Cell::new(0);
//! testkit::storage_suite(&|| {
//!     count.set(count.get() + 1);
//!     let directory = home.path().join(count.get().to_string());
//!     std::fs::create_dir(&directory).expect("a directory");
//!     (Arc::new(FileStorage::new()), directory)
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! One that brings a consensus runs [`quorum_suite`] against its [`MetadataQuorum`](crate::quorum::MetadataQuorum):
//!
//! ```
//! use taffrail::quorum::Solo;
//! use taffrail::{NodeId, testkit};
//!
//! testkit::quorum_suite(0..10, &|journal, _seed| Box::new(Solo::restore(NodeId(0), journal).expect("an epoch is left")));
//! ```

mod quorum;
mod storage;

#[doc(hidden)]
pub mod crowd;
#[doc(hidden)]
pub mod fuzzing;

pub use quorum::quorum_suite;
pub use storage::storage_suite;
