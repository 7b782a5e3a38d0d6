//! What happens by itself: members that are silent are removed, and what topics that are gone leave behind goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::commits::forgotten;
use super::decide::Draft;
use super::partitions::Partitions;
use super::roster::Roster;
use super::state::Coordinator;
use super::topics::{Catalogue, Topics};
use super::{Action, EXPIRY_INTERVAL, Event, RECORDS_MAX};
use crate::clock::{Moment, Now};
use crate::types::Timestamp;

/// The topics are these now.
pub(super) fn topics(state: &mut Coordinator, now: Now, topics: Arc<Topics>) -> Vec<Event> {
    let doomed: BTreeSet<String> = match &state.soft.catalogue {
        // What was forgotten meanwhile is known by its absence.
        None => state
            .positions()
            .map(|(_, one, _)| &one.topic)
            .filter(|name| !topics.0.contains_key(*name))
            .cloned()
            .collect(),
        Some(before) => {
            let id = |name| topics.0.get(name).map(|topic| topic.id);
            let gone = before.topics().0.iter().filter(|(name, topic)| id(*name) != Some(topic.id));
            gone.map(|(name, _)| name.clone()).collect()
        }
    };
    state.soft.doomed.extend(doomed);
    state.soft.catalogue = Some(Catalogue::new(topics));
    state.soft.is_sweeping = true;
    let events = sweep(state, now.wall, RECORDS_MAX);
    if state.soft.is_sweeping {
        state.soft.next_tick = now.monotonic;
    }
    events
}

/// A topic is not there.
pub(super) fn forget(state: &mut Coordinator, now: Now, topic: String) -> Vec<Event> {
    state.soft.doomed.insert(topic);
    state.soft.is_sweeping = true;
    sweep(state, now.wall, RECORDS_MAX)
}

/// Time has passed.
pub(super) fn tick(state: &mut Coordinator, now: Now) -> Vec<Event> {
    let mut events = remove_silent(state, now.wall);
    let left = RECORDS_MAX.saturating_sub(events.len());
    if state.soft.is_sweeping {
        // The members that were removed are in no group any more once these events are applied.
        if events.is_empty() {
            events.extend(sweep(state, now.wall, left));
        }
    }
    let is_done = events.len() < RECORDS_MAX && !state.soft.is_sweeping;
    state.soft.next_tick = if is_done { state.soft.clock.next() } else { now.monotonic };
    events
}

/// Removes whoever was not heard of, or has not given back, in time.
fn remove_silent(state: &mut Coordinator, wall: Timestamp) -> Vec<Event> {
    let elapsed = state.soft.clock.elapsed();
    let mut events = Vec::new();
    let mut removed = Vec::new();
    for (group, pulses) in &state.soft.pulses {
        let late = pulses
            .iter()
            .filter(|(_, pulse)| pulse.session_end <= elapsed || pulse.revoke_end.is_some_and(|end| end <= elapsed));
        let late: Vec<_> = late.map(|(member, _)| member.clone()).take((RECORDS_MAX - events.len()) / 3).collect();
        if late.is_empty() {
            continue;
        }
        let mut draft = Draft::new(group, state.group(group).map(|group| &group.roster), wall);
        let mut has_changed = false;
        for member in late {
            if draft.roster.seat(&member).is_some() {
                has_changed |= !draft.roster.is_replaced(&member);
                draft.remove(&member);
            }
            removed.push((group.clone(), member));
        }
        if has_changed {
            draft.raise();
        }
        events.extend(draft.into_events());
        if RECORDS_MAX - events.len().min(RECORDS_MAX) < 4 {
            break;
        }
    }
    for (group, member) in removed {
        state.soft.forget(&group, &member);
    }
    events
}

/// Compares groups and positions with the topics. Positions in topics that are known to be gone go also where nobody has
/// said yet which there are.
fn sweep(state: &mut Coordinator, wall: Timestamp, limit: usize) -> Vec<Event> {
    let mut catalogue = state.soft.catalogue.take();
    let mut events = Vec::new();
    for (name, group) in state.groups() {
        let is_led = group.roster.has_members() && group.roster.is_assigned();
        if catalogue.as_mut().is_some_and(|catalogue| is_led && !is_covered(&group.roster, catalogue)) {
            let mut draft = Draft::new(name, Some(&group.roster), wall);
            draft.raise();
            events.extend(draft.into_events());
        }
        let doomed = group.offsets.partitions().filter(|one| state.soft.doomed.contains(&one.topic));
        events.extend(doomed.map(|partition| forgotten(name, partition)));
        if events.len() > limit {
            break;
        }
    }
    state.soft.catalogue = catalogue;
    // What is cut off is found again, in what is left.
    state.soft.is_sweeping = events.len() > limit;
    events.truncate(limit);
    if !state.soft.is_sweeping {
        state.soft.doomed.clear();
    }
    events
}

/// Whether the target is one of just the partitions that are subscribed to, each with one who does.
fn is_covered(roster: &Roster, catalogue: &mut Catalogue) -> bool {
    let mut topics = BTreeSet::new();
    let mut targeted = Partitions::default();
    for (_, seat, details) in roster.members() {
        let wanted = catalogue.resolve(&details.subscription);
        let target = seat.target();
        if !target.is_within(&catalogue.partitions(&wanted)) {
            return false;
        }
        if !target.iter().all(|(topic, number)| targeted.insert(topic, number)) {
            return false;
        }
        topics.extend(wanted);
    }
    targeted.count() == catalogue.partitions(&topics).count()
}

impl Coordinator {
    /// What is to be done at `now`.
    pub(super) fn due(&self, now: Now) -> Vec<Action> {
        let tick = (self.is_ticking() && self.soft.next_tick <= now.monotonic).then_some(Action::Tick);
        let is_expiring = self.groups().next().is_some() && self.soft.next_expiry <= now.monotonic;
        tick.into_iter().chain(is_expiring.then_some(Action::Expire)).collect()
    }

    /// When there is something to do.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let tick = self.is_ticking().then_some(self.soft.next_tick);
        let expiry = self.groups().next().map(|_| self.soft.next_expiry);
        tick.into_iter().chain(expiry).min()
    }

    fn is_ticking(&self) -> bool {
        !self.soft.pulses.is_empty() || self.soft.is_sweeping
    }

    /// The next look at positions, where this one has left nothing behind.
    pub(super) fn expired(&mut self, now: Now, is_done: bool) {
        self.soft.next_expiry = if is_done { now.monotonic.after(EXPIRY_INTERVAL) } else { now.monotonic };
    }
}
