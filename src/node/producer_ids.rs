//! The ids of producers: taken from the catalogue in blocks, handed out one by one.
//!
//! Ids that came from elsewhere, in partitions that were copied from another log, are skipped when the log is opened.
//!
//! What is left of a block when the log is closed, or its process dies, is never given to anybody, as in Kafka: the
//! catalogue has the whole block as given before its first id is handed out. So an id is given once, over crashes too.

use std::ops::Range;

use super::Node;
use crate::controller::{Command, PRODUCER_IDS_PER_BLOCK, Reply};
use crate::error::{Error, Result};
use crate::types::ProducerId;

/// One host that writes as a producer of a huge id is not to use up all of them: such ones are passed over one by one.
const SKIPPED_MAX: i64 = 1 << 62;

/// What may be handed out.
#[derive(Debug, Default)]
pub(super) struct ProducerIds {
    /// What is left of the block that was taken last.
    block: Range<i64>,
    /// What is below was given out elsewhere, by a broker whose topic was taken in, say.
    least: i64,
}

impl Node {
    /// An id that no producer ever had. Once in [`PRODUCER_IDS_PER_BLOCK`] calls it waits for a sync of the catalogue.
    pub(crate) fn producer_id(&self) -> Result<ProducerId> {
        self.check_open()?;
        let mut ids = self.producer_ids.lock();
        ids.block.start = ids.block.start.max(ids.least);
        if let Some(id) = ids.block.next() {
            return Ok(ProducerId(id));
        }
        match self.administer_alone(Command::AllocateProducerIds { from: ProducerId(ids.least) })? {
            Reply::ProducerIds { first } => {
                ids.block = first.0.saturating_add(1)..first.0.saturating_add(PRODUCER_IDS_PER_BLOCK);
                Ok(first)
            }
            _ => Err(Error::ProducerIdsExhausted),
        }
    }

    /// An id that no producer ever had, and no partition knows: one that was copied from another log, or that a host writes
    /// to as producers of its own, may know ids that nobody was given here.
    pub(super) fn unknown_producer_id(&self) -> Result<ProducerId> {
        loop {
            let id = self.producer_id()?;
            let topics = self.topics();
            if !topics.values().flat_map(|topic| &topic.partitions).any(|partition| partition.knows_producer(id)) {
                return Ok(id);
            }
        }
    }

    /// Skips the ids that partitions know, which may have been copied from another log.
    pub(super) fn skip_known_producer_ids(&self) {
        let topics = self.topics();
        let partitions = topics.values().flat_map(|topic| &topic.partitions);
        let greatest = partitions.filter_map(|partition| partition.greatest_producer(|id| id.0 < SKIPPED_MAX)).max();
        self.skip_producer_ids(ProducerId(greatest.map_or(0, |id| id.0.saturating_add(1))));
    }

    /// Ids below this one are not handed out: whoever has one had it from elsewhere.
    pub(super) fn skip_producer_ids(&self, least: ProducerId) {
        let mut ids = self.producer_ids.lock();
        ids.least = ids.least.max(least.0);
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::storage::MemoryStorage;
    use crate::types::Timestamp;

    fn open(storage: &MemoryStorage) -> Arc<Node> {
        Node::on(storage, Arc::new(ManualClock::at(Timestamp(0))))
    }

    #[test]
    fn ids_rise_through_the_blocks() {
        let node = open(&MemoryStorage::new(1));
        let ids: Vec<i64> = (0..2500).map(|_| node.producer_id().unwrap().0).collect();
        assert_eq!(ids, (0..2500).collect::<Vec<_>>());
        assert_eq!(node.catalogue().next_producer_id(), ProducerId(3000));
        let mut next_behind = |least| {
            node.skip_producer_ids(ProducerId(least));
            node.producer_id().unwrap().0
        };
        assert_eq!([2700, 9999, 5, 10_999].map(&mut next_behind), [2700, 9999, 10_000, 10_999]);
    }

    #[test]
    fn no_id_is_given_twice_over_crashes_and_closes() {
        let mut storage = MemoryStorage::new(3);
        let mut least = 0_i64;
        for round in 0..20 {
            let node = open(&storage);
            for _ in 0..=round * 10 {
                let id = node.producer_id().unwrap().0;
                assert!(id >= least, "{id} was given before");
                least = id + 1;
            }
            if round % 3 == 0 {
                node.close().unwrap();
            } else {
                storage = storage.crash(round);
            }
        }
    }

    #[test]
    fn a_closed_log_gives_none() {
        let node = open(&MemoryStorage::new(1));
        node.close().unwrap();
        assert!(matches!(node.producer_id(), Err(Error::Closed)));
    }
}
