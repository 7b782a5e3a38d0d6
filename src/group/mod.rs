//! Groups: who reads which partition of a topic, and how far a group has come.
//!
//! ```text
//!             Heartbeat: epoch, what is owned, subscription          records of Kafka's, one partition's
//!  member.rs ────────────────────────────────────────────► Coordinator ───────────────────────────────► state
//!  (driven by the consumer's polls and the node's thread)      │  ▲   Commit, Fetch, Reset, Delete, Describe, List
//!     ▲                                                        │  └── Topics, Settings (soft), Tick, Expire (actions)
//!     └─────────────── epoch, assignment, lease ───────────────┘
//! ```
//!
//! The coordinator is a [`Machine`] over one partition of `__consumer_offsets`, of all groups that hash to it
//! ([`partition_of`](crate::machine::home::partition_of)). The protocol is Kafka's of KIP-848: the server assigns, and
//! members are led to the assignment one by one.
//!
//! **Epochs.** The group's epoch rises with each change of members, subscriptions or topics; the target, which partition
//! is to be whose, is computed for an epoch (`assign`); a member's epoch is that of the target which it has been led to.
//!
//! ```text
//!              the target takes nothing away, all is free
//!   ┌────────┐ ────────────────────────────────────────────► epoch of the target, Stable
//!   │ Stable │ ── something is to be given back ──► Unrevoked ── not reported as owned ──► (again from here)
//!   └────────┘ ── something is another's still ───► epoch of the target, Unreleased ── is free ──► Stable
//! ```
//!
//! **Nobody's before it is anybody's.** A partition is given out only when it is in nobody's current assignment, that to
//! be given back included. It leaves one by a heartbeat that does not report it any more (a poll of the consumer, or its
//! close: see `member`), or with its member: who leaves, is silent for its session, or does not give back in time.
//! A heartbeat gives back only where it is not late: its number is above the last one's, and it was made behind an answer
//! of this very machine ([`Incarnation`]). For a network may delay, repeat and reorder, and a machine may be made anew.
//!
//! **Leases.** What a member owns it may read until its session, counted from when its last answered heartbeat was *sent*,
//! is over; the coordinator counts from when that heartbeat *came*. So whoever is removed has ceased to read by then.
//! A member that was cut off reads on when a heartbeat is answered: nothing was given away until it is told so.
//!
//! **Time.** Sessions and the time for giving back run on a clock of the machine's own, on which the time between two
//! steps counts for a second at most: a suspended process finds its groups alive. Nothing expires but by [`Command::Tick`];
//! commands that have arrived are to be decided before it.
//!
//! **Static members** (with an instance id) keep their partitions over a restart: [`Intent::LeaveForNow`] keeps the seat
//! for a session, and whoever joins with the instance id takes it over. Whoever joins while the one before is in the group
//! takes its place in the target; the one before is fenced from then on, and its partitions follow when it has left, as it
//! does when it is told, or its session is over.
//!
//! **Positions** are committed with the member's epoch, which must be the current one; by nobody where the group has no
//! members. Those of a transaction wait for [`Machine::end_transaction`]. They expire, but never of a topic that is
//! subscribed to, nor in a group that is being led to another target or has an open transaction.
//!
//! Records of the classic protocol (key 2) are kept in the log and passed over, as those of unknown kinds are: such a
//! group has its positions here, and no members.
//!
//! Invariants: a partition is in one current assignment of a group at most; epochs do not fall; what is refused changes
//! nothing; what is replayed follows from the latest record of each key.

mod assign;
mod codec;
mod commits;
mod decide;
mod expire;
mod heartbeat;
mod member;
mod offsets;
mod partitions;
mod protocol;
mod reconcile;
mod roster;
mod state;
mod stepped;
mod sweep;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Moment, Now};
use crate::error::Result;
use crate::machine::{Applied, Decision, KeyValue, Machine, ProducerIdentity, Recorded};
use crate::record::control::Outcome;
use crate::types::{Offset, TopicPartition};

pub(crate) use decide::check_group;
pub(crate) use heartbeat::{check_details, check_time};
pub(crate) use member::{Changes, MAX_POLL_INTERVAL, Member, MemberSettings};
pub(crate) use offsets::{Committed, Position};
pub(crate) use partitions::Partitions;
#[cfg(feature = "testkit")]
pub(crate) use protocol::Incarnation;
pub(crate) use protocol::{
    Answer, Claim, Description, Details, Epoch, Heartbeat, Intent, Listing, MemberDescription, Report, Subscription,
};
pub use protocol::{Assignor, GroupState, Progress};
pub(crate) use reconcile::{Current, Phase};
pub(crate) use state::Coordinator;
pub(crate) use topics::{Topic, Topics};

/// The topic whose partitions the coordinators keep their records in.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// How many partitions it is made with, as in Kafka (`offsets.topic.num.partitions`).
pub(crate) const OFFSETS_PARTITIONS: u32 = 50;

/// The longest metadata of a position, as in Kafka (`offset.metadata.max.bytes`).
pub(crate) const METADATA_BYTES_MAX: usize = 4096;

/// How often positions that have expired are looked for, as in Kafka (`offsets.retention.check.interval.ms`).
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// So many records at most are written by one [`Command::Tick`], [`Command::Topics`] or [`Command::Expire`]; what is left
/// is done by the next one, which is due at once.
const RECORDS_MAX: usize = 1000;

/// What holds for all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// A member that is silent for so long is removed (Kafka: `group.consumer.session.timeout.ms`). A member may ask for
    /// less. It must be the same wherever the partition may be led.
    pub(crate) session_timeout: Duration,
    /// How often members are told to report (Kafka: `group.consumer.heartbeat.interval.ms`).
    pub(crate) heartbeat_interval: Duration,
    /// How long positions are kept that nobody uses (Kafka: `offsets.retention.minutes`).
    pub(crate) offsets_retention: Duration,
    /// So many members at most has a group (Kafka: `group.consumer.max.size`, which has no bound by default).
    pub(crate) members_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(5),
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            members_max: 1000,
        }
    }
}

/// What is asked of a coordinator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// A member reports. Answered by [`Reply::Answer`], or [`Reply::Left`].
    Heartbeat(Box<Heartbeat>),
    /// Positions are stored.
    Commit {
        group: String,
        /// Who commits; `None` where it is no member, which is for groups that have none.
        member: Option<Claim>,
        positions: Vec<(TopicPartition, Position)>,
        /// In whose transaction: it counts when that is committed.
        producer: Option<ProducerIdentity>,
    },
    /// What was committed is asked for. Answered by [`Reply::Fetched`]: the partitions that have a position.
    Fetch {
        group: String,
        /// `None`: all that there are.
        partitions: Option<Vec<TopicPartition>>,
        /// Refuses where a transaction is open that may change one of them.
        require_stable: bool,
    },
    /// Positions are set, in a group without members.
    ResetOffsets { group: String, positions: Vec<(TopicPartition, Position)> },
    /// Positions are forgotten, of topics that no member subscribes to.
    DeleteOffsets { group: String, partitions: Vec<TopicPartition> },
    /// A group is forgotten with its positions; it has no members.
    DeleteGroup { group: String },
    /// What is known of a group. Answered by [`Reply::Described`].
    Describe { group: String },
    /// All groups. Answered by [`Reply::Listed`].
    List,
    /// The topics that there are, all of them: soft, and given behind each load and whenever they change. No heartbeat is
    /// taken before the first. A topic that is gone, or is another of the same name, takes its positions with it; groups
    /// whose subscriptions lead to other partitions get another epoch.
    Topics(Arc<Topics>),
    /// The positions in a topic that is not there are forgotten.
    ForgetTopic { topic: String },
    /// What holds for all groups: soft, and given behind each load.
    Settings(Settings),
    /// Time has passed: whoever is silent for too long is removed, and who does not give back.
    Tick,
    /// Positions that have expired are forgotten, and groups that have neither members nor positions.
    Expire,
}

/// What the asker is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Where a member stands.
    Answer(Answer),
    /// The member is out.
    Left,
    /// What was committed, by partition.
    Fetched(Vec<(TopicPartition, Committed)>),
    /// What is known of a group.
    Described(Box<Description>),
    /// All groups, by name.
    Listed(Vec<Listing>),
    /// It is as was asked for.
    Done,
}

/// What happened: one record each. `None` is that the key is forgotten.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A position of a group (keys 0 and 1).
    Committed { group: String, partition: TopicPartition, committed: Option<Committed> },
    /// The epoch of a group (key 3).
    Group { group: String, epoch: Option<Epoch> },
    /// Who a member is and what it wants (key 5).
    Member { group: String, member: String, details: Option<Arc<Details>> },
    /// For which epoch of the group the target is (key 6).
    TargetEpoch { group: String, epoch: Option<Epoch> },
    /// What a member is to have (key 7).
    Target { group: String, member: String, partitions: Option<Partitions> },
    /// What a member has (key 8).
    Current { group: String, member: String, current: Option<Current> },
    /// What else Kafka may have written of the group is forgotten: its record of the classic protocol (key 2), of the
    /// topics that it subscribes to (key 4). Neither is written or minded here.
    Leftover { group: String, of: Leftover },
}

/// A record of Kafka's that is forgotten with its group, and has no other meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Classic,
    Topics,
}

/// Work for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// [`Command::Tick`], once what has arrived is decided.
    Tick,
    /// [`Command::Expire`].
    Expire,
}

impl Machine for Coordinator {
    type Command = Command;
    type Event = Event;
    type Reply = Result<Reply>;
    type Action = Action;

    fn decide(&mut self, now: Now, command: Command) -> Decision<Event, Result<Reply>> {
        self.soft.clock.step(now.monotonic);
        let producer = match &command {
            Command::Commit { producer, .. } => *producer,
            _ => None,
        };
        match decide::decide(self, now, command) {
            Ok((events, reply)) => Decision { events, producer, reply: Ok(reply) },
            Err(refusal) => Decision::reply(Err(refusal)),
        }
    }

    fn apply(&mut self, at: Applied, event: &Event) {
        self.take(at, event);
    }

    fn end_transaction(&mut self, at: Offset, producer: ProducerIdentity, outcome: Outcome) {
        self.end(at, producer, outcome);
    }

    fn loaded(&mut self, now: Now) {
        self.start(now);
    }

    fn actions(&self, now: Now) -> Vec<Action> {
        self.due(now)
    }

    fn deadline(&self) -> Option<Moment> {
        self.next_due()
    }
}

impl Recorded for Coordinator {
    /// A group that has lost a position reads again from an earlier one.
    const PASSES_OVER_DAMAGE: bool = true;

    fn encode(event: &Event) -> KeyValue {
        codec::encode(event)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> std::result::Result<Option<Event>, String> {
        codec::decode(key, value)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
