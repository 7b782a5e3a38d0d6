//! The faults are over: within bounded virtual time everything is available again, and stays over one more end of each
//! kind.

use std::time::Duration;

use taffrail::{Acks, Clock, Error, TopicId};

use super::plan::topic_config;
use super::producers::ProducerActor;
use super::record::Sent;
use super::world::World;

/// For so long the log may go on to mend itself, in steps of a quarter of a second.
const MENDING: u32 = 40;

impl World {
    pub(super) fn end(&mut self) {
        self.trace.note("the faults are over");
        self.storage.clear_faults();
        (self.armed, self.doom) = (false, None);
        self.mend();
        // What was sent while there were faults may have failed.
        self.settle_producers();
        self.settle_commits();
        self.excused = false;
        self.settle_topics();
        self.settle_transactors();
        self.write_to_each();
        self.commit_to_each();
        self.mend();
        self.assert_decided();
        self.settle_groups();
        (0..self.readers.len()).for_each(|index| self.drain(index));
        self.scan_all();
        self.check();
        self.compact_for_good();
        self.scan_all();
        self.close_for_good();
    }

    /// Time passes, and what is fenced is reopened, until every partition of every topic is open and sound.
    fn mend(&mut self) {
        let mended = (0..MENDING).any(|_| {
            self.advance(Duration::from_millis(250));
            self.log().tick();
            self.is_mended()
        });
        assert!(mended, "in {MENDING} quarters of a second it was not mended");
    }

    fn is_mended(&mut self) -> bool {
        let mut is_mended = true;
        for name in self.names() {
            let Some(topic) = self.describe(name) else { continue };
            is_mended &= topic.partitions.len() == topic.config.partitions as usize;
            for number in (0..).take(topic.partitions.len()) {
                let partition = self.log().partition(name, number);
                let partition = partition.unwrap_or_else(|error| panic!("{name}-{number} is not there: {error}"));
                match partition.sync() {
                    Ok(()) if topic.uncleanable.contains_key(&number) && !self.is_damaged((topic.id, number)) => {
                        self.reopen(name, number);
                    }
                    Ok(()) => {}
                    Err(Error::Poisoned { .. }) => self.reopen(name, number),
                    Err(error) => panic!("{name}-{number} cannot be synced: {error}"),
                }
            }
        }
        is_mended
    }

    fn is_damaged(&mut self, slot: super::model::Slot) -> bool {
        let partition = self.model.partition(slot);
        partition.may_be_torn || !partition.damaged.is_empty()
    }

    /// Calls about topics are done, now that nothing is wrong.
    fn settle_topics(&mut self) {
        for name in self.names() {
            let config = topic_config(&mut self.choice, &self.plan);
            match self.ask(name) {
                Some(topic) => self.ensure(name, &topic.config),
                None => self.create(name, &config),
            }
        }
    }

    /// Each partition takes a record, and stores it.
    fn write_to_each(&mut self) {
        let number = self.producers.len();
        let index = number;
        self.producers.push(ProducerActor::of(number, Acks::All));
        for name in self.names() {
            let topic = self.describe(name).expect("it was made");
            for partition in 0..topic.config.partitions {
                let timestamp = self.clock.wall();
                let sent = Sent {
                    producer: number,
                    topic: TopicId([0; 16]),
                    partition,
                    key: Some("each".to_owned()),
                    bytes: Some(10),
                    timestamp,
                    at: self.clock.monotonic(),
                    offset: None,
                    refused: true,
                    transaction: None,
                };
                assert!(self.open_producer(index), "a producer does not open");
                self.send_as(index, name, sent, Some(partition), None);
                let refused = self.model.sent.last().is_none_or(|sent| sent.refused);
                assert!(!refused, "{name}-{partition} takes no record");
            }
        }
        self.flush_well(index);
        let stored = self.model.sent.iter().filter(|sent| sent.producer == number).all(|sent| sent.offset.is_some());
        assert!(stored, "not every partition has stored a record");
    }

    /// A log that was closed is opened without recovery, and needs no power for what it has.
    fn close_for_good(&mut self) {
        assert!(self.close(), "it was closed badly on a sound disk");
        let doubtful = self.model.doubtful();
        if self.choice.one_in(2) {
            self.storage = self.storage.crash(self.choice.seed());
            self.model.lost_power();
            self.end_readers(true);
            self.end_groups(true);
        }
        self.open();
        for name in self.names() {
            let Some(topic) = self.describe(name) else { continue };
            for number in (0..).take(topic.partitions.len()) {
                let recovery = self.log().partition(name, number).expect("it is there").recovery();
                let is_clean = recovery.clean || doubtful.contains(&(topic.id, number));
                assert!(is_clean, "{name}-{number} was closed, and was recovered: {recovery:?}");
            }
        }
        self.lose_power();
        self.open();
        self.check();
    }
}
