//! Partitions of topics, by the topics' ids: a topic that is made again under its name is another one.
//!
//! Invariant: a topic that is named has a partition.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::TopicId;

/// A set of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partitions(BTreeMap<TopicId, BTreeSet<u32>>);

impl Partitions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn contains(&self, topic: TopicId, partition: u32) -> bool {
        self.0.get(&topic).is_some_and(|numbers| numbers.contains(&partition))
    }

    pub(crate) fn insert(&mut self, topic: TopicId, partition: u32) -> bool {
        self.0.entry(topic).or_default().insert(partition)
    }

    /// One by one, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TopicId, u32)> {
        self.0.iter().flat_map(|(topic, numbers)| numbers.iter().map(|number| (*topic, *number)))
    }

    /// By topic.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (TopicId, &BTreeSet<u32>)> {
        self.0.iter().map(|(topic, numbers)| (*topic, numbers))
    }

    /// Those of one topic.
    pub(crate) fn of(&self, topic: TopicId) -> impl Iterator<Item = u32> {
        self.0.get(&topic).into_iter().flatten().copied()
    }

    /// Those that `other` has not.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.iter().filter(|(topic, number)| !other.contains(*topic, *number)).collect()
    }

    /// Those that `other` has too.
    pub(crate) fn shared_with(&self, other: &Self) -> Self {
        self.iter().filter(|(topic, number)| other.contains(*topic, *number)).collect()
    }

    /// Those that either has.
    pub(crate) fn joined_with(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Whether `other` has all of them.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.iter().all(|(topic, number)| other.contains(topic, number))
    }

    /// Whether they have one in common.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.iter().any(|(topic, number)| other.contains(topic, number))
    }
}

impl FromIterator<(TopicId, u32)> for Partitions {
    fn from_iter<I: IntoIterator<Item = (TopicId, u32)>>(partitions: I) -> Self {
        let mut all = Self::default();
        for (topic, number) in partitions {
            all.insert(topic, number);
        }
        all
    }
}
