//! Reading topics: many partitions through one handle, each from a position of its own.
//!
//! ```text
//!   reader.rs      Reader, ReaderBuilder: without a group        polled.rs    what one poll hands out
//!   fetcher.rs     turns, reads, waiting                         position.rs  positions, and where to begin
//!   assignment.rs  which partitions, from where, whose turn it is
//! ```
//!
//! Invariants: a partition's records come out in order, none is skipped and none comes twice between two seeks; the
//! position moves when a poll returns the records before it. What stands in the way (retention overtook, bytes are
//! damaged, the log was cut) is an error at each turn of its partition until a seek, and holds up no other partition.
//!
//! Thread rule: `poll` takes `&mut self`, so a reader is one thread's; others wake it by what they append.

mod assignment;
mod fetcher;
mod polled;
mod position;
mod reader;

#[cfg(all(test, not(loom)))]
mod tests;

pub use assignment::Which;
pub use polled::Polled;
pub use position::{OutOfRange, Position, StartAt};
pub use reader::{Reader, ReaderBuilder};
