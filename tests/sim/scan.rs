//! Reads everything, and compares it with what is known: nothing is lost, nothing has changed, nothing stands twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use taffrail::{Error, Partition, ReadOptions, UpTo};

use super::model::Slot;
use super::world::World;

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

    fn scan(&mut self, slot: Slot, partition: &Partition) {
        let (start, end, high_watermark) = (partition.start().0, partition.end().0, partition.high_watermark().0);
        let shown = self.scan_range(slot, partition, start..high_watermark, UpTo::HighWatermark);
        let rest = if shown { self.scan_range(slot, partition, high_watermark..end, UpTo::LogEnd) } else { false };
        if !rest {
            return;
        }
        self.model.check_order(slot);
        let mut digest = DefaultHasher::new();
        let known = &self.model.partition(slot).known;
        known.iter().for_each(|(offset, known)| (offset, known.serial, known.power).hash(&mut digest));
        let digest = digest.finish();
        self.trace.note(format_args!("  {}-{} has {start}, {high_watermark}, {end}: {digest:x}", slot.0, slot.1));
    }

    /// Reads a range; every offset of it has a record. Says whether it came to its end.
    fn scan_range(&mut self, slot: Slot, partition: &Partition, range: Range<u64>, up_to: UpTo) -> bool {
        let options = ReadOptions::new().up_to(up_to).max_bytes(2_000);
        let power = up_to == UpTo::HighWatermark && self.model.survives(slot);
        let stamps = self.model.stamps(slot.0);
        let mut next = range.start;
        while next < range.end {
            let fetched = match partition.try_read(taffrail::Offset(next), options) {
                Ok(fetched) => fetched,
                Err(Error::Corrupt { offsets, .. }) => {
                    self.model.partition(slot).is_corrupt(&(offsets.start.0..offsets.end.0));
                    assert!(offsets.end.0 > next, "{slot:?} cannot be read behind offset {next}");
                    next = offsets.end.0;
                    continue;
                }
                Err(error) => {
                    self.trace.note(format_args!("  {slot:?} cannot be read at {next}: {error}"));
                    self.excuse(&error, "it cannot be read");
                    assert!(self.armed || self.doom.is_some(), "{slot:?} at {next}: {error}, and the disk is sound");
                    return false;
                }
            };
            for record in &fetched {
                assert_eq!(record.offset().0, next, "{slot:?} has a hole");
                self.model.read(slot, &record, power, stamps);
                next += 1;
            }
            let (stopped, marks) =
                (fetched.is_empty(), (partition.start(), partition.high_watermark(), partition.end()));
            assert!(!stopped, "{slot:?} has nothing at offset {next} of {range:?}, {marks:?}");
        }
        true
    }
}
