//! The topics that a producer sends to, as it saw them last: lanes by number.
//!
//! Invariants: a lane lives as long as its partition does, over every change of the topics, so that the order of its
//! batches does too; a topic that was deleted and created again gets new lanes, and what is open in the old ones fails.
//! Topics that are gone are forgotten with the next look at the topics, whoever takes it: a send to a topic that may
//! have changed, a flush, or the node ([`Timed`]). Else their files would stay open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::accumulator::Accumulator;
use super::lane::Lane;
use super::partitioner::{Choice, murmur2};
use super::sticky::Sticky;
use crate::clock::{Moment, Now};
use crate::controller::is_internal;
use crate::error::{Error, Result};
use crate::node::{Timed, Topic};
use crate::random::Random;
use crate::record::builder::Record;
use crate::sync::RwLock;
use crate::types::Compression;

/// All of them.
pub(super) struct Routes {
    accumulator: Arc<Accumulator>,
    known: RwLock<BTreeMap<Arc<str>, Arc<Route>>>,
    /// The version of the node's topics at which those that are gone were forgotten, or an earlier one.
    swept_at: AtomicU64,
}

/// One topic.
pub(super) struct Route {
    topic: Arc<Topic>,
    /// The version of the node's topics that this was made at, or an earlier one.
    version: u64,
    lanes: Vec<Arc<Lane>>,
    sticky: Arc<Sticky>,
    pub(super) compression: Compression,
}

impl Routes {
    pub(super) fn new(accumulator: &Arc<Accumulator>) -> Self {
        let swept_at = AtomicU64::new(accumulator.node.version());
        Self { accumulator: Arc::clone(accumulator), known: RwLock::new(BTreeMap::new()), swept_at }
    }

    /// The topic as it is now.
    pub(super) fn route(&self, name: &str) -> Result<Arc<Route>> {
        let version = self.accumulator.node.version();
        let known = self.known.read().get(name).filter(|route| route.version == version).cloned();
        known.map_or_else(|| self.renew(name, version), Ok)
    }

    /// Every lane of every topic that is there.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.sweep();
        self.known.read().values().flat_map(|route| route.lanes.iter().cloned()).collect()
    }

    /// Looks a topic up that is new here, or may have changed. `version` was read before.
    #[cold]
    fn renew(&self, name: &str, version: u64) -> Result<Arc<Route>> {
        if is_internal(name) {
            return Err(Error::InvalidName {
                name: name.to_owned(),
                reason: "only the log itself writes to this topic",
            });
        }
        let topic = match self.accumulator.node.topic(name) {
            Ok(topic) => topic,
            Err(error) => {
                self.forget(name, version);
                return Err(error);
            }
        };
        let mut known = self.known.write();
        let before = known.get(name).cloned();
        if let Some(newer) = before.as_ref().filter(|before| before.version >= version) {
            return Ok(Arc::clone(newer));
        }
        let same = before.as_deref().filter(|before| before.topic.id == topic.id);
        let route = Arc::new(Route::new(&self.accumulator, topic, version, same));
        known.insert(Arc::clone(&route.topic.name), Arc::clone(&route));
        // It may be gone by now, and nobody may look for it again.
        self.swept_at.fetch_min(version, Ordering::AcqRel);
        drop(known);
        self.sweep();
        if let Some(before) = before.filter(|before| before.topic.id != route.topic.id) {
            before.give_up();
        }
        Ok(route)
    }

    /// Forgets the topics that are gone.
    fn sweep(&self) {
        let version = self.accumulator.node.version();
        if self.swept_at.load(Ordering::Acquire) >= version {
            return;
        }
        let mut gone = Vec::new();
        let mut known = self.known.write();
        // Under the lock, so that nothing that was entered is newer than these.
        let topics = self.accumulator.node.topics();
        known.retain(|name, route| {
            let is_there = topics.get(name).is_some_and(|topic| topic.id == route.topic.id);
            if !is_there {
                gone.push(Arc::clone(route));
            }
            is_there
        });
        self.swept_at.store(version, Ordering::Release);
        drop(known);
        for route in gone {
            route.give_up();
        }
    }

    /// The topic is gone, unless somebody has seen it later.
    fn forget(&self, name: &str, version: u64) {
        let mut known = self.known.write();
        let is_older = known.get(name).is_some_and(|route| route.version < version);
        let gone = if is_older { known.remove(name) } else { None };
        drop(known);
        if let Some(gone) = gone {
            gone.give_up();
        }
    }
}

impl Route {
    /// Takes over what is there already of the same topic.
    fn new(accumulator: &Arc<Accumulator>, topic: Arc<Topic>, version: u64, before: Option<&Self>) -> Self {
        let mut lanes = before.map_or_else(Vec::new, |before| before.lanes.clone());
        let new = (0_u32..).zip(&topic.partitions).skip(lanes.len());
        lanes.extend(new.map(|(number, partition)| Lane::new(accumulator, &topic, number, partition)));
        let count = count(&lanes);
        let sticky = before.map_or_else(
            || {
                let seed = accumulator.settings.seed ^ u64::from(murmur2(topic.name.as_bytes()));
                Arc::new(Sticky::new(Random::seeded(seed), count))
            },
            |before| Arc::clone(&before.sticky),
        );
        let compression = accumulator.settings.compression.or(topic.config.compression).unwrap_or_default();
        Self { topic, version, lanes, sticky, compression }
    }

    /// Where a record goes, and whether it was sent to the sticky partition.
    pub(super) fn choose(&self, accumulator: &Accumulator, record: &Record<'_>) -> (u32, bool) {
        if let Some(partition) = record.partition {
            return (partition, false);
        }
        let sticky = self.sticky.current();
        let choice = Choice {
            topic: &self.topic.name,
            key: record.key,
            value: record.value,
            partitions: count(&self.lanes),
            sticky,
        };
        let number = accumulator.settings.partitioner.partition(&choice);
        (number, number == sticky)
    }

    /// The lane of a partition.
    pub(super) fn lane(&self, number: u32) -> Result<&Arc<Lane>> {
        self.lanes.get(number as usize).ok_or_else(|| Error::UnknownPartition {
            topic: self.topic.name.to_string(),
            partition: number,
            partitions: count(&self.lanes),
        })
    }

    /// Notes that `bytes` went to the sticky partition, and says whether there is another one now.
    pub(super) fn note_sticky(&self, accumulator: &Accumulator, number: u32, bytes: usize, is_ready: bool) -> bool {
        let partitions = count(&self.lanes);
        partitions > 1 && self.sticky.note(number, bytes, is_ready, accumulator.settings.batch_bytes, partitions)
    }

    /// The topic is gone: what is open fails.
    fn give_up(&self) {
        for lane in &self.lanes {
            lane.give_up();
        }
    }
}

impl Timed for Routes {
    fn due(&self) -> Option<Moment> {
        (self.swept_at.load(Ordering::Acquire) < self.accumulator.node.version()).then_some(Moment(0))
    }

    fn run(&self, _now: Now) {
        self.sweep();
    }

    fn close(&self) {}
}

fn count(lanes: &[Arc<Lane>]) -> u32 {
    u32::try_from(lanes.len()).unwrap_or(u32::MAX)
}
