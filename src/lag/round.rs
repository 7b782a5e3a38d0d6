//! One round of a monitor: it looks at the node, takes samples, works out figures, and judges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::figures::{Edge, Facts, figures};
use super::gather::{Gathering, Positions};
use super::gauges::Gauges;
use super::monitor::{Memory, Settings};
use super::samples::Samples;
use super::{Alert, PartitionLag, Rate};
use crate::clock::Now;
use crate::controller::is_internal;
use crate::metrics;
use crate::node::{Loss, Node, Topic, Topics};
use crate::partition::Volume;
use crate::sync::Arc as Shared;
use crate::types::{Offset, TopicPartition};

/// A position, and what is said of it.
struct Judged {
    facts: Facts,
    figures: Option<(PartitionLag, Edge)>,
}

/// What a round has found out.
pub(super) struct Round<'w> {
    node: &'w Node,
    settings: &'w Settings,
    now: Now,
    topics: Shared<Topics>,
    /// What has come into each partition since it was opened.
    came: BTreeMap<TopicPartition, Volume>,
    /// How fast records come into the partitions of each topic, by number.
    rates: BTreeMap<Arc<str>, Vec<Option<Rate>>>,
    /// Of the groups whose positions are known now.
    positions: BTreeMap<String, (Positions, Vec<Judged>)>,
    /// The groups that there are; `None` where that is not known.
    groups: Option<BTreeSet<String>>,
}

impl<'w> Round<'w> {
    pub(super) fn new(node: &'w Node, settings: &'w Settings, now: Now) -> Self {
        let topics = node.topics();
        let groups = match &settings.groups {
            Some(named) => Some(named.clone()),
            None => node.list_groups().ok().map(|all| all.into_iter().map(|listing| listing.group).collect()),
        };
        let (came, rates, positions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { node, settings, now, topics, came, rates, positions, groups }
    }

    fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values().filter(|topic| !is_internal(&topic.name))
    }

    /// Looks at the partitions and the positions. What cannot be looked at is left out.
    pub(super) fn gather(&mut self, memory: &mut Memory) {
        let partitions = self.topics().flat_map(|topic| &topic.partitions);
        let came = partitions.map(|partition| (partition.name().clone(), partition.appended())).collect();
        self.came = came;
        let topics = Shared::clone(&self.topics);
        let mut gathering = Gathering::new(self.node, &topics);
        for group in self.groups.iter().flatten() {
            let Ok(positions) = self.node.stored_positions(group) else { continue };
            let seen = memory.seen.of(group);
            let facts = positions.iter().filter_map(|(partition, committed)| {
                gathering.facts(group, partition, Some(committed), Some(&mut *seen))?.ok()
            });
            let judged = facts.map(|facts| Judged { facts, figures: None }).collect();
            self.positions.insert(group.clone(), (positions, judged));
        }
    }

    /// Takes samples, and figures by what they say.
    pub(super) fn sample(&mut self, samples: &mut Samples) {
        let now = self.now.monotonic;
        self.came.iter().for_each(|(partition, volume)| samples.came(now, partition, *volume));
        for (group, (_, judged)) in &mut self.positions {
            for Judged { facts, figures: said } in judged {
                let came = self.came.get(&facts.partition).copied().unwrap_or_default();
                let committed = facts.committed.unwrap_or(Offset::ZERO);
                samples.read(now, group, &facts.partition, committed, facts.place.bytes_behind, came);
                let pace = samples.pace(group, &facts.partition, now);
                *said = Some(figures(facts, pace, self.now.wall));
            }
        }
        let rates = self.topics().map(|topic| {
            let of = |partition: &crate::partition::Partition| samples.rate_in(partition.name(), now);
            (Arc::clone(&topic.name), topic.partitions.iter().map(of).collect())
        });
        self.rates = rates.collect();
        samples.prune(now);
    }

    /// What there is to say.
    pub(super) fn judge(&self, memory: &mut Memory, losses: BTreeMap<(TopicPartition, String), Loss>) -> Vec<Alert> {
        let mut alerts = Vec::new();
        for (group, (positions, judged)) in &self.positions {
            memory.crossings.keep(group, &positions.keys().cloned().collect());
            for (lag, edge) in judged.iter().filter_map(|judged| judged.figures.as_ref()) {
                alerts.extend(memory.crossings.cross(group, lag, edge.nearness(self.settings.margin)));
            }
        }
        if let Some(groups) = &self.groups {
            memory.crossings.keep_groups(groups);
            memory.seen.keep(|group| groups.contains(group));
        }
        if let Some(multiple) = self.settings.hot {
            memory.hot.keep(|topic| self.rates.contains_key(topic));
            for (topic, rates) in self.rates.iter().filter(|(_, rates)| rates.len() > 1) {
                alerts.extend(memory.hot.look(topic, rates, multiple, self.settings.window, self.now.monotonic));
            }
        }
        let is_watched = |group: &str| self.settings.groups.as_ref().is_none_or(|groups| groups.contains(group));
        let losses = losses.into_iter().filter(|((_, group), _)| is_watched(group));
        alerts.extend(losses.map(|((partition, group), Loss { offsets, bytes })| Alert::HoldExceeded {
            group,
            partition,
            lost: offsets,
            bytes,
        }));
        alerts
    }

    /// Shows the figures on dashboards.
    pub(super) fn measure(&self, gauges: &mut Gauges) {
        if !metrics::ARE_ON {
            return;
        }
        if let Some(groups) = self.groups.as_ref().filter(|_| self.settings.groups.is_none()) {
            metrics::GROUPS.set(&[], metrics::number(groups.len() as u64));
        }
        for (group, (_, judged)) in &self.positions {
            let figures = judged.iter().filter_map(|judged| judged.figures.as_ref());
            figures.for_each(|(lag, _)| gauges.show(group, lag));
        }
        gauges.clear(|group, partition| self.is_gone(group, partition));
    }

    /// Whether there is no such partition, or the group has no position in it. One that cannot be looked at now is not gone.
    fn is_gone(&self, group: &str, of: &TopicPartition) -> bool {
        let is_there = self.topics.get(of.topic.as_str()).is_some_and(|topic| topic.partition(of.partition).is_ok());
        let has_position = match self.positions.get(group) {
            Some((positions, _)) => positions.contains_key(of),
            None => self.groups.as_ref().is_none_or(|groups| groups.contains(group)),
        };
        !is_there || !has_position
    }
}
