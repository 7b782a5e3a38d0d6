//! Reading topics: many partitions through one handle, each from a position of its own.
//!
//! ```text
//!   reader.rs      Reader, ReaderBuilder: without a group     handle.rs, builder.rs  Consumer: of a group
//!                                                             core.rs       what it consists of, its listener excepted
//!   fetcher.rs     turns, reads                               rebalance.rs  what it gets and gives up, and who is told
//!   nap.rs         polls, and their waiting                   placing.rs    where what it gets goes on
//!   waker.rs       ending that                                seeking.rs    where it is sent by hand
//!   assignment.rs  which partitions, from where, whose turn   commits.rs    how far it has come
//!   position.rs    positions, and where to begin              progress.rs   the same, for a transaction
//!   polled.rs      what one poll hands out
//! ```
//!
//! Invariants: a partition's records come out in order, none is skipped and none comes twice between two seeks; the
//! position moves when a poll returns the records before it. What stands in the way (retention overtook, bytes are
//! damaged, the log was cut) is an error at each turn of its partition until a seek, and holds up no other partition.
//!
//! A consumer of a group hands out nothing of a partition that another member may own, or of which it does not know yet how
//! far the group has come.
//!
//! Thread rule: `poll` takes `&mut self`, so a reader is one thread's; others wake it by what they append. The node's thread
//! speaks for a consumer to its group, of what it owned at its last poll.

mod assignment;
mod builder;
mod commits;
mod core;
mod fetcher;
mod handle;
mod nap;
mod placing;
mod polled;
mod position;
mod progress;
mod reader;
mod rebalance;
mod seeking;
mod waker;

#[cfg(all(test, not(loom)))]
mod tests;

pub use assignment::Which;
pub use builder::ConsumerBuilder;
pub use commits::CommittedOffset;
pub use handle::Consumer;
pub use polled::Polled;
pub use position::{OutOfRange, Position, StartAt};
pub use reader::{Reader, ReaderBuilder};
pub use rebalance::{Rebalance, RebalanceListener};
pub use waker::PollWaker;
