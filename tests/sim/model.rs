//! What must be true: where which record is, and what it survives.
//!
//! An offset that somebody was told of, or has read, belongs to one record for ever, unless something took the record
//! that it was not promised to survive: a loss of power, where it was acknowledged or shown before it was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use taffrail::{RecordView, Timestamp, TopicConfig, TopicId};

use super::fates::TransactionModel;
use super::positions::GroupModel;
use super::record::{Sent, serial};
use super::topics::TopicModel;

/// A partition of a topic that is, or was, there.
pub(super) type Slot = (TopicId, u32);

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) sent: Vec<Sent>,
    pub(super) topics: BTreeMap<String, TopicModel>,
    pub(super) partitions: BTreeMap<Slot, PartitionModel>,
    pub(super) transactions: Vec<TransactionModel>,
    pub(super) groups: Vec<GroupModel>,
    /// Damage to positions was named by a log that was left since, or may have been by one that did not open.
    pub(super) was_named: bool,
    /// What the wall says.
    pub(super) wall: Timestamp,
    /// How often positions of groups were sent.
    pub(super) sendings: u64,
    /// Where a loss of power may have taken markers: of transactions with a record below this number.
    pub(super) shaken: BTreeMap<Slot, u64>,
    /// Where records of a key go, by topic, key and number of partitions.
    key_homes: BTreeMap<(TopicId, String, u32), u32>,
}

/// What somebody knows of an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) serial: u64,
    pub(super) timestamp: Timestamp,
    /// It survives a loss of power; else the end of the process.
    pub(super) power: bool,
}

/// What must be true of a partition.
#[derive(Debug, Default)]
pub(super) struct PartitionModel {
    pub(super) known: BTreeMap<u64, Known>,
    /// The greatest start that was seen.
    pub(super) start: u64,
    /// Up to where somebody has asked for records to go.
    pub(super) asked_to_go: u64,
    /// The settings that it had when it failed: a removal that they asked for may take effect when it is reopened.
    pub(super) configs_at_failure: Vec<TopicConfig>,
    /// The greatest high watermark that was seen.
    pub(super) high_watermark: u64,
    /// The same, while a loss of power could not take it back.
    pub(super) high_watermark_power: u64,
    /// The same of the last stable offset.
    pub(super) last_stable: u64,
    pub(super) last_stable_power: u64,
    /// Of a compacted topic: everything below is known, or is gone.
    pub(super) looked_up_to: u64,
    /// What compaction has taken.
    pub(super) gone: BTreeSet<u64>,
    /// By key, the last offset that it has taken for the sake of a later one,
    pub(super) replaced: BTreeMap<String, u64>,
    /// and that of the last deletion that went since its time was over.
    pub(super) deleted: BTreeMap<String, u64>,
    /// Offsets that cannot be read: their bytes were flipped on the disk, or lost with the power.
    pub(super) damaged: Vec<Range<u64>>,
    /// A loss of power may have taken bytes from the middle.
    pub(super) may_be_torn: bool,
    /// Since the last look a loss of power may have taken records that others had gone for.
    pub(super) may_be_short: bool,
    /// A process has ended with syncs that may have failed on a disk that did not even take a note of it, and the next one
    /// found the topic unsynced: it does not write again what it finds, so that later syncs need not cover it, even if
    /// the topic becomes synced. Until power is lost.
    tainted: bool,
}

impl PartitionModel {
    /// These offsets cannot be read; some of them `stay`, whatever compaction takes.
    ///
    /// # Panics
    /// Where they have to be there.
    fn is_corrupt(&mut self, offsets: &Range<u64>, compacts: bool, stay: &BTreeSet<u64>) {
        // Damaged batches that lie side by side are answered as one range, and what compaction has left out between them.
        let is_damaged = |offset: u64| self.damaged.iter().any(|range| range.contains(&offset));
        let is_gap = |offset: u64| compacts && !stay.contains(&offset);
        if offsets.clone().any(is_damaged) && offsets.clone().all(|offset| is_damaged(offset) || is_gap(offset)) {
            return;
        }
        let lost = self.known.range(offsets.clone()).next();
        assert!(self.may_be_torn && lost.is_none(), "{offsets:?} is damaged, and nothing was done to it: {lost:?}");
        self.damaged.push(offsets.clone());
    }

    /// Forgets what lies below the start.
    pub(super) fn started_at(&mut self, start: u64) {
        self.start = self.start.max(start);
        self.known = self.known.split_off(&self.start);
    }

    fn lost_power(&mut self, is_synced: bool) {
        self.known.retain(|_, known| known.power);
        self.may_be_short = !is_synced || self.tainted;
        if self.may_be_short {
            self.looked_up_to = 0;
        }
        self.may_be_torn |= self.may_be_short;
        if self.tainted {
            self.replaced.clear();
        }
        self.tainted = false;
        self.high_watermark = self.high_watermark_power;
        self.last_stable = self.last_stable_power;
    }

    /// All that is here, below `end`, was synced.
    fn synced(&mut self, end: u64) {
        if self.tainted {
            return;
        }
        self.known.range_mut(..end).for_each(|(_, known)| known.power = true);
        self.high_watermark_power = self.high_watermark;
        self.last_stable_power = self.last_stable;
    }
}

impl Model {
    pub(super) fn topic(&mut self, name: &str) -> &mut TopicModel {
        self.topics.entry(name.to_owned()).or_insert_with(TopicModel::absent)
    }

    pub(super) fn partition(&mut self, slot: Slot) -> &mut PartitionModel {
        self.partitions.entry(slot).or_default()
    }

    /// Somebody was told, or has read, that the record `serial` is at `offset`.
    ///
    /// # Panics
    /// Where that cannot be.
    pub(super) fn found(&mut self, slot: Slot, offset: u64, serial: u64, timestamp: Timestamp, power: bool) {
        let sent = usize::try_from(serial).ok().and_then(|index| self.sent.get_mut(index));
        let sent = sent.unwrap_or_else(|| panic!("offset {offset} of {slot:?} has record {serial}, never sent"));
        assert!(!sent.refused, "offset {offset} of {slot:?} has record {serial}, which was refused");
        assert_eq!((sent.topic, sent.partition), slot, "record {serial} is in another partition, at offset {offset}");
        let before = *sent.offset.get_or_insert(offset);
        assert_eq!(before, offset, "record {serial} of {slot:?} is at two offsets");
        let partition = self.partitions.entry(slot).or_default();
        if offset < partition.start || partition.gone.contains(&offset) {
            return;
        }
        let known = partition.known.entry(offset).or_insert(Known { serial, timestamp, power });
        let same = (known.serial, known.timestamp) == (serial, timestamp);
        assert!(same, "offset {offset} of {slot:?} was {known:?}, now it is record {serial} of {timestamp}");
        known.power |= power;
    }

    /// Somebody was told, maybe long after, that the record `serial` went to `offset`.
    ///
    /// # Panics
    /// Where that cannot be.
    pub(super) fn told(&mut self, slot: Slot, offset: u64, serial: u64, timestamp: Timestamp, power: bool) {
        let compacts = self.compacts(slot.0);
        let partition = self.partition(slot);
        if compacts && offset < partition.looked_up_to && !partition.known.contains_key(&offset) {
            partition.gone.insert(offset);
        }
        self.found(slot, offset, serial, timestamp, power);
    }

    /// Somebody has read a record.
    ///
    /// # Panics
    /// Where it is not what was sent.
    pub(super) fn read(&mut self, slot: Slot, record: &RecordView<'_>, power: bool, stamps: bool) -> u64 {
        let offset = record.offset().0;
        let serial =
            serial(record).unwrap_or_else(|| panic!("offset {offset} of {slot:?} is none of ours: {record:?}"));
        let timestamp = record.timestamp().unwrap_or_default();
        let is_back = self.partition(slot).gone.contains(&offset);
        assert!(!is_back, "record {serial} at offset {offset} of {slot:?} was compacted, and is back");
        self.found(slot, offset, serial, timestamp, power);
        let sent = &self.sent[usize::try_from(serial).expect("it was sent")];
        if let Some(difference) = sent.difference(serial, record) {
            panic!("record {serial} at offset {offset} of {slot:?} has changed: {difference}");
        }
        assert!(stamps || sent.timestamp == timestamp, "record {serial} was of {}, now of {timestamp}", sent.timestamp);
        serial
    }

    /// Records of a key go to one partition as long as there are as many.
    ///
    /// # Panics
    /// Where they do not.
    pub(super) fn key_went(&mut self, topic: TopicId, key: &str, partitions: u32, to: u32) {
        let home = *self.key_homes.entry((topic, key.to_owned(), partitions)).or_insert(to);
        assert_eq!(home, to, "the key {key} of {topic} has moved, with {partitions} partitions all the time");
    }

    /// Records of one producer stand in the order of its `send` calls, in each partition.
    ///
    /// # Panics
    /// Where they do not.
    pub(super) fn check_order(&self, slot: Slot) {
        let Some(partition) = self.partitions.get(&slot) else { return };
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        for (offset, known) in &partition.known {
            let producer = self.sent[usize::try_from(known.serial).expect("it was sent")].producer;
            let before = last.insert(producer, known.serial);
            let rises = before.is_none_or(|before| before < known.serial);
            assert!(rises, "{slot:?}: record {} at offset {offset} was sent before {before:?}", known.serial);
        }
    }

    /// The power went: what was not synced may be gone.
    pub(super) fn lost_power(&mut self) {
        let synced: BTreeSet<_> = self.live().into_iter().filter(|topic| self.is_synced(*topic)).collect();
        for (slot, partition) in &mut self.partitions {
            partition.lost_power(synced.contains(&slot.0));
            if partition.may_be_short {
                self.shaken.insert(*slot, self.sent.len() as u64);
            }
        }
    }

    /// Everything in these topics is on the disk now.
    pub(super) fn synced(&mut self, topics: &BTreeSet<TopicId>) {
        let of = self.partitions.iter_mut().filter(|((topic, _), _)| topics.contains(topic));
        of.for_each(|(_, partition)| partition.synced(u64::MAX));
    }

    /// Everything that readers see of this topic is on the disk now.
    pub(super) fn shown_is_synced(&mut self, id: TopicId) {
        let of = self.partitions.iter_mut().filter(|((topic, _), _)| *topic == id);
        of.for_each(|(_, partition)| partition.synced(partition.high_watermark));
    }

    /// The ids of the topics that are there.
    pub(super) fn live(&self) -> BTreeSet<TopicId> {
        self.topics.values().filter_map(|topic| topic.live).collect()
    }

    /// What is known of a topic that is there under this id.
    pub(super) fn topic_of(&self, id: TopicId) -> Option<&TopicModel> {
        self.topics.values().find(|topic| topic.live == Some(id))
    }

    /// The settings that a topic may have.
    pub(super) fn configs(&self, id: TopicId) -> &[TopicConfig] {
        self.topic_of(id).map_or(&[], |topic| &topic.configs)
    }

    /// The settings that a partition had when it failed.
    pub(super) fn configs_at_failure(&self, slot: Slot) -> &[TopicConfig] {
        self.partitions.get(&slot).map_or(&[], |partition| &partition.configs_at_failure)
    }

    /// Whether what is acknowledged or read here survives a loss of power.
    pub(super) fn survives(&self, slot: Slot) -> bool {
        let tainted = self.partitions.get(&slot).is_some_and(|partition| partition.tainted);
        self.is_synced(slot.0) && !tainted
    }

    /// These offsets cannot be read.
    ///
    /// # Panics
    /// Where they have to be there.
    pub(super) fn is_corrupt(&mut self, slot: Slot, offsets: &Range<u64>) {
        let compacts = self.compacts(slot.0);
        let known = self.partition(slot).known.range(offsets.clone()).map(|(at, known)| (*at, *known)).collect();
        let stay = self.last_of_keys(slot, known).into_iter().map(|(offset, _)| offset).collect();
        self.partition(slot).is_corrupt(offsets, compacts, &stay);
    }

    /// Whether what is shown here was synced.
    pub(super) fn is_synced(&self, id: TopicId) -> bool {
        self.topic_of(id).is_some_and(TopicModel::is_synced)
    }

    /// A process has ended on a disk that may have failed; `is_noted` says in which partitions, by topic and number, it
    /// could note that.
    pub(super) fn ended_badly(&mut self, is_noted: impl Fn(&str, u32) -> bool) {
        let synced: BTreeSet<_> = self.live().into_iter().filter(|topic| self.is_synced(*topic)).collect();
        let topics = &self.topics;
        let name_of = |id| topics.iter().find(|(_, topic)| topic.live == Some(id)).map(|(name, _)| name);
        for ((topic, number), partition) in &mut self.partitions {
            let is_noted = name_of(*topic).is_some_and(|name| is_noted(name, *number));
            partition.tainted |= !synced.contains(topic) && !is_noted;
        }
    }

    /// Where a clean close does not say that all is on the disk.
    pub(super) fn doubtful(&self) -> BTreeSet<Slot> {
        self.partitions.iter().filter(|(_, partition)| partition.tainted).map(|(slot, _)| *slot).collect()
    }

    pub(super) fn stamps(&self, id: TopicId) -> bool {
        self.topic_of(id).is_none_or(|topic| topic.stamps)
    }
}
