//! Whoever holds records, and whoever removes them by hand.

use taffrail::{Error, Hold, Offset, Partition};

use super::model::Slot;
use super::world::World;

/// A hold that is alive.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) slot: Slot,
    pub(super) hold: Hold,
    /// What was there when it was taken is known.
    pub(super) was_looked_at: bool,
}

impl World {
    pub(super) fn hold(&mut self) {
        let Some((name, slot, partition)) = self.a_partition() else { return };
        match self.choice.below(8) {
            0..=2 => self.take_hold(name, slot, &partition),
            3 | 4 if !self.holds.is_empty() => {
                let index = self.choice.index(self.holds.len());
                let released = self.holds.swap_remove(index);
                self.trace.note(format_args!("releases {:?} at {}", released.slot.1, released.hold.offset()));
            }
            3..=5 => self.delete_records(name, slot, &partition),
            6 => self.trim(name, slot, &partition),
            _ => self.reopen(name, slot.1),
        }
    }

    fn take_hold(&mut self, name: &str, slot: Slot, partition: &Partition) {
        if partition.failure().is_some() {
            return; // a compaction that was decided before is completed by the reopen
        }
        let offset = Offset(self.choice.between(partition.start().0, partition.end().0));
        match partition.hold(offset) {
            Ok(hold) => {
                self.trace.note(format_args!("holds {name}-{} from {offset} on", slot.1));
                let was_looked_at = self.scan(slot, partition);
                self.holds.push(Held { slot, hold, was_looked_at });
            }
            Err(error) => panic!("{name}-{} cannot be held from {offset} on: {error}", slot.1),
        }
    }

    fn least_held(&self, slot: Slot) -> Option<u64> {
        self.holds.iter().filter(|held| held.slot == slot).map(|held| held.hold.offset().0).min()
    }

    fn delete_records(&mut self, name: &str, slot: Slot, partition: &Partition) {
        let (start, high_watermark) = (partition.start().0, partition.high_watermark().0);
        let offset = self.choice.between(start, high_watermark);
        let asked = if self.choice.one_in(6) { None } else { Some(Offset(offset)) };
        let to = asked.map_or(high_watermark, |offset| offset.0);
        let held = self.least_held(slot).filter(|held| *held < to);
        let outcome = partition.delete_records(asked);
        self.trace.note(format_args!("deletes records of {name}-{} below {to}: {outcome:?}", slot.1));
        match outcome {
            Ok(now) => {
                assert!(held.is_none(), "records from {held:?} on are held, and were deleted up to {to}");
                assert_eq!(now.0, to, "records were deleted up to another offset");
                self.trace.count("records deleted by hand");
            }
            Err(Error::Held { held: found, .. }) => {
                assert_eq!(Some(found.0), held, "nothing holds them from there on");
                self.trace.count("holds in the way");
                return;
            }
            Err(Error::Policy(_)) => return assert!(self.model.compacts(slot.0), "records cannot be deleted"),
            Err(error) => self.excuse(&error, "records cannot be deleted"),
        }
        let model = self.model.partition(slot);
        model.asked_to_go = model.asked_to_go.max(to);
    }

    fn trim(&mut self, name: &str, slot: Slot, partition: &Partition) {
        let (start, high_watermark) = (partition.start().0, partition.high_watermark().0);
        let asked = self.choice.between(start, high_watermark);
        let to = self.least_held(slot).map_or(asked, |held| held.min(asked));
        let outcome = partition.trim_before(Offset(asked));
        self.trace.note(format_args!("trims {name}-{} before {asked}: {outcome:?}", slot.1));
        match outcome {
            Ok(now) => assert_eq!(now.0, to.max(start), "it was trimmed to another offset"),
            Err(Error::Policy(_)) => return assert!(self.model.compacts(slot.0), "it cannot be trimmed"),
            Err(error) => self.excuse(&error, "it cannot be trimmed"),
        }
        let model = self.model.partition(slot);
        model.asked_to_go = model.asked_to_go.max(to);
    }
}
