//! Compacted topics: offsets stay, of each key the last record does, and a deleted key goes when its time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use taffrail::{CleanerConfig, CompactionEnd, Error, Moment, Partition};

use super::model::{Known, Model, PartitionModel, Slot};
use super::plan::DELETE_RETENTION_MAX;
use super::record::Sent;
use super::scan::Picture;
use super::world::World;

impl World {
    /// What compaction may use, which is little.
    pub(super) fn cleaner(&mut self) -> CleanerConfig {
        CleanerConfig::new()
            .map_bytes_max(self.choice.pick(&[96, 200, 1 << 20]))
            .read_bytes(self.choice.pick(&[1, 300, 4_000]))
            .bytes_per_second(self.choice.pick(&[None, None, Some(1_000)]))
            .backoff(Duration::from_millis(self.choice.pick(&[100, 1_000, 15_000])))
    }

    /// One turn of whoever has a partition compacted.
    pub(super) fn compact(&mut self) {
        let Some((name, slot, partition)) = self.a_partition() else { return };
        if self.choice.one_in(3) {
            self.roll(name, slot, &partition);
        }
        let outcome = self.log().compact(name, slot.1);
        self.trace.note(format_args!("compacts {name}-{}: {outcome:?}", slot.1));
        match outcome {
            Ok(done) => {
                assert!(self.model.compacts(slot.0), "{name} is compacted, which it was not to be");
                if done.records_dropped > 0 {
                    self.trace.count("compactions");
                }
                if matches!(done.end, CompactionEnd::DiskFull { .. }) {
                    self.excuse(&Error::TimedOut, "the disk is full for a compaction");
                }
            }
            Err(Error::Policy(_)) => {}
            Err(Error::Corrupt { .. }) if self.model.partition(slot).may_be_damaged() => {}
            Err(error) => self.excuse(&error, "it cannot be compacted"),
        }
    }

    fn roll(&mut self, name: &str, slot: Slot, partition: &Partition) {
        let outcome = partition.roll();
        self.trace.note(format_args!("rolls {name}-{}: {outcome:?}", slot.1));
        if let Err(error) = outcome {
            self.excuse(&error, "it cannot be rolled");
        }
    }

    /// The faults are over: what is compacted to the end has of each key the last record, and no deleted key any more.
    pub(super) fn compact_for_good(&mut self) {
        let found: Vec<_> = self.names().iter().filter_map(|name| self.ask(name)).collect();
        let compacted: Vec<_> = found.into_iter().filter(|topic| topic.config.partition.cleanup.compacts()).collect();
        if compacted.is_empty() {
            return;
        }
        // What is held is not compacted.
        self.holds.clear();
        for round in 0..3 {
            // Those that were deleted before have the time that was set then.
            self.advance(DELETE_RETENTION_MAX + Duration::from_secs(60));
            for topic in &compacted {
                for number in (0..).take(topic.partitions.len()) {
                    self.compact_wholly(&topic.name, (topic.id, number), round);
                }
            }
        }
    }

    fn compact_wholly(&mut self, name: &str, slot: Slot, round: u32) {
        let Some(partition) = self.partition(name, slot.0, slot.1) else { return };
        let is_damaged = self.model.partition(slot).may_be_damaged();
        if round == 0 {
            self.roll(name, slot, &partition);
        }
        let done = match self.log().compact(name, slot.1) {
            Err(error) => {
                assert!(is_damaged, "{name}-{} cannot be compacted: {error}", slot.1);
                return;
            }
            Ok(done) => done,
        };
        self.trace.note(format_args!("compacts {name}-{} for good: {done}", slot.1));
        assert!(matches!(done.end, CompactionEnd::Complete), "{name}-{} is not compacted to its end: {done}", slot.1);
        let Some(picture) = self.look(slot, &partition) else { return };
        let cleaned = done.cleaned_to.0;
        self.model.check_compacted(slot, &picture, cleaned, round >= 2);
    }
}

/// What compaction has taken.
#[derive(Default)]
struct Went {
    gone: Vec<u64>,
    /// For the sake of later records: by key, the offset.
    replaced: Vec<(String, u64)>,
    /// Deletions whose time was over.
    deleted: Vec<(String, u64)>,
    /// Records of transactions that must have been aborted.
    aborted: Vec<u64>,
}

impl Model {
    /// Whether records of this topic ever went by key.
    pub(super) fn compacts(&self, topic: taffrail::TopicId) -> bool {
        self.topic_of(topic).is_some_and(|topic| topic.compacts)
    }

    /// Those of these records that are the last of their keys.
    pub(super) fn last_of_keys(&self, slot: Slot, of: Vec<(u64, Known)>) -> Vec<(u64, Known)> {
        let Some(partition) = self.partitions.get(&slot) else { return of };
        let is_last = |(offset, known): &(u64, Known)| {
            let key = self.key(known.serial);
            let later = |later: &Known| self.key(later.serial) == key;
            let counts = !self.is_aborted(known.serial) && key.is_some() && !self.is_tombstone(known.serial);
            let is_replaced = partition.known.range(offset + 1..).any(|(_, known)| later(known));
            counts && !is_replaced && key.is_none_or(|key| self.unseen_of(slot, key).next().is_none())
        };
        of.into_iter().filter(is_last).collect()
    }

    fn key(&self, serial: u64) -> Option<&str> {
        self.sent[usize::try_from(serial).expect("it was sent")].key.as_deref()
    }

    fn is_tombstone(&self, serial: u64) -> bool {
        self.sent[usize::try_from(serial).expect("it was sent")].bytes.is_none()
    }

    /// What was there and is not any more went for a reason.
    ///
    /// # Panics
    /// Where it did not.
    pub(super) fn check_gone(&mut self, slot: Slot, picture: &Picture, held: Option<u64>, now: Moment) {
        let present: BTreeSet<u64> = picture.records().map(|(offset, _)| offset).collect();
        let compacts = self.compacts(slot.0);
        let horizon = self.topic_of(slot.0).map_or(Duration::ZERO, |topic| topic.delete_retention_least);
        let Some(partition) = self.partitions.get(&slot) else { return };
        let mut went = Went::default();
        // Of each key the last record that counts, below where it is decided what does.
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (offset, known) in partition.known.range(picture.start..).rev() {
            let is_there = present.contains(offset);
            if !is_there {
                assert!(compacts, "{slot:?} has lost {known:?} at {offset}, of {picture:?}");
                let is_held = held.is_some_and(|held| *offset >= held);
                assert!(!is_held, "{slot:?} is held from {held:?} on, and {known:?} at {offset} went");
                let is_decided = *offset < picture.last_stable;
                assert!(is_decided, "{slot:?}: {known:?} at {offset} went, which is not decided");
                went.gone.push(*offset);
            }
            let counts = *offset < picture.last_stable && !self.is_aborted(known.serial);
            let Some(key) = self.key(known.serial).filter(|_| counts) else { continue };
            if is_there {
                last.entry(key).or_insert(*offset);
            } else if last.contains_key(key) {
                went.replaced.push((key.to_owned(), *offset));
            } else if !self.is_decided(known.serial) {
                // It had been aborted, and nobody has looked at it since.
                went.aborted.push(known.serial);
            } else if self.is_tombstone(known.serial) && now.since(self.at(known.serial)) >= horizon {
                last.insert(key, *offset);
                went.deleted.push((key.to_owned(), *offset));
            } else if self.may_have_lost_its_marker(slot, known.serial) {
                // The power took its marker.
                went.aborted.push(known.serial);
            } else {
                let may_be = self.may_be_deleted(slot, key, horizon, now);
                assert!(may_be, "{slot:?} has lost the last record of {key}, {known:?} at {offset}, after {horizon:?}");
            }
        }
        let last: BTreeMap<String, u64> = last.into_iter().map(|(key, offset)| (key.to_owned(), offset)).collect();
        went.aborted.iter().for_each(|serial| self.hidden(slot, *serial, now));
        let partition = self.partition(slot);
        partition.went(went);
        partition.looked_up_to(picture.last_stable);
        for (key, offset) in self.partition(slot).replaced_by_nothing(&last, picture.start) {
            let may_be_deleted = self.may_be_deleted(slot, &key, horizon, now);
            let known = &self.partition(slot).known;
            let story =
                format!("{slot:?} has lost {key} at {offset}, and what came in its place: {known:?}, {picture:?}");
            assert!(may_be_deleted, "{story}");
        }
    }

    fn at(&self, serial: u64) -> Moment {
        self.sent[usize::try_from(serial).expect("it was sent")].at
    }

    /// Records of the key of which nobody was told whether they are there.
    fn unseen_of<'m>(&'m self, slot: Slot, key: &'m str) -> impl Iterator<Item = &'m Sent> {
        let known = self.partitions.get(&slot).map(|partition| &partition.known);
        self.sent.iter().filter(move |sent| {
            let is_there = sent.offset.is_some_and(|offset| known.is_some_and(|known| known.contains_key(&offset)));
            (sent.topic, sent.partition) == slot && !sent.refused && !is_there && sent.key.as_deref() == Some(key)
        })
    }

    /// Whether a deletion of the key that nobody was told of may have come and gone.
    fn may_be_deleted(&self, slot: Slot, key: &str, horizon: Duration, now: Moment) -> bool {
        self.unseen_of(slot, key).any(|sent| sent.bytes.is_none() && now.since(sent.at) >= horizon)
    }

    /// Of what was compacted each key has its last record left, and that is no deletion where these are over.
    fn check_compacted(&self, slot: Slot, picture: &Picture, cleaned: u64, is_over: bool) {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (offset, serial) in picture.records().filter(|(offset, _)| *offset < cleaned) {
            let key = self.key(serial).unwrap_or_else(|| panic!("{slot:?} has a record without a key at {offset}"));
            assert!(seen.insert(key), "{slot:?} has {key} twice below {cleaned}, also at {offset}: {picture:?}");
            assert!(!self.is_aborted(serial), "{slot:?} has the aborted record {serial} at {offset} still");
            let stays = !is_over || !self.is_tombstone(serial);
            assert!(stays, "{slot:?} has the deleted {key} at {offset}, whose time is over");
        }
    }
}

impl PartitionModel {
    fn may_be_damaged(&self) -> bool {
        self.may_be_torn || !self.damaged.is_empty()
    }

    /// Everything below `end` was looked at: what is not known was not there.
    fn looked_up_to(&mut self, end: u64) {
        self.looked_up_to = self.looked_up_to.max(end);
    }

    fn went(&mut self, went: Went) {
        let Went { gone, replaced, deleted, .. } = went;
        for offset in gone {
            self.known.remove(&offset);
            self.gone.insert(offset);
        }
        for (key, offset) in replaced {
            let last = self.replaced.entry(key).or_default();
            *last = (*last).max(offset);
        }
        for (key, offset) in deleted {
            let last = self.deleted.entry(key).or_default();
            *last = (*last).max(offset);
        }
    }

    /// What went for the sake of a later record that is not there, by key. What lies below the start went by itself.
    fn replaced_by_nothing(&mut self, last: &BTreeMap<String, u64>, start: u64) -> Vec<(String, u64)> {
        self.replaced.retain(|_, offset| *offset >= start);
        let is_lost = |(key, offset): &(&String, &u64)| {
            let later = last.get(*key).into_iter().chain(self.deleted.get(*key));
            later.max().is_none_or(|later| later <= offset)
        };
        self.replaced.iter().filter(is_lost).map(|(key, offset)| (key.clone(), *offset)).collect()
    }
}
