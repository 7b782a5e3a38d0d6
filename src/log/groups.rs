//! Groups as an operator sees them: which there are, who is in them, where they stand; and setting that.

use crate::consumer::{CommittedOffset, Which};
use crate::error::{Error, Result};
use crate::group::{
    Assignor, Command, Committed, Description, GroupState, MemberDescription, Partitions, Phase, Reply, Subscription,
};
use crate::log::Log;
use crate::node::TopicNames;
use crate::partition::Partition;
use crate::types::{Offset, Timestamp, TopicPartition};

/// A group, in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: GroupState,
}

/// What a group is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: GroupState,
    /// How often its members, subscriptions or topics have changed.
    pub epoch: u32,
    /// For which of these epochs partitions were last assigned.
    pub assignment_epoch: u32,
    /// How they were.
    pub assignor: Assignor,
    /// Its members, by their ids; those with an instance id also while they are away.
    pub members: Vec<GroupMember>,
    /// What is committed, by topic and partition.
    pub positions: Vec<GroupPosition>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMember {
    /// Its id, which no other has ever had.
    pub id: String,
    /// Its instance id, if it has one: its partitions wait for it while it is away.
    pub instance_id: Option<String>,
    /// Where it is.
    pub rack: Option<String>,
    /// What it calls itself.
    pub client_id: String,
    /// The topics that it subscribes to by name.
    pub topics: Vec<String>,
    /// The pattern that it subscribes to.
    pub pattern: Option<String>,
    /// Its epoch; `None` while it is away.
    pub epoch: Option<u32>,
    /// How far it is on the way to what is meant for it.
    pub state: MemberState,
    /// What it may read.
    pub assigned: Vec<TopicPartition>,
    /// What it is to give back first.
    pub revoking: Vec<TopicPartition>,
    /// What is meant for it.
    pub target: Vec<TopicPartition>,
}

/// How far a member is on the way to what is meant for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberState {
    /// It has what is meant for it.
    Stable,
    /// It is to give something back: its next poll does.
    Revoking,
    /// It waits for what another has to give back.
    Waiting,
    /// Another has joined with its instance id: it is fenced, and what it has is free once it has heard of that.
    Replaced,
    /// It has left for now; it comes back with its instance id, or is removed.
    Away,
}

/// Where a group stands in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupPosition {
    /// The partition.
    pub partition: TopicPartition,
    /// What was committed.
    pub committed: CommittedOffset,
    /// When it was.
    pub timestamp: Timestamp,
}

/// Where a group is sent ([`Log::reset_group`]).
///
/// ```
/// use taffrail::{Offset, ResetTo, Timestamp};
/// let ten_minutes_back = ResetTo::Time(Timestamp(1_700_000_000_000 - 600_000));
/// let once_more = ResetTo::Shift(-100);
/// let here = ResetTo::Offset(Offset(4_000));
/// # let _ = (ten_minutes_back, once_more, here);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetTo {
    /// To the first record.
    Earliest,
    /// Behind the last record that readers of committed records see.
    Latest,
    /// To the first record whose timestamp is at or after this one, in milliseconds since 1970; behind the last where
    /// there is none.
    Time(Timestamp),
    /// So many offsets on from where it stands, or back; no further than the log goes.
    Shift(i64),
    /// To this offset, or to the nearest that the log has.
    Offset(Offset),
}

impl Log {
    /// All groups, by name: those with members, and those that have committed something that has not expired.
    ///
    /// # Errors
    /// [`Error::Closed`], and what the disk says of the coordinators' records.
    #[doc(alias = "listGroups")]
    pub fn groups(&self) -> Result<Vec<GroupListing>> {
        let listed = self.node().list_groups()?.into_iter();
        Ok(listed.map(|one| GroupListing { name: one.group, state: one.state }).collect())
    }

    /// What a group is like.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taffrail::{Log, Record, TopicConfig};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
    /// # log.producer().open()?.send("orders", Record::new("placed").partition(2))?.wait()?;
    /// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
    /// consumer.poll(Duration::from_secs(1))?;
    /// consumer.commit()?;
    /// let group = log.describe_group("billing")?;
    /// assert_eq!(group.members[0].assigned.len(), 4);
    /// let stands = group.positions.iter().find(|one| one.partition.partition == 2);
    /// assert_eq!(stands.map(|one| one.committed.offset.0), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownGroup`], [`Error::Closed`].
    #[doc(alias = "describeConsumerGroups")]
    pub fn describe_group(&self, name: &str) -> Result<GroupDescription> {
        let describe = Command::Describe { group: name.to_owned() };
        let Reply::Described(described) = self.node().ask_existing_group(name, describe)? else {
            return Err(Error::UnknownGroup { group: name.to_owned() });
        };
        let positions = self.node().committed(name, None, false)?.into_iter();
        let position = |(partition, committed)| {
            let Committed { position, committed: timestamp, .. } = committed;
            GroupPosition { partition, committed: position.into(), timestamp }
        };
        let topics = self.node().topics();
        Ok(describe_as(*described, &TopicNames::of(&topics), positions.map(position).collect()))
    }

    /// Sends a group elsewhere, while it has no members: in all partitions that it has a position in ([`Which::All`]), in
    /// all of a topic (`"orders"`), or in one (`("orders", 2)`). Answers where it stands now.
    ///
    /// ```
    /// use taffrail::{Log, Offset, Record, ResetTo, TopicConfig, Which};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// # log.ensure_topic("orders", TopicConfig::new())?;
    /// # let producer = log.producer().open()?;
    /// # for _ in 0..10 { producer.send("orders", Record::new("placed"))?.wait()?; }
    /// log.reset_group("billing", "orders", ResetTo::Latest)?;
    /// let now = log.reset_group("billing", Which::All, ResetTo::Shift(-4))?;
    /// assert_eq!(now[0].1, Offset(6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::GroupNotEmpty`]: close its consumers first. [`Error::NoPosition`] where it is to be shifted and has no position.
    /// [`Error::UnknownGroup`] where all are meant and there is no such group: named partitions make one.
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], [`Error::InvalidName`], and what a search by time answers.
    /// Nothing is changed then.
    #[doc(alias = "kafka-consumer-groups --reset-offsets")]
    pub fn reset_group<'a>(
        &self,
        name: &str,
        which: impl Into<Which<'a>>,
        to: ResetTo,
    ) -> Result<Vec<(TopicPartition, Offset)>> {
        let mut moved = Vec::new();
        let stands = self.node().positions_of(name)?;
        let named = match which.into() {
            Which::All => {
                // One that has positions is there.
                if stands.is_empty() {
                    self.node().ask_existing_group(name, Command::Describe { group: name.to_owned() })?;
                }
                stands.keys().cloned().collect()
            }
            Which::Topic(topic) => {
                let count = self.node().topic(topic)?.partitions.len();
                (0..).take(count).map(|partition| TopicPartition { topic: topic.to_owned(), partition }).collect()
            }
            Which::Partition(topic, partition) => vec![TopicPartition { topic: topic.to_owned(), partition }],
        };
        for partition in named {
            let topic = self.node().topic(&partition.topic)?;
            let open = topic.partition(partition.partition)?;
            let offset = to.offset(open, || {
                let none = || Error::NoPosition { group: name.to_owned(), partition: partition.clone() };
                stands.get(&partition).copied().ok_or_else(none)
            })?;
            moved.push((partition, offset));
        }
        let position =
            |(partition, offset): &(TopicPartition, Offset)| (partition.clone(), CommittedOffset::from(*offset).into());
        let reset = Command::ResetOffsets { group: name.to_owned(), positions: moved.iter().map(position).collect() };
        self.node().ask_group(name, reset)?;
        Ok(moved)
    }

    /// Forgets positions of a group, of topics that none of its members subscribes to. Those that it has not are no error.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`]; [`Error::TopicSubscribed`], [`Error::UnstableOffset`]: nothing is changed.
    #[doc(alias = "deleteConsumerGroupOffsets")]
    pub fn delete_group_positions(
        &self,
        name: &str,
        partitions: impl IntoIterator<Item = (impl Into<String>, u32)>,
    ) -> Result<()> {
        let partitions = partitions.into_iter();
        let partitions =
            partitions.map(|(topic, partition)| TopicPartition { topic: topic.into(), partition }).collect();
        let delete = Command::DeleteOffsets { group: name.to_owned(), partitions };
        self.node().ask_existing_group(name, delete).map(drop)
    }

    /// Forgets a group with its positions.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`]; [`Error::GroupNotEmpty`] while it has members, [`Error::UnstableOffset`]: nothing is changed.
    #[doc(alias = "deleteConsumerGroups")]
    pub fn delete_group(&self, name: &str) -> Result<()> {
        self.node().ask_existing_group(name, Command::DeleteGroup { group: name.to_owned() }).map(drop)
    }

    /// The records of the groups' coordinators that could not be read, by error: each says which it is. What else there
    /// is was read: a group that has lost a position so goes on from an earlier one, or from where it is to begin. Where the
    /// record is damaged by which a position in a deleted topic was forgotten, the next topic of that name has that position.
    ///
    /// What an open has cut off the end of one of their partitions was not there to be read: [`Log::damaged`] names that.
    #[must_use]
    pub fn damaged_groups(&self) -> Vec<Error> {
        self.node().group_damage()
    }
}

impl ResetTo {
    /// Where that is in a partition.
    fn offset(self, partition: &Partition, stands: impl FnOnce() -> Result<Offset>) -> Result<Offset> {
        let (start, end) = (partition.start(), partition.last_stable().max(partition.start()));
        Ok(match self {
            Self::Earliest => start,
            Self::Latest => end,
            Self::Time(timestamp) => partition.find_timestamp(timestamp)?.map_or(end, |found| found.offset),
            Self::Shift(by) => Offset(stands()?.0.saturating_add_signed(by)).clamp(start, end),
            Self::Offset(offset) => offset.clamp(start, end),
        })
    }
}

fn describe_as(described: Description, names: &TopicNames<'_>, positions: Vec<GroupPosition>) -> GroupDescription {
    let Description { group, state, epoch, target_epoch, assignor, members } = described;
    GroupDescription {
        name: group,
        state,
        epoch: epoch.0,
        assignment_epoch: target_epoch.0,
        assignor,
        members: members.into_iter().map(|member| member_as(member, names)).collect(),
        positions,
    }
}

fn member_as(described: MemberDescription, names: &TopicNames<'_>) -> GroupMember {
    let MemberDescription { member, details, epoch, phase, is_replaced, assigned, revoking, target } = described;
    let details = details.unwrap_or_default();
    let Subscription { topics: subscribed, pattern } = details.subscription;
    let state = match phase {
        _ if is_replaced => MemberState::Replaced,
        _ if epoch.is_none() => MemberState::Away,
        Phase::Stable => MemberState::Stable,
        Phase::Unrevoked => MemberState::Revoking,
        Phase::Unreleased => MemberState::Waiting,
    };
    let partitions = |those: &Partitions| names.partitions(those.iter()).into_iter().collect();
    GroupMember {
        id: member,
        instance_id: details.instance,
        rack: details.rack,
        client_id: details.client_id,
        topics: subscribed.into_iter().collect(),
        pattern,
        epoch: epoch.map(|epoch| epoch.0),
        state,
        assigned: partitions(&assigned),
        revoking: partitions(&revoking),
        target: partitions(&target),
    }
}
