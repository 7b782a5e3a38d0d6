//! What groups have read of the topics that are held for them, and who is told where more had to be held than is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::{Node, Topic};
use crate::partition::{Partition, Reached, Removed};
use crate::sync::Mutex;
use crate::types::{Offset, TopicPartition};

type Positions = BTreeMap<TopicPartition, Offset>;

/// What groups have read, asked once for all partitions that are looked after in one turn.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// By group; `None` where it is not known.
    positions: BTreeMap<String, Option<Positions>>,
}

impl Readings {
    /// Asks for the positions of the groups that a topic is held for.
    pub(crate) fn ask(&mut self, node: &Node, topic: &Topic) {
        for group in &topic.config.partition.retention.held_groups {
            if let Entry::Vacant(unknown) = self.positions.entry(group.clone()) {
                unknown.insert(node.positions_of(group).ok());
            }
        }
    }

    fn position(&self, group: &str, partition: &TopicPartition) -> Option<Offset> {
        self.positions.get(group)?.as_ref()?.get(partition).copied()
    }

    /// What has been read of a partition by all that it is held for.
    pub(crate) fn reached<'t>(&self, topic: &'t Topic, partition: &Partition) -> Option<Reached<'t>> {
        let groups = &topic.config.partition.retention.held_groups;
        if groups.is_empty() {
            return None;
        }
        let positions = groups.iter().map(|group| self.position(group, partition.name()));
        let least =
            positions.reduce(|least, position| least.zip(position).map(|(least, position)| least.min(position)));
        Some(Reached { groups, offset: least.flatten() })
    }

    /// Who has not read what was removed, and what of it.
    fn losses(&self, topic: &Topic, partition: &Partition, removed: &Removed) -> Vec<((TopicPartition, String), Loss)> {
        let groups = topic.config.partition.retention.held_groups.iter();
        let losing = groups.filter_map(|group| {
            let position =
                self.position(group, partition.name()).filter(|position| *position <= partition.high_watermark());
            let position = position.unwrap_or(Offset::ZERO);
            let offsets = position.max(removed.base_offset)..removed.end_offset;
            let loss = Loss { offsets, bytes: removed.bytes };
            (!loss.offsets.is_empty()).then(|| ((partition.name().clone(), group.clone()), loss))
        });
        losing.collect()
    }
}

/// What a group lost though it was held for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) offsets: Range<Offset>,
    /// Bytes of the segments that these lay in.
    pub(crate) bytes: u64,
}

/// Where losses are put for one who wants to know, until they are taken: one entry for each partition and group.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pending: Mutex<BTreeMap<(TopicPartition, String), Loss>>,
}

impl Losses {
    /// Those since the last call.
    pub(crate) fn take(&self) -> BTreeMap<(TopicPartition, String), Loss> {
        std::mem::take(&mut *self.pending.lock())
    }

    fn put(&self, key: &(TopicPartition, String), loss: &Loss) {
        match self.pending.lock().entry(key.clone()) {
            Entry::Vacant(new) => drop(new.insert(loss.clone())),
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.offsets = known.offsets.start.min(loss.offsets.start)..known.offsets.end.max(loss.offsets.end);
                known.bytes += loss.bytes;
            }
        }
    }
}

/// Those who want to know of losses.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<Vec<Weak<Losses>>>);

impl Node {
    /// Where losses are put from now on, for as long as it lives.
    pub(crate) fn watch_losses(&self) -> Arc<Losses> {
        let losses = Arc::new(Losses::default());
        self.watchers.0.lock().push(Arc::downgrade(&losses));
        losses
    }

    /// Tells those who want to know what groups have lost by a removal.
    pub(super) fn tell_losses(&self, readings: &Readings, topic: &Topic, partition: &Partition, removed: &[Removed]) {
        let unread = removed.iter().filter(|removed| removed.is_unread());
        let losses: Vec<_> = unread.flat_map(|removed| readings.losses(topic, partition, removed)).collect();
        if losses.is_empty() {
            return;
        }
        let mut watchers = self.watchers.0.lock();
        watchers.retain(|one| one.strong_count() > 0);
        for told in watchers.iter().filter_map(Weak::upgrade) {
            losses.iter().for_each(|(key, loss)| told.put(key, loss));
        }
    }
}
