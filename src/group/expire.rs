//! Which positions have expired, and which groups are of no use any more.
//!
//! ```text
//!  a group that never had members    from when the position was committed
//!  a group whose members have left   from then, or from when it was committed if that is later
//!  a group at its target             of topics that nobody subscribes to: from when it was committed
//!  a group that is being led         never; nor where a transaction is open
//! ```
//!
//! A position that says itself when it expires (of an old client) does so then, in any of the first three.

use super::commits::forgotten;
use super::decide::{subscribed, tombstones};
use super::offsets::Committed;
use super::protocol::GroupState;
use super::state::{Coordinator, Group};
use super::topics::Catalogue;
use super::{Event, RECORDS_MAX};
use crate::clock::Now;
use crate::types::Timestamp;

pub(super) fn expire(state: &mut Coordinator, now: Now) -> Vec<Event> {
    let mut catalogue = state.soft.catalogue.take();
    let retention = i64::try_from(state.soft.settings.offsets_retention.as_millis()).unwrap_or(i64::MAX);
    let mut events = Vec::new();
    for (name, group) in state.groups() {
        events.extend(of_group(name, group, now.wall, retention, catalogue.as_mut()));
        if events.len() > RECORDS_MAX {
            break;
        }
    }
    state.soft.catalogue = catalogue;
    state.expired(now, events.len() <= RECORDS_MAX);
    events.truncate(RECORDS_MAX);
    events
}

fn of_group(
    name: &str,
    group: &Group,
    wall: Timestamp,
    retention: i64,
    catalogue: Option<&mut Catalogue>,
) -> Vec<Event> {
    let Group { roster, offsets } = group;
    let state = roster.state();
    if offsets.has_pending() || matches!(state, GroupState::Assigning | GroupState::Reconciling) {
        return Vec::new();
    }
    // Without the topics it is not known what a pattern leads to.
    if state == GroupState::Stable && catalogue.is_none() {
        return Vec::new();
    }
    let used = subscribed(roster, catalogue);
    let emptied = roster.risen().filter(|_| state == GroupState::Empty);
    let is_expired = |committed: &Committed| {
        let from = committed.committed.max(emptied.unwrap_or(committed.committed));
        let end = committed.expires.map_or(from.0.saturating_add(retention), |expires| expires.0);
        end <= wall.0
    };
    let all = offsets.iter();
    let expired = all.filter(|(partition, committed)| !used.contains(&partition.topic) && is_expired(committed));
    let mut events: Vec<_> = expired.map(|(partition, _)| forgotten(name, partition)).collect();
    if state == GroupState::Empty && events.len() == offsets.iter().count() {
        events.extend(tombstones(name, roster));
    }
    events
}
