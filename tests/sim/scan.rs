//! Reads everything, and compares it with what is known: nothing is lost, nothing has changed, nothing stands twice; and
//! readers of committed records see those of committed transactions, and those of none.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use taffrail::{
    Batch, Clock, ControlRecord, Error, Isolation, Moment, Partition, ProducerEpoch, ProducerId, ReadOptions, UpTo,
};

use super::model::{Model, Slot};
use super::world::World;

/// A partition as it lies there.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) start: u64,
    high_watermark: u64,
    pub(super) last_stable: u64,
    entries: Vec<(u64, Entry)>,
    /// Nothing of it is damaged.
    is_whole: bool,
}

/// What stands at an offset.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// A record, and the producer whose transaction it is in.
    Record {
        serial: u64,
        producer: Option<(ProducerId, ProducerEpoch)>,
    },
    Marker {
        producer: ProducerId,
        epoch: ProducerEpoch,
        commits: bool,
    },
}

/// A transaction that is open at some offset.
struct Open {
    first: u64,
    epoch: ProducerEpoch,
    records: Vec<u64>,
}

impl Picture {
    /// The records, with their offsets.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().filter_map(|(offset, entry)| match entry {
            Entry::Record { serial, .. } => Some((*offset, *serial)),
            Entry::Marker { .. } => None,
        })
    }
}

impl World {
    /// Reads every partition.
    pub(super) fn scan_all(&mut self) {
        for name in self.names() {
            let Some(topic) = self.describe(name) else { continue };
            for number in (0..).take(topic.partitions.len()) {
                if let Some(partition) = self.partition(name, topic.id, number) {
                    self.scan((topic.id, number), &partition);
                }
            }
        }
    }

    /// Reads any one.
    pub(super) fn scan_one(&mut self) {
        if let Some((_, slot, partition)) = self.a_partition() {
            self.scan(slot, &partition);
        }
    }

    /// Says whether all of it could be read.
    pub(super) fn scan(&mut self, slot: Slot, partition: &Partition) -> bool {
        let picture = self.look(slot, partition);
        if picture.is_some() {
            self.model.check_order(slot);
            let (start, high_watermark, end) = (partition.start(), partition.high_watermark(), partition.end());
            let mut digest = DefaultHasher::new();
            let known = &self.model.partition(slot).known;
            for (offset, known) in known {
                (offset, known.serial, known.power).hash(&mut digest);
            }
            let digest = digest.finish();
            self.trace.note(format_args!("  {}-{} has {start}, {high_watermark}, {end}: {digest:x}", slot.0, slot.1));
        }
        picture.is_some_and(|picture| picture.is_whole)
    }

    /// Reads it to its end, and checks what is there.
    pub(super) fn look(&mut self, slot: Slot, partition: &Partition) -> Option<Picture> {
        let (start, end, high_watermark) = (partition.start().0, partition.end().0, partition.high_watermark().0);
        let last_stable = partition.last_stable().0;
        let (entries, is_whole) = (Vec::new(), true);
        let mut picture = Picture { start, high_watermark, last_stable, entries, is_whole };
        let is_read = self.look_at(slot, partition, start..high_watermark, UpTo::HighWatermark, &mut picture)
            && self.look_at(slot, partition, high_watermark..end, UpTo::LogEnd, &mut picture);
        if !is_read {
            return None;
        }
        if picture.is_whole {
            let now = self.clock.monotonic();
            self.check_marked(slot, &picture);
            if !self.check_committed(slot, partition, &picture) {
                return None;
            }
            let held = self.holds.iter().filter(|held| held.slot == slot && held.was_looked_at);
            let held = held.map(|held| held.hold.offset().0).min();
            self.model.check_gone(slot, &picture, held, now);
            self.model.check_whole(slot);
        }
        Some(picture)
    }

    /// Reads a range as it lies there. Says whether it came to its end.
    fn look_at(
        &mut self,
        slot: Slot,
        partition: &Partition,
        range: Range<u64>,
        up_to: UpTo,
        picture: &mut Picture,
    ) -> bool {
        let options = ReadOptions::new().up_to(up_to).isolation(Isolation::Uncommitted).max_bytes(2_000);
        let power = up_to == UpTo::HighWatermark && self.model.survives(slot);
        let mut next = range.start;
        while next < range.end {
            let fetched = match partition.try_read(taffrail::Offset(next), options) {
                Ok(fetched) => fetched,
                Err(Error::Corrupt { offsets, .. }) => {
                    self.model.is_corrupt(slot, &(offsets.start.0..offsets.end.0));
                    assert!(offsets.end.0 > next, "{slot:?} cannot be read behind offset {next}");
                    next = offsets.end.0;
                    picture.is_whole = false;
                    continue;
                }
                Err(error) => {
                    self.trace.note(format_args!("  {slot:?} cannot be read at {next}: {error}"));
                    self.excuse(&error, "it cannot be read");
                    assert!(self.armed || self.doom.is_some(), "{slot:?} at {next}: {error}, and the disk is sound");
                    return false;
                }
            };
            for batch in fetched.batches() {
                self.look_at_batch(slot, &batch, next, power, picture);
            }
            // Behind the last batch there may be a gap that compaction has left.
            let (stopped, marks) =
                (fetched.next_offset().0 <= next, (partition.start(), partition.high_watermark(), partition.end()));
            assert!(!stopped, "{slot:?} has nothing at offset {next} of {range:?}, {marks:?}");
            next = fetched.next_offset().0;
        }
        true
    }

    /// Takes a batch in, from `from` on, where the one before it ended.
    fn look_at_batch(&mut self, slot: Slot, batch: &Batch<'_>, from: u64, power: bool, picture: &mut Picture) {
        let header = batch.header();
        let (first, next) = (header.base_offset().0, header.next_offset().0);
        let is_full = self.model.compacts(slot.0) || u64::from(header.record_count()) == next - first;
        assert!(is_full, "{slot:?} has a hole in {header:?}");
        let before = picture.entries.last().map_or(picture.start, |(offset, _)| offset + 1);
        let follows = first <= before.max(from) || self.model.compacts(slot.0) || !picture.is_whole;
        assert!(follows, "{slot:?} has a hole before {header:?}, from {before} on");
        let producer = header.producer_id().filter(|_| header.is_transactional());
        if let (true, Some(producer), Some(epoch)) = (header.is_control(), producer, header.producer_epoch()) {
            let commits = match batch.control() {
                Some(ControlRecord::Commit { .. }) => true,
                Some(ControlRecord::Abort { .. }) => false,
                // Compaction has left its header alone.
                None if self.model.compacts(slot.0) => return,
                other => panic!("{slot:?} has {other:?} at {first}"),
            };
            if first >= from {
                picture.entries.push((first, Entry::Marker { producer, epoch, commits }));
            }
            return;
        }
        let stamps = self.model.stamps(slot.0);
        let producer = producer.zip(header.producer_epoch());
        for record in batch.records().filter(|record| record.offset().0 >= from) {
            let serial = self.model.read(slot, &record, power, stamps);
            self.model.check_identity(slot, serial, producer);
            picture.entries.push((record.offset().0, Entry::Record { serial, producer }));
        }
    }

    /// The markers end what the transactions' fates say, and the last stable offset stands before what is open.
    fn check_marked(&mut self, slot: Slot, picture: &Picture) {
        let mut open: BTreeMap<ProducerId, Open> = BTreeMap::new();
        let mut unstable = picture.high_watermark;
        for (offset, entry) in &picture.entries {
            let ended = match *entry {
                Entry::Record { producer: None, .. } => continue,
                Entry::Record { serial, producer: Some((producer, epoch)) } => {
                    // What was open in an earlier epoch has lost its marker.
                    let left = open.get(&producer).is_some_and(|one| one.epoch < epoch);
                    let ended = if left { open.remove(&producer) } else { None };
                    let one = open.entry(producer).or_insert(Open { first: *offset, epoch, records: Vec::new() });
                    one.records.push(serial);
                    ended.map(|one| (one, offset - 1, false))
                }
                Entry::Marker { producer, epoch, commits } => {
                    let one = open.remove(&producer);
                    one.map(|one| {
                        let is_its = epoch.0 <= one.epoch.0 + 1;
                        (one, *offset, commits && is_its)
                    })
                }
            };
            let Some((one, offset, commits)) = ended else { continue };
            if offset >= picture.high_watermark {
                unstable = unstable.min(one.first);
            }
            self.ends(slot, &one, offset, commits);
        }
        let unstable = open.values().map(|one| one.first).fold(unstable, u64::min);
        let stable = picture.last_stable;
        // What began before the start keeps it there.
        let is_clamped = stable <= picture.start && picture.start > 0;
        let is_right = stable == unstable || stable < unstable && is_clamped;
        assert!(is_right, "{slot:?} is stable up to {stable}, not {unstable}: {picture:?}");
    }

    fn ends(&mut self, slot: Slot, one: &Open, offset: u64, commits: bool) {
        let now = self.clock.monotonic();
        self.trace.note(format_args!("  at {offset} a transaction ends, {commits}: {:?}", one.records));
        for serial in &one.records {
            if commits {
                self.model.shown(slot, *serial);
            } else {
                self.model.hidden(slot, *serial, now);
            }
        }
    }

    /// Readers of committed records see what counts, below the last stable offset. Says whether it could be read.
    fn check_committed(&mut self, slot: Slot, partition: &Partition, picture: &Picture) -> bool {
        let options = ReadOptions::new().max_bytes(self.choice.pick(&[1, 500, 2_000]));
        let mut next = picture.start;
        let mut shown = Vec::new();
        while next < picture.last_stable {
            match partition.try_read(taffrail::Offset(next), options) {
                Ok(fetched) => {
                    shown.extend(fetched.records().map(|record| record.offset().0));
                    let stands = fetched.next_offset().0 <= next;
                    assert!(!stands, "{slot:?} has nothing committed at {next}, {picture:?}");
                    next = fetched.next_offset().0;
                }
                Err(error) => {
                    self.excuse(&error, "it cannot be read");
                    return false;
                }
            }
        }
        let due = picture.records().filter(|(offset, _)| *offset < picture.last_stable);
        self.model.check_shown(slot, &shown, due, self.clock.monotonic());
        true
    }
}

/// What a reader has passed, as it lies there.
impl World {
    /// The records from one offset up to another, with their offsets; none where they cannot be read now.
    pub(super) fn passed(&mut self, slot: Slot, partition: &Partition, range: Range<u64>) -> Option<Vec<(u64, u64)>> {
        let (start, end, entries) = (range.start, range.end, Vec::new());
        let mut picture = Picture { start, high_watermark: end, last_stable: end, entries, is_whole: true };
        let is_read = self.look_at(slot, partition, range.clone(), UpTo::HighWatermark, &mut picture);
        (is_read && picture.is_whole).then(|| picture.records().filter(|(offset, _)| range.contains(offset)).collect())
    }
}

impl Model {
    /// A record carries the identity of its transaction, or none.
    fn check_identity(&self, slot: Slot, serial: u64, found: Option<(ProducerId, ProducerEpoch)>) {
        let sent = &self.sent[usize::try_from(serial).expect("it was sent")];
        let due = sent.transaction.map(|number| self.transactions[number].identity);
        assert_eq!(found, due, "record {serial} of {slot:?} is of another transaction");
    }

    /// What a reader of committed records was shown is what counts of the records that are there.
    pub(super) fn check_shown(
        &mut self,
        slot: Slot,
        shown: &[u64],
        there: impl Iterator<Item = (u64, u64)>,
        now: Moment,
    ) {
        let mut shown = shown.iter().peekable();
        for (offset, serial) in there {
            if shown.next_if(|next| **next == offset).is_some() {
                self.shown(slot, serial);
            } else {
                self.hidden(slot, serial, now);
            }
        }
        assert_eq!(shown.next(), None, "{slot:?} shows what is not there, or in another order");
    }
}
