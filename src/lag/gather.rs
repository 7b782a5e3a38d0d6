//! What a node knows of a group's positions.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{Bounds, Facts, figures, goes_on_at, of_group};
use super::monitor::Monitors;
use super::{GroupLag, PartitionLag};
use crate::error::Result;
use crate::group::{Command, Position, Reply};
use crate::node::{Node, Readings, Topic, TopicNames, Topics};
use crate::partition::{Partition, ReadOptions};
use crate::types::{Offset, Timestamp, TopicPartition};

/// So many reads at most look for the next record: behind those that were aborted there may be none that is shown.
const LOOKS: usize = 8;

/// What was found before, so that it need not be read again: the next record to read, by group and partition.
pub(super) type Seen = BTreeMap<TopicPartition, (Offset, Timestamp)>;

/// The positions of a group.
pub(super) type Positions = BTreeMap<TopicPartition, Position>;

/// How far behind a group is, now; rates by what `monitors` have sampled.
pub(crate) fn lag_of(node: &Node, monitors: &Monitors, group: &str) -> Result<GroupLag> {
    node.check_open()?;
    let topics = node.topics();
    let positions = node.stored_positions(group)?;
    let described = node.ask_existing_group(group, Command::Describe { group: group.to_owned() });
    let meant = match described {
        Ok(Reply::Described(description)) => {
            let members = description.members.iter();
            let meant = members.flat_map(|member| member.assigned.iter().chain(member.target.iter()));
            TopicNames::of(&topics).partitions(meant)
        }
        Ok(_) => BTreeSet::new(),
        // It may have positions and no members, of which nothing more is known.
        Err(_) if !positions.is_empty() => BTreeSet::new(),
        Err(error) => return Err(error),
    };
    let mut gathering = Gathering::new(node, &topics);
    let now = node.clock().now();
    let mut lags: Vec<PartitionLag> = Vec::new();
    for partition in positions.keys().chain(&meant).collect::<BTreeSet<_>>() {
        let committed = positions.get(partition);
        let Some(facts) = gathering.facts(group, partition, committed, None) else { continue };
        let pace = monitors.pace(group, partition, now.monotonic);
        lags.push(figures(&facts?, pace, now.wall).0);
    }
    Ok(of_group(group, lags))
}

/// Looks at partitions, and asks once for what is held.
pub(super) struct Gathering<'n> {
    node: &'n Node,
    topics: &'n Topics,
    readings: Readings,
}

impl<'n> Gathering<'n> {
    pub(super) fn new(node: &'n Node, topics: &'n Topics) -> Self {
        Self { node, topics, readings: Readings::default() }
    }

    /// What is known of a position; `None` where there is no such partition.
    pub(super) fn facts(
        &mut self,
        group: &str,
        name: &TopicPartition,
        committed: Option<&Position>,
        seen: Option<&mut Seen>,
    ) -> Option<Result<Facts>> {
        let topic = self.topics.get(name.topic.as_str())?;
        let partition = topic.partition(name.partition).ok()?;
        self.readings.ask(self.node, topic);
        Some(self.look(group, topic, partition, committed, seen))
    }

    fn look(
        &self,
        group: &str,
        topic: &Topic,
        partition: &Partition,
        committed: Option<&Position>,
        seen: Option<&mut Seen>,
    ) -> Result<Facts> {
        let (committed, epoch) = (committed.map(|at| at.offset), committed.and_then(|at| at.leader_epoch));
        let place = partition.place(committed.unwrap_or(Offset::ZERO), epoch)?;
        let position = goes_on_at(committed, &place);
        let known = seen.as_ref().and_then(|seen| seen.get(partition.name())).filter(|(at, _)| *at == position);
        let next = match known {
            Some((_, next)) => Some(*next),
            None if position >= place.last_stable => None,
            None => next_timestamp(partition, position),
        };
        // Until there is a next record it is looked for again.
        if let (Some(seen), Some(next)) = (seen, next) {
            seen.insert(partition.name().clone(), (position, next));
        }
        let bounds = self.bounds(group, topic, partition, position);
        Ok(Facts { partition: partition.name().clone(), committed, place, next, bounds })
    }

    /// What retention keeps at this position.
    fn bounds(&self, group: &str, topic: &Topic, partition: &Partition, position: Offset) -> Bounds {
        let config = topic.config.partition_config();
        if !config.cleanup.deletes() {
            return Bounds::default();
        }
        let retention = &config.retention;
        let reached = self.readings.reached(topic, partition);
        let is_held = retention.held_groups.contains(group)
            || reached.is_some_and(|reached| reached.offset.is_none_or(|offset| offset <= position));
        let held = Some(retention.held_bytes_max).filter(|_| is_held);
        Bounds { age: retention.age, bytes: retention.bytes, held }
    }
}

/// The timestamp of the first record at or behind `from` that a reader is shown; `None` where there is none yet, or where
/// it cannot be read.
fn next_timestamp(partition: &Partition, from: Offset) -> Option<Timestamp> {
    let mut at = from;
    for _ in 0..LOOKS {
        let fetched = partition.try_read(at, ReadOptions::new().max_bytes(1)).ok()?;
        if let Some(record) = fetched.iter().next() {
            return record.timestamp();
        }
        if fetched.next_offset() <= at {
            return None;
        }
        at = fetched.next_offset();
    }
    None
}
