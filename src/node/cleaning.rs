//! Which partition is compacted, and how fast.
//!
//! One partition at a time, the dirtiest first; it is gone on with until its round has ended. Where a rate is set, a piece
//! is followed by a pause that makes up for it. Where nothing is due, it is looked again after the backoff. A partition
//! that has failed, or cannot even be looked at, is left alone for a time, or until it is reopened: it remembers why.

use std::sync::Arc;

use super::measuring::measure_compaction;
use super::{Node, Topic};
use crate::clock::{Moment, Now};
use crate::config::CleanerConfig;
use crate::error::{Error, Result};
use crate::partition::{Compacting, Compaction, Dirtiness, Partition};
use crate::sync::Mutex;
use crate::trace;
use crate::types::TopicId;

/// What is read and written at once.
const PIECE_BYTES: u64 = 4 << 20;
/// With a rate, a piece is what it allows in this part of a second.
const PIECES_PER_SECOND: u64 = 20;
const PIECE_BYTES_LEAST: u64 = 64 << 10;

/// The compaction of a log's partitions.
#[derive(Debug)]
pub(super) struct Cleaning {
    config: CleanerConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The partition that is gone on with: the topic, and the number.
    current: Option<(TopicId, usize)>,
    next: Moment,
}

impl Cleaning {
    pub(super) fn new(config: CleanerConfig, now: Moment) -> Self {
        Self { config, state: Mutex::new(State { current: None, next: now }) }
    }

    pub(super) const fn config(&self) -> CleanerConfig {
        self.config
    }

    /// When there may be something to do.
    pub(super) fn next(&self) -> Moment {
        self.state.lock().next
    }

    fn piece_bytes(&self) -> u64 {
        let by_rate = |rate: u64| (rate / PIECES_PER_SECOND).clamp(PIECE_BYTES_LEAST, PIECE_BYTES);
        self.config.bytes_per_second.map_or(PIECE_BYTES, by_rate)
    }

    /// When a piece of so many bytes has been paid for.
    fn after(&self, now: Moment, bytes: u64) -> Moment {
        let Some(rate) = self.config.bytes_per_second else { return now };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        Moment(now.0.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

impl Node {
    /// Compacts a piece, where that is due.
    pub(super) fn clean(&self, now: Now) {
        // Whoever else is at it does it.
        let Some(mut state) = self.cleaning.state.try_lock() else { return };
        if now.monotonic < state.next {
            return;
        }
        let topics = self.topics.load();
        let all = || topics.values();
        let current = state.current.take();
        let found = current.and_then(|(id, number)| {
            let topic = all().find(|topic| topic.id == id)?;
            Some((topic, number, topic.partitions.get(number)?))
        });
        let Some((topic, number, partition)) = found.or_else(|| dirtiest(all(), now)) else {
            state.next = now.monotonic.after(self.cleaning.config.backoff);
            return;
        };
        match partition.compact(now, self.cleaning.piece_bytes()) {
            Ok(Compacting::Working { bytes }) => {
                state.current = Some((topic.id, number));
                state.next = self.cleaning.after(now.monotonic, bytes);
            }
            // Then the next one is looked for at once.
            Ok(Compacting::Ended(compaction)) => measure_compaction(&topic.name, &compaction),
            Ok(Compacting::Idle) | Err(Error::Poisoned { .. } | Error::Closed) => {}
            Err(error) => trace::warn(&self.home.directory, || {
                format!("the compaction of partition {number} of {} has failed: {error}", topic.name)
            }),
        }
    }

    /// Compacts everything of a partition that can be, now.
    pub(crate) fn compact(&self, topic: &str, partition: u32) -> Result<Compaction> {
        let compaction = self.topic(topic)?.partition(partition)?.compact_all(self.clock.now())?;
        measure_compaction(topic, &compaction);
        Ok(compaction)
    }
}

/// The partition of which the greatest part is dirty, among those that are to be compacted; of several the first.
fn dirtiest<'t>(
    topics: impl Iterator<Item = &'t Arc<Topic>>,
    now: Now,
) -> Option<(&'t Arc<Topic>, usize, &'t Partition)> {
    let mut found: Option<(Dirtiness, &Arc<Topic>, usize, &Partition)> = None;
    for topic in topics.filter(|topic| topic.config.partition.cleanup.compacts()) {
        for (number, partition) in topic.partitions.iter().enumerate() {
            // Of one that cannot be looked at it is noted why.
            let Ok(Some(dirtiness)) = partition.dirtiness(now) else { continue };
            if found.is_none_or(|(most, ..)| dirtiness.exceeds(most)) {
                found = Some((dirtiness, topic, number, partition));
            }
        }
    }
    found.map(|(_, topic, number, partition)| (topic, number, partition))
}
