//! What members and their coordinator say to each other, and what a group looks like from outside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::offsets::Position;
use super::partitions::Partitions;
use super::reconcile::Phase;
use crate::clock::Now;
use crate::types::{TopicId, TopicPartition};

/// How often something has changed: a group, its target, or a member. 0 is before the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(pub(crate) u32);

impl Epoch {
    /// The greatest that Kafka's records hold.
    const MAX: u32 = i32::MAX.unsigned_abs();

    pub(crate) const fn next(self) -> Self {
        if self.0 < Self::MAX { Self(self.0 + 1) } else { self }
    }

    /// Kafka's `i32`.
    pub(crate) const fn to_i32(self) -> i32 {
        self.0.cast_signed()
    }
}

/// Which machine answers: another one has seen no heartbeat yet. It is the time at which the machine was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incarnation(pub(crate) Now);

/// A member reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) group: String,
    /// Chosen by the member, and never used again by another, nor by itself once it has left.
    pub(crate) member: String,
    pub(crate) intent: Intent,
    pub(crate) details: Details,
    pub(crate) report: Report,
}

/// What a member wants (Kafka has numbers for it: epoch 0, −1, −2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Be a member.
    Join,
    /// Go on being one, with this epoch.
    Stay(Epoch),
    /// Be none any more.
    Leave,
    /// Come back within a session, under the same instance id; without one as [`Self::Leave`].
    LeaveForNow,
}

/// Who a member is and what it wants. Each heartbeat says all of it; it may change at any time, but for the instance id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// (Kafka: `group.instance.id`.)
    pub(crate) instance: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) subscription: Subscription,
    /// `None`: it does not mind.
    pub(crate) assignor: Option<Assignor>,
    /// So long it may take to give back (Kafka: `max.poll.interval.ms`).
    pub(crate) rebalance_timeout: Duration,
    /// A session shorter than the coordinator's setting, if it wants one. It is in no record.
    pub(crate) session_timeout: Option<Duration>,
}

/// Which topics: those named, whether they are there yet or not, and those whose whole name the pattern matches, internal
/// ones excepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) topics: BTreeSet<String>,
    pub(crate) pattern: Option<String>,
}

/// How the partitions of a group's topics are given to its members. The group goes by what most of its members want.
///
/// ```
/// assert_eq!(taffrail::Assignor::default(), taffrail::Assignor::Uniform);
/// ```
#[doc(alias = "group.remote.assignor")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Assignor {
    /// As many to each member as can be, and moved as little as can be. The default, as in Kafka.
    #[default]
    Uniform,
    /// Topic by topic, in ranges: where topics have as many partitions from the start and the same subscribers, those of one
    /// number go to one member, so that records of one key in several topics meet there.
    Range,
}

impl Assignor {
    /// Kafka's name of it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Rises with each of the member's heartbeats.
    pub(crate) number: u64,
    /// Which machine answered it last.
    pub(crate) seen: Option<Incarnation>,
    /// What the consumer owned at its last poll, and what it may take with the next one.
    pub(crate) owned: Partitions,
}

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The heartbeat that it answers.
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
    pub(crate) heartbeat_interval: Duration,
    /// How long this answer lasts, from when the heartbeat was sent.
    pub(crate) session_timeout: Duration,
    /// What it may own; `None` where that is just what it reported.
    pub(crate) assignment: Option<Partitions>,
    /// What it owns beyond that is to be given back within this time, from when the heartbeat was sent.
    pub(crate) revoke_within: Option<Duration>,
}

/// Who commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) member: String,
    pub(crate) instance: Option<String>,
    pub(crate) epoch: Epoch,
}

/// How far a consumer has read, and who it is: what it hands to a transaction.
/// [`Consumer::progress`](crate::Consumer::progress) makes it.
#[derive(Clone, Debug)]
#[must_use = "it changes nothing before it is committed"]
pub struct Progress {
    pub(crate) group: String,
    /// `None` where it belongs to no group by membership: its partitions were assigned by hand.
    pub(crate) member: Option<Claim>,
    pub(crate) positions: Vec<(TopicPartition, Position)>,
    /// Which topic each of them is of.
    pub(crate) topics: Vec<TopicId>,
    /// Whether the consumer commits by itself at intervals, which goes with no transaction.
    pub(crate) commits_itself: bool,
    /// A partition that was given up after records of it were handed out that no position covers.
    pub(crate) given_up: Option<TopicPartition>,
    pub(crate) confirmation: Confirmation,
}

/// By which a consumer learns what has become of its progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confirmation(Arc<AtomicU8>);

impl Confirmation {
    const REFUSED: u8 = 1;
    const TAKEN: u8 = 2;
    const COMMITTED: u8 = 3;

    /// No transaction has it: that which was to have it can only be aborted.
    pub(crate) fn refuse(&self) {
        self.0.store(Self::REFUSED, Ordering::Release);
    }

    /// A transaction has it, and will commit it or not.
    pub(crate) fn take(&self) {
        self.0.store(Self::TAKEN, Ordering::Release);
    }

    /// It was committed.
    pub(crate) fn confirm(&self) {
        self.0.store(Self::COMMITTED, Ordering::Release);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::REFUSED
    }

    /// Whether a transaction has it, or has committed it.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) >= Self::TAKEN
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::COMMITTED
    }
}

/// How a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupState {
    /// It has no members.
    Empty,
    /// Its target is not computed yet.
    Assigning,
    /// Members are being led to the target.
    Reconciling,
    /// Everybody has what is meant for it.
    Stable,
}

/// A group, in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) group: String,
    pub(crate) state: GroupState,
}

/// What is known of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) group: String,
    pub(crate) state: GroupState,
    pub(crate) epoch: Epoch,
    pub(crate) target_epoch: Epoch,
    pub(crate) assignor: Assignor,
    pub(crate) members: Vec<MemberDescription>,
}

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberDescription {
    pub(crate) member: String,
    /// Nothing is known where records of it are damaged.
    pub(crate) details: Option<Details>,
    /// `None` where it has left for now.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) phase: Phase,
    /// Another has its instance id; it holds what it has until it leaves or its session is over.
    pub(crate) is_replaced: bool,
    pub(crate) assigned: Partitions,
    /// What it is to give back.
    pub(crate) revoking: Partitions,
    pub(crate) target: Partitions,
}
