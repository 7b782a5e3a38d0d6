//! The metadata quorum: what the controller knows of consensus, and the engine for a log without a cluster.
//!
//! ```text
//!  controller ──propose──► engine ──Persist──► the node writes and syncs the journal
//!      ▲                     ▲                              │
//!      │                     └───────────synced─────────────┘
//!      └──Committed, Leadership───┘
//! ```
//!
//! An engine ([`MetadataQuorum`]) orders entries and says when they are committed. It has no clock, no thread, no
//! socket and no file: a node calls it, and does what [`poll`](MetadataQuorum::poll) gives out. What it wants kept goes
//! into a journal ([`Journal`]) whose format is taffrail's, so that an engine can be replaced by another.
//! [`Solo`] is the engine of a single node. A host with a consensus of its own implements the trait, and runs
//! `taffrail::testkit::quorum_suite` against it.

pub(crate) mod journal;
pub(crate) mod record;
mod solo;

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::Error;
use crate::types::{LeaderEpoch, NodeId, Offset};

pub use journal::Journal;
pub(crate) use journal::Replay;
pub use solo::Solo;

/// Consensus on one sequence of entries.
///
/// Calls never block and never panic, whatever a peer sends. After each call the node drains
/// [`poll`](Self::poll) until it is `None`, does what comes out in that order, and reports the end of each sync by
/// [`synced`](Self::synced).
///
/// What an engine keeps, and a node relies on:
///
/// 1. **Durable first.** No [`Output::Send`] and no [`Output::Committed`] is given out before every
///    [`Output::Persist`] that it depends on was reported as synced. That includes what an engine was restored from:
///    the journal counts as synced.
/// 2. **Gapless commits.** [`Output::Committed`] ranges follow one another without gap or overlap; the first begins
///    behind the snapshot that the engine was restored from, else at 0. [`Output::Restore`] sets the next one behind
///    its `at`. What was committed once is committed with the same bytes for ever, on every node.
/// 3. **Epochs do not go back**, over restarts too, and each has one leader: no two nodes, and no two incarnations of
///    one node, lead in the same epoch. An epoch is announced at most twice: without a leader, and with it.
/// 4. **Leadership comes last.** A node's own leadership is announced only after every earlier commit was given out.
///    Until then `propose` is refused.
/// 5. **Messages may be lost, repeated and reordered.** An engine that needs them in order says so by
///    [`needs_fifo`](Self::needs_fifo) and is refused where the transport may reorder.
/// 6. **Faults stop it.** After [`failed`](Self::failed) nothing more comes out and nothing is taken; the
///    [`view`](Self::view) shows why. Nonsense from a peer is an error that changes nothing.
/// 7. **Proposed is not committed.** After a change of the epoch the fate of a proposal is unknown until it is seen in
///    `Committed`, or another entry at its index is.
pub trait MetadataQuorum: fmt::Debug + Send {
    /// Whether messages of one node to another must arrive in the order in which they were sent.
    fn needs_fifo(&self) -> bool {
        false
    }

    /// Time has come to `now`. It does not go back.
    fn tick(&mut self, now: Moment);

    /// Takes a message that the engine of `from` gave out as [`Output::Send`].
    ///
    /// # Errors
    /// [`QuorumFault`] where it is no message of this quorum; nothing was changed.
    fn step(&mut self, from: NodeId, message: &[u8]) -> Result<(), QuorumFault>;

    /// Hands over one entry, to be committed whole or not at all, if this node still leads in `epoch`. Answers the
    /// index that the entry has if it is committed in this epoch.
    ///
    /// `batch` is not empty: an entry without a payload is an engine's own, which the controller skips.
    ///
    /// # Errors
    /// [`NotLeader`] where this node does not lead in `epoch`; nothing was handed over.
    fn propose(&mut self, epoch: LeaderEpoch, batch: Bytes) -> Result<Offset, NotLeader>;

    /// Gives up the leadership of `epoch`, in favour of `to` where it is said; another epoch changes nothing.
    fn resign(&mut self, epoch: LeaderEpoch, to: Option<NodeId>);

    /// The controller has a durable snapshot of everything up to `at`: entries up to there may be forgotten.
    fn compacted(&mut self, at: EntryId);

    /// A snapshot up to `at` that came from another node is durable here.
    fn snapshot_installed(&mut self, at: EntryId);

    /// Every [`Persist`] up to and with `upto` is durable. Repeating it, or reporting an earlier one late, is allowed.
    fn synced(&mut self, upto: PersistSeq);

    /// The journal could not be written: nothing is known of what it holds.
    fn failed(&mut self, cause: Error);

    /// The next thing to do; `None` where there is nothing.
    fn poll(&mut self) -> Option<Output>;

    /// When [`tick`](Self::tick) is due.
    fn deadline(&self) -> Option<Moment>;

    /// How things stand.
    fn view(&self) -> QuorumView;
}

/// What an engine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Write this to the journal, sync it, and report it.
    Persist(Persist),
    /// Send a message. The payloads of `entries` are in the journal; the node attaches them behind `head`.
    Send {
        /// To whom.
        to: NodeId,
        /// The engine's part of the message.
        head: Bytes,
        /// The indexes of the entries that go with it.
        entries: Range<Offset>,
    },
    /// Send the latest snapshot.
    SendSnapshot {
        /// To whom.
        to: NodeId,
    },
    /// The entries of these indexes are committed. Never empty.
    Committed(Range<Offset>),
    /// Forget everything and begin with this snapshot.
    Restore {
        /// The last entry that is in it.
        at: EntryId,
        /// The snapshot.
        snapshot: Bytes,
    },
    /// A new epoch, or its leader, became known.
    Leadership {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Who leads in it.
        leader: Option<NodeId>,
    },
}

/// What belongs into the journal, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// Its number: one more than that of the one before, from 1.
    pub seq: PersistSeq,
    /// The hard state, where it changed.
    pub hard_state: Option<HardState>,
    /// New entries, each one's index one above the one before. The first takes the place of whatever the journal has
    /// from its index on.
    pub entries: Vec<Entry>,
}

/// The running number of a [`Persist`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistSeq(pub u64);

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands: 0 for the first entry ever, rising by one with each.
    pub index: Offset,
    /// The epoch in which it was proposed.
    pub epoch: LeaderEpoch,
    /// What was proposed; empty where the entry is the engine's own.
    pub payload: Bytes,
}

impl Entry {
    /// Which entry it is.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId { index: self.index, epoch: self.epoch }
    }
}

/// Which entry: two of the same index and epoch are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Where it stands.
    pub index: Offset,
    /// The epoch in which it was proposed.
    pub epoch: LeaderEpoch,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of epoch {}", self.index, self.epoch)
    }
}

/// What a voter may never forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest epoch that the node has seen.
    pub epoch: LeaderEpoch,
    /// Whom it voted for in that epoch.
    pub vote: Option<NodeId>,
}

/// How things stand, as one node sees them.
#[derive(Clone, Debug)]
pub struct QuorumView {
    /// The latest epoch that this node has in its journal.
    pub epoch: LeaderEpoch,
    /// Who leads in it, where that is known.
    pub leader: Option<NodeId>,
    /// What this node is in it.
    pub role: Role,
    /// The end of what is committed: one above the last committed index.
    pub commit: Offset,
    /// Who votes.
    pub voters: Vec<NodeId>,
    /// What stopped the engine.
    pub fault: Option<Error>,
}

/// What a node is in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It takes proposals.
    Leader,
    /// It wants to lead.
    Candidate,
    /// It follows.
    Follower,
    /// A storage fault stopped it.
    Stopped,
}

/// This node does not lead in the epoch of the proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead in that epoch; the latest is {epoch}{}", leader.map(|id| format!(", led by node {id}")).unwrap_or_default())]
pub struct NotLeader {
    /// The latest epoch.
    pub epoch: LeaderEpoch,
    /// Who leads in it, where that is known.
    pub leader: Option<NodeId>,
}

/// A message that is none of this quorum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message from node {from} is none of this quorum: {reason}")]
pub struct QuorumFault {
    /// Who sent it.
    pub from: NodeId,
    /// What is wrong with it.
    pub reason: String,
}
