//! What changes: topics, the coordinator, transactions, time.

use super::*;

impl World {
    /// Something changes.
    pub(super) fn change(&mut self) {
        match self.below(26) {
            0..=3 => self.start_host(),
            4 => self.close_host(),
            5 => self.kill_host(),
            6..=7 => self.freeze_host(),
            8..=9 => self.cut_host_off(),
            10..=11 => self.stop_polling(),
            12..=13 => self.subscribe_host(),
            14..=17 => self.change_topics(),
            18..=20 => self.restart(),
            21 => self.end_transactions(),
            22 => self.jump(),
            _ => {}
        }
    }

    pub(super) fn change_topics(&mut self) {
        let name = NAMES[self.below(NAMES.len())];
        let more = 1 + u32::try_from(self.below(3)).unwrap();
        match self.topics.get_mut(name) {
            Some(topic) if self.random.one_in(2) => {
                topic.partitions = (topic.partitions + more).min(9);
                self.saw("a topic has more partitions");
            }
            Some(_) => {
                self.topics.remove(name);
                self.saw("a topic is gone");
            }
            None => {
                self.made += 1;
                let mut id = id(name);
                id.0[15] = self.made;
                self.topics.insert(name.to_owned(), Topic { id, ..topic(name, more) });
            }
        }
        self.tell_topics();
    }

    pub(super) fn tell_topics(&mut self) {
        self.is_untold = false;
        let topics = Arc::new(Topics(self.topics.clone()));
        self.submit(Command::Topics(topics)).unwrap();
    }

    /// The coordinator is made anew, from what is committed and some of what is not.
    pub(super) fn restart(&mut self) {
        let kept: Vec<_> = self.boundaries.range(self.committed..).copied().collect();
        let end = kept[self.below(kept.len())];
        if end < self.desk.log.len() {
            self.saw("decisions are lost");
        } else {
            assert!(replayed(&self.desk.log).is_like(&self.desk.coordinator), "the records say something else");
        }
        self.desk.log.truncate(end);
        self.boundaries.split_off(&(end + 1));
        self.held.clear();
        self.note_committed(end);
        let next = replayed(&self.desk.log);
        if !self.has_transactions {
            assert!(replayed(&compacted(&self.desk.log)).is_like(&next), "compaction takes something");
        }
        self.desk.coordinator = next;
        self.desk.skip(Duration::from_millis(1));
        self.desk.coordinator.loaded(self.desk.now);
        self.submit(Command::Settings(self.settings)).unwrap();
        self.is_untold = true;
        self.saw("the coordinator is made anew");
    }

    pub(super) fn end_transactions(&mut self) {
        // A marker is behind what is committed only.
        self.commit_log();
        for id in std::mem::take(&mut self.open) {
            let outcome = if self.one_in(2) { Outcome::Committed } else { Outcome::Aborted };
            self.desk.end(producer(id), outcome);
            self.boundaries.insert(self.desk.log.len());
        }
        self.commit_log();
    }

    /// Everything stands still for a while. Whoever has more than a second left is there behind it, though nothing of what
    /// has arrived was taken in.
    pub(super) fn jump(&mut self) {
        let soft = &self.desk.coordinator.soft;
        let end = soft.clock.elapsed() + SECOND;
        let pulses = soft.pulses.get(GROUP).into_iter().flatten();
        let safe = pulses.filter(|(_, pulse)| pulse.session_end > end && pulse.revoke_end.is_none_or(|by| by > end));
        let safe: Vec<_> = safe.map(|(member, _)| member.clone()).collect();
        self.desk.skip(600 * SECOND);
        self.submit(Command::Tick).unwrap();
        for member in safe {
            let group = self.desk.coordinator.group(GROUP);
            assert!(group.is_some_and(|group| group.roster.seat(&member).is_some()), "{member} was suspended only");
            self.saw("a suspended group is alive");
        }
        self.settle_step();
    }
}
