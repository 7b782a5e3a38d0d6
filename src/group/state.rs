//! What a coordinator knows of its groups, and the one place where it changes; beside it stands what is soft: when each
//! member was heard of, which topics there are, and what holds for all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::offsets::{Committed, Offsets};
use super::protocol::Incarnation;
use super::roster::Roster;
use super::stepped::SteppedClock;
use super::topics::Catalogue;
use super::{Event, Settings};
use crate::clock::{Moment, Now};
use crate::machine::{Applied, ProducerIdentity};
use crate::record::control::Outcome;
use crate::types::{Offset, ProducerId, TopicPartition};

/// The groups of one partition of the offsets' topic.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    groups: BTreeMap<String, Group>,
    /// Which groups have positions of open transactions.
    open: BTreeMap<ProducerId, BTreeSet<String>>,
    pub(super) soft: Soft,
}

/// What is replayed of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) roster: Roster,
    pub(super) offsets: Offsets,
}

/// What no record holds.
#[derive(Debug, Default)]
pub(super) struct Soft {
    pub(super) settings: Settings,
    pub(super) clock: SteppedClock,
    pub(super) incarnation: Incarnation,
    /// By group and member.
    pub(super) pulses: BTreeMap<String, BTreeMap<String, Pulse>>,
    /// Members that have left, until when a heartbeat of theirs may be on its way, by the clock of steps.
    pub(super) gone: BTreeMap<String, Duration>,
    pub(super) catalogue: Option<Catalogue>,
    /// Topics whose positions are to be forgotten.
    pub(super) doomed: BTreeSet<String>,
    /// Whether groups are to be compared with the topics.
    pub(super) is_sweeping: bool,
    /// Groups whose members may have something to hear.
    touched: BTreeSet<String>,
    /// When the next look at sessions is due.
    pub(super) next_tick: Moment,
    /// When the next look at positions is due.
    pub(super) next_expiry: Moment,
}

/// When a member was heard of. Times are those of the clock of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    /// The greatest number that one of its heartbeats has had, of this machine.
    pub(super) number: u64,
    pub(super) timeout: Duration,
    pub(super) session_end: Duration,
    /// When it has to have given back.
    pub(super) revoke_end: Option<Duration>,
}

impl Coordinator {
    pub(super) fn group(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.groups.iter()
    }

    /// The groups whose members may have something to hear since this was asked last: soft, for whoever can tell them
    /// before they report.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.soft.touched)
    }

    /// Every member, by group.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&String, &String)> {
        self.groups.iter().flat_map(|(name, group)| group.roster.seats().map(move |(member, _)| (name, member)))
    }

    /// Every position that is committed, by group and partition.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&str, &TopicPartition, &Committed)> {
        self.groups.iter().flat_map(|(name, group)| {
            group.offsets.iter().map(move |(partition, committed)| (name.as_str(), partition, committed))
        })
    }

    /// Whether a group has a position in the topic, or will have one if a transaction is committed.
    pub(crate) fn has_positions_in(&self, topic: &str) -> bool {
        self.groups.values().any(|group| group.offsets.partitions().any(|partition| partition.topic == topic))
    }

    /// Takes an event in.
    pub(super) fn take(&mut self, at: Applied, event: &Event) {
        let name = event.group();
        let group = self.groups.entry(name.clone()).or_default();
        match event {
            Event::Committed { partition, committed, .. } => {
                group.offsets.take(at, partition, committed.as_ref());
                if let Some(producer) = at.producer.filter(|_| committed.is_some()) {
                    self.open.entry(producer.id).or_default().insert(name.clone());
                }
            }
            other => {
                group.roster.take(at.offset, at.timestamp, other);
                self.soft.touched.insert(name.clone());
            }
        }
        self.drop_blank(name);
    }

    /// A transaction has ended.
    pub(super) fn end(&mut self, at: Offset, producer: ProducerIdentity, outcome: Outcome) {
        for name in self.open.remove(&producer.id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&name) {
                group.offsets.end(producer.id, at, outcome);
                if group.offsets.has_pending_of(producer.id) {
                    self.open.entry(producer.id).or_default().insert(name.clone());
                }
            }
            self.drop_blank(&name);
        }
    }

    fn drop_blank(&mut self, name: &str) {
        if self.groups.get(name).is_some_and(|group| group.roster.is_blank() && group.offsets.is_empty()) {
            self.groups.remove(name);
        }
    }

    /// Whether the replayed state is the same.
    #[cfg(test)]
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.groups == other.groups
    }

    /// The replay is over: sessions begin now.
    pub(super) fn start(&mut self, now: Now) {
        let soft = &mut self.soft;
        soft.clock = SteppedClock::starting(now.monotonic);
        soft.incarnation = Incarnation(now);
        soft.next_tick = now.monotonic;
        soft.next_expiry = now.monotonic;
        let session = soft.settings.session_timeout;
        soft.pulses.clear();
        for (name, group) in &self.groups {
            for (member, seat) in group.roster.seats() {
                let timeout = seat.details.as_ref().map_or(session, |details| details.rebalance_timeout.max(session));
                let revoke_end = seat.is_revoking().then_some(timeout);
                let pulse = Pulse { number: 0, timeout: session, session_end: session, revoke_end };
                soft.pulses.entry(name.clone()).or_default().insert(member.clone(), pulse);
            }
        }
    }
}

impl Event {
    /// Whose it is.
    pub(super) const fn group(&self) -> &String {
        match self {
            Self::Committed { group, .. }
            | Self::Group { group, .. }
            | Self::Member { group, .. }
            | Self::TargetEpoch { group, .. }
            | Self::Target { group, .. }
            | Self::Current { group, .. }
            | Self::Leftover { group, .. } => group,
        }
    }
}
