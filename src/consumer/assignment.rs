//! Which partitions are read, from where each goes on, and whose turn it is.
//!
//! Invariants: slots are sorted by topic and partition, none is there twice. A slot keeps its position as long as its
//! topic is the same one (by its id), whatever becomes of the partition's handle. Where the topic is gone, the slot
//! says so once at least before it goes on with another topic of that name, at that one's first record. Where that has
//! fewer partitions, a slot behind them goes if its topic is followed, else it says at its turns that there is none.
//! (The slots of a group's member say nothing, and go when the group takes them away.) A slot that a group has given has
//! no position before it is known what the group has committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::position::{Position, Target};
use crate::error::{Error, Result};
use crate::group::Partitions;
use crate::node::{Topic, Topics};
use crate::partition::Partition;
use crate::types::{TopicId, TopicPartition};

/// Which of the assigned partitions a call is about.
///
/// ```
/// use taffrail::Which;
/// assert_eq!(Which::from("orders"), Which::Topic("orders"));
/// assert_eq!(Which::from(("orders", 2)), Which::Partition("orders", 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Which<'a> {
    /// All that are assigned now.
    All,
    /// Those of this topic that are assigned now.
    Topic(&'a str),
    /// One partition, by topic and number.
    Partition(&'a str, u32),
}

impl<'a> From<&'a str> for Which<'a> {
    fn from(topic: &'a str) -> Self {
        Self::Topic(topic)
    }
}

impl<'a> From<(&'a str, u32)> for Which<'a> {
    fn from((topic, partition): (&'a str, u32)) -> Self {
        Self::Partition(topic, partition)
    }
}

impl<'a> From<&'a TopicPartition> for Which<'a> {
    fn from(one: &'a TopicPartition) -> Self {
        Self::Partition(&one.topic, one.partition)
    }
}

impl Which<'_> {
    fn takes(self, slot: &Slot) -> bool {
        match self {
            Self::All => true,
            Self::Topic(topic) => *slot.topic == *topic,
            Self::Partition(topic, partition) => slot.key() == (topic, partition),
        }
    }
}

/// One partition that is read.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) topic: Arc<str>,
    pub(super) number: u32,
    /// Which topic of that name it is, or was.
    id: TopicId,
    source: Source,
    pub(super) target: Target,
    /// Whether records were handed out since it was sent to where it goes on from.
    pub(super) has_handed_out: bool,
    /// The position that the group has of it, where that is known.
    pub(super) committed: Option<Position>,
    pub(super) paused: bool,
}

/// Where a slot's records come from.
#[derive(Debug)]
enum Source {
    Open(Partition),
    /// The topic was deleted; `told`: a turn has answered so.
    Gone {
        told: bool,
    },
    /// The topic was deleted, a turn has answered so, and the one of that name now has only so many partitions.
    Beyond {
        partitions: u32,
    },
}

impl Slot {
    pub(super) fn key(&self) -> (&str, u32) {
        (&self.topic, self.number)
    }

    pub(super) fn name(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.to_string(), partition: self.number }
    }

    /// Which topic of that name it is of.
    pub(super) const fn id(&self) -> TopicId {
        self.id
    }

    /// The partition, or that its topic is gone.
    pub(super) fn partition(&self) -> Result<&Partition> {
        match &self.source {
            Source::Open(partition) => Ok(partition),
            Source::Gone { .. } => Err(Error::UnknownTopic { name: self.topic.to_string() }),
            Source::Beyond { partitions } => {
                let (topic, partition, partitions) = (self.topic.to_string(), self.number, *partitions);
                Err(Error::UnknownPartition { topic, partition, partitions })
            }
        }
    }

    /// Where it goes on; `None` where that is not known yet.
    pub(super) fn position(&self) -> Result<Option<Position>> {
        Ok(self.target.position(self.partition()?))
    }

    /// Whether its topic is not there any more.
    pub(super) fn is_gone(&self) -> bool {
        !matches!(self.source, Source::Open(_))
    }

    /// Has it go on there.
    pub(super) fn send_to(&mut self, target: Target) {
        (self.target, self.has_handed_out) = (target, false);
    }

    /// Where it goes on, if its group does not have that.
    pub(super) fn to_commit(&self) -> Option<Position> {
        match (&self.source, self.target) {
            (Source::Open(_), Target::At(position)) if self.committed != Some(position) => Some(position),
            _ => None,
        }
    }

    pub(super) fn is_in(&self, partitions: &Partitions) -> bool {
        partitions.contains(self.id, self.number)
    }

    /// Takes over what the topics say of it now.
    fn adopt(&mut self, topics: &Topics) {
        let topic = topics.get(&self.topic);
        let there = topic.and_then(|topic| Some((topic.id, topic.partition(self.number).ok()?.clone())));
        match (&mut self.source, topic, there) {
            (Source::Open(partition), _, Some((now, found))) if self.id == now => *partition = found,
            (Source::Open(_), ..) => self.source = Source::Gone { told: false },
            (Source::Gone { told: false }, ..) => {}
            (Source::Gone { .. } | Source::Beyond { .. }, _, Some((id, partition))) => {
                self.id = id;
                self.source = Source::Open(partition);
                self.send_to(Target::Earliest);
                self.committed = None;
            }
            (Source::Gone { .. } | Source::Beyond { .. }, Some(topic), None) => {
                let partitions = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
                self.source = Source::Beyond { partitions };
            }
            (Source::Gone { .. } | Source::Beyond { .. }, None, None) => self.source = Source::Gone { told: true },
        }
    }
}

/// The partitions that are read.
#[derive(Debug)]
pub(super) struct Assignment {
    slots: Vec<Slot>,
    /// Topics of which every partition is read, also those that come later.
    followed: BTreeSet<Arc<str>>,
    /// Whose turn is next.
    turn: usize,
    /// Up to which change of the topics this has followed.
    version: u64,
    /// Counts the changes of what is read.
    revision: u64,
}

impl Assignment {
    /// Nothing yet, over topics as they are at `version`.
    pub(super) fn new(version: u64) -> Self {
        Self { slots: Vec::new(), followed: BTreeSet::new(), turn: 0, version, revision: 0 }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whoever listens to what is read listens anew when this has changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn slot(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    /// Adds every partition of a topic, each at what `start` says, and from now on those that come later.
    pub(super) fn follow(&mut self, topic: &Topic, start: impl Fn(&Partition) -> Result<Target>) -> Result<()> {
        for number in (0..).take(topic.partitions.len()) {
            self.add(topic, number, &start)?;
        }
        self.followed.insert(Arc::clone(&topic.name));
        Ok(())
    }

    /// Adds one partition, at what `start` says; changes nothing where it is there already.
    pub(super) fn add(
        &mut self,
        topic: &Topic,
        number: u32,
        start: impl Fn(&Partition) -> Result<Target>,
    ) -> Result<()> {
        let partition = topic.partition(number)?;
        if let Err(at) = self.search(&topic.name, number) {
            let target = start(partition)?;
            self.insert(at, topic, number, partition.clone(), target);
        }
        Ok(())
    }

    /// Adds one partition whose position is not known yet, in the place of what has had its name.
    pub(super) fn put(&mut self, topic: &Topic, number: u32) -> Result<TopicPartition> {
        let partition = topic.partition(number)?.clone();
        self.retain(|slot| slot.key() != (&topic.name, number));
        let at = self.search(&topic.name, number).unwrap_or_else(|at| at);
        self.insert(at, topic, number, partition, Target::Unknown);
        Ok(self.slots[at].name())
    }

    /// Takes these away.
    pub(super) fn remove(&mut self, partitions: &Partitions) {
        self.retain(|slot| !slot.is_in(partitions));
    }

    /// Takes all of them away.
    pub(super) fn clear(&mut self) {
        self.retain(|_| false);
    }

    /// Those of these that are here.
    pub(super) fn within(&self, partitions: &Partitions) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.is_in(partitions))
    }

    /// What is read is to be listened to anew.
    pub(super) fn revise(&mut self) {
        self.revision += 1;
    }

    /// Follows the topics to how they are at `version`: handles, deletions, growth. Partitions that are new are read
    /// from their first record on.
    pub(super) fn update(&mut self, version: u64, topics: &Topics) {
        self.version = version;
        self.revise();
        self.slots.iter_mut().for_each(|slot| slot.adopt(topics));
        self.drop_beyond();
        let followed: Vec<_> = self.followed.iter().filter_map(|name| topics.get(name)).collect();
        for topic in followed {
            for (number, partition) in (0..).zip(&topic.partitions) {
                if let Err(at) = self.search(&topic.name, number) {
                    self.insert(at, topic, number, partition.clone(), Target::Earliest);
                }
            }
        }
    }

    /// Notes that a turn of this slot has answered that its topic is gone: another one of that name may take its place.
    pub(super) fn tell(&mut self, index: usize, topics: &Topics) {
        let slot = &mut self.slots[index];
        if let Source::Gone { told } = &mut slot.source {
            *told = true;
            slot.adopt(topics);
            self.revise();
            self.drop_beyond();
        }
    }

    /// Drops the slots of followed topics that these do not have any more.
    fn drop_beyond(&mut self) {
        let followed = std::mem::take(&mut self.followed);
        self.retain(|slot| !(matches!(slot.source, Source::Beyond { .. }) && followed.contains(&slot.topic)));
        self.followed = followed;
    }

    fn retain(&mut self, stays: impl Fn(&Slot) -> bool) {
        let before = self.slots.iter().take(self.turn).filter(|slot| !stays(slot)).count();
        self.slots.retain(stays);
        // It is still the same one's turn.
        self.turn -= before;
        self.revise();
    }

    fn insert(&mut self, at: usize, topic: &Topic, number: u32, partition: Partition, target: Target) {
        let (name, source) = (Arc::clone(&topic.name), Source::Open(partition));
        let slot = Slot {
            topic: name,
            number,
            id: topic.id,
            source,
            target,
            has_handed_out: false,
            committed: None,
            paused: false,
        };
        self.slots.insert(at, slot);
        self.revise();
        // It is still the same one's turn.
        self.turn += usize::from(at < self.turn);
    }

    /// Takes the next turn: whose it is.
    pub(super) fn take_turn(&mut self) -> usize {
        let index = self.turn % self.slots.len().max(1);
        self.turn = index + 1;
        index
    }

    pub(super) fn find(&self, topic: &str, number: u32) -> Option<usize> {
        self.search(topic, number).ok()
    }

    /// Where those are that `which` names, by their index.
    pub(super) fn select(&self, which: Which<'_>) -> Vec<usize> {
        (0..self.slots.len()).filter(|&index| which.takes(&self.slots[index])).collect()
    }

    fn search(&self, topic: &str, number: u32) -> std::result::Result<usize, usize> {
        self.slots.binary_search_by(|slot| slot.key().cmp(&(topic, number)))
    }
}
