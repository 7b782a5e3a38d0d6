//! What is checked after every step: marks and starts move as they may, holds hold, topics are there.

use taffrail::{Clock, Stats, TopicConfig, TopicDescription};

use super::model::{Known, Slot};
use super::world::World;

impl World {
    pub(super) fn check(&mut self) {
        self.check_names();
        for name in self.names() {
            if let Some(found) = self.describe(name) {
                self.check_topic(&found);
            }
        }
        if self.choice.one_in(6) {
            self.scan_one();
        }
        let operations = self.storage.operations();
        self.trace.note(format_args!("  {operations} operations"));
    }

    fn check_names(&mut self) {
        let listed = self.log().topics();
        for name in self.names() {
            let is_listed = listed.iter().any(|listed| listed == name);
            let topic = self.model.topic(name);
            assert!(is_listed || !topic.is_certain(), "{name} is not listed");
            assert!(!is_listed || !topic.is_certainly_absent(), "{name} is listed");
        }
        assert!(
            listed.iter().all(|listed| self.names().contains(&listed.as_str())),
            "{listed:?} has more than was made"
        );
    }

    fn check_topic(&mut self, found: &TopicDescription) {
        let due = found.config.partitions as usize;
        let open = found.partitions.len();
        assert!(open == due || self.excused, "{} has {open} of {due} partitions", found.name);
        for (number, stats) in (0..).zip(&found.partitions) {
            self.check_marks((found.id, number), stats);
            self.check_stable(found, number);
            self.check_start((found.id, number), stats);
            self.note_failure(found, number);
            self.check_holds((found.id, number), stats);
        }
    }

    /// The marks stand in order, and none goes back.
    fn check_marks(&mut self, slot: Slot, stats: &Stats) {
        let (is_synced, survives) = (self.model.is_synced(slot.0), self.model.survives(slot));
        let (start, end, high_watermark) = (stats.start.0, stats.end.0, stats.high_watermark.0);
        assert!(start <= high_watermark && high_watermark <= end, "{slot:?}: {stats:?}");
        assert!(!is_synced || high_watermark <= stats.synced_end.0, "{slot:?} shows what is not synced: {stats:?}");
        let partition = self.model.partition(slot);
        let before = partition.high_watermark;
        assert!(high_watermark >= before, "{slot:?}: the high watermark went from {before} back to {high_watermark}");
        partition.high_watermark = high_watermark;
        if survives {
            partition.high_watermark_power = partition.high_watermark_power.max(high_watermark);
        }
        if let Some((offset, known)) = partition.known.last_key_value() {
            assert!(*offset < end, "{slot:?} ends at {end}, and has {known:?} at {offset}");
        }
    }

    /// The last stable offset does not pass the high watermark, and does not go back; what compaction leaves alone is
    /// damaged.
    fn check_stable(&mut self, found: &TopicDescription, number: u32) {
        let slot = (found.id, number);
        let Some(partition) = self.partition(&found.name, found.id, number) else { return };
        let (now, high_watermark) = (partition.last_stable().0, partition.high_watermark().0);
        assert!(now <= high_watermark, "{slot:?} is stable up to {now}, and shows what is below {high_watermark}");
        let survives = self.model.survives(slot);
        let model = self.model.partition(slot);
        assert!(now >= model.last_stable, "{slot:?} was stable up to {}, and now is up to {now}", model.last_stable);
        model.last_stable = now;
        if survives {
            model.last_stable_power = model.last_stable_power.max(now);
        }
        let is_damaged = !model.damaged.is_empty() || model.may_be_torn;
        if let Some(error) = found.uncleanable.get(&number) {
            self.trace.count("partitions left alone by compaction");
            assert!(is_damaged || self.excused, "{slot:?} is not compacted any more, and is sound: {error}");
        }
    }

    /// The start goes forward, and takes only what may go.
    fn check_start(&mut self, slot: Slot, stats: &Stats) {
        let partition = self.model.partition(slot);
        let (before, now) = (partition.start, stats.start.0);
        assert!(now >= before, "{slot:?}: the start went from {before} back to {now}");
        let from = before.max(partition.asked_to_go);
        if now > from {
            let gone: Vec<_> = partition.known.range(from..now).map(|(offset, known)| (*offset, *known)).collect();
            // What compaction may have taken before is not counted.
            let compacts = self.model.compacts(slot.0);
            let gone = if compacts { self.model.last_of_keys(slot, gone) } else { gone };
            self.check_retention(slot, &gone, now, stats);
            self.trace.count("retention moved a start");
            self.trace.note(format_args!("retention moves the start of {slot:?} from {from} to {now}"));
        }
        let partition = self.model.partition(slot);
        partition.may_be_short = false;
        partition.started_at(now);
    }

    /// What went by itself was old enough, or there was enough without it.
    fn check_retention(&mut self, slot: Slot, gone: &[(u64, Known)], start: u64, stats: &Stats) {
        let now = self.clock.wall().0;
        let may_be_short = self.model.partition(slot).may_be_short || self.model.compacts(slot.0);
        let may = |config: &TopicConfig| {
            let retention = &config.partition.retention;
            let age = retention.age.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            let is_old = |known: &Known| age.is_some_and(|age| known.timestamp.0 < now.saturating_sub(age));
            let by_age = gone.iter().rev().take_while(|(_, known)| is_old(known)).count();
            // By size they go first, so that what is left may have gone by age behind them; of that nothing may be known.
            let is_unknown = gone.last().is_some_and(|(offset, _)| offset + 1 < start);
            let is_enough = |keep| by_age > 0 || is_unknown || stats.bytes >= keep || may_be_short;
            by_age == gone.len() || retention.bytes.is_some_and(is_enough)
        };
        let configs = self.model.configs(slot.0);
        let earlier = self.model.configs_at_failure(slot);
        assert!(
            configs.iter().chain(earlier).any(may),
            "{slot:?} begins at {start}: {gone:?} went at {now}, {stats:?}, {configs:?}"
        );
    }

    /// What a failed partition was about to do, it does once it is reopened, whatever it is told meanwhile.
    fn note_failure(&mut self, found: &TopicDescription, number: u32) {
        let failure = self.partition(&found.name, found.id, number).and_then(|partition| partition.failure());
        let configs = self.model.configs(found.id).to_vec();
        let model = self.model.partition((found.id, number));
        match failure {
            None => model.configs_at_failure.clear(),
            Some(_) if model.configs_at_failure.is_empty() => model.configs_at_failure = configs,
            Some(_) => {}
        }
    }

    fn check_holds(&self, slot: Slot, stats: &Stats) {
        for held in self.holds.iter().filter(|held| held.slot == slot) {
            let from = held.hold.offset();
            assert!(stats.start <= from, "{slot:?} is held from {from} on, and begins at {}", stats.start);
        }
    }
}
