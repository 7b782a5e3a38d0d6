//! What follows from a command: records and a reply, or a refusal. Of the state only what is soft is moved here.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assign::{self, Wish};
use super::partitions::Partitions;
use super::protocol::{Description, Details, Epoch, Listing, MemberDescription};
use super::roster::Roster;
use super::state::Coordinator;
use super::topics::Catalogue;
use super::{Command, Event, Leftover, Reply, Settings, commits, expire, heartbeat, sweep};
use crate::clock::Now;
use crate::error::{Error, Result};
use crate::types::{Offset, Timestamp};

pub(super) type Decided = Result<(Vec<Event>, Reply)>;

/// What a text of Kafka's plain messages holds.
const NAME_BYTES_MAX: usize = i16::MAX as usize;

pub(super) fn decide(state: &mut Coordinator, now: Now, command: Command) -> Decided {
    match command {
        Command::Heartbeat(beat) => heartbeat::decide(state, now, *beat),
        Command::Commit { group, member, positions, producer: _ } => {
            commits::commit(state, now, &group, member.as_ref(), positions)
        }
        Command::Fetch { group, partitions, require_stable } => {
            commits::fetch(state, &group, partitions, require_stable)
        }
        Command::ResetOffsets { group, positions } => commits::reset(state, now, &group, positions),
        Command::DeleteOffsets { group, partitions } => commits::delete(state, &group, &partitions),
        Command::DeleteGroup { group } => commits::delete_group(state, &group),
        Command::Describe { group } => describe(state, group),
        Command::List => Ok((Vec::new(), list(state))),
        Command::Topics(topics) => Ok((sweep::topics(state, now, topics), Reply::Done)),
        Command::ForgetTopic { topic } => Ok((sweep::forget(state, now, topic), Reply::Done)),
        Command::Settings(settings) => {
            configure(state, settings);
            Ok((Vec::new(), Reply::Done))
        }
        Command::Tick => Ok((sweep::tick(state, now), Reply::Done)),
        Command::Expire => Ok((expire::expire(state, now), Reply::Done)),
    }
}

/// Events of one group that build on each other: what is pushed is taken in by a copy of the roster.
#[derive(Debug)]
pub(super) struct Draft {
    group: String,
    wall: Timestamp,
    pub(super) roster: Roster,
    events: Vec<Event>,
}

impl Draft {
    pub(super) fn new(group: &str, roster: Option<&Roster>, wall: Timestamp) -> Self {
        Self { group: group.to_owned(), wall, roster: roster.cloned().unwrap_or_default(), events: Vec::new() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.assume(&event);
        self.events.push(event);
    }

    /// As if it had happened; another event about the same follows.
    pub(super) fn assume(&mut self, event: &Event) {
        // It will stand behind everything that is there.
        self.roster.take(Offset::MAX, Some(self.wall), event);
    }

    /// Whether a member has been led on, or has come.
    pub(super) fn has_led(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Current { current: Some(_), .. }))
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }

    pub(super) fn group(&self) -> String {
        self.group.clone()
    }

    /// Nothing is left of the member.
    pub(super) fn remove(&mut self, member: &str) {
        let (group, member) = (self.group(), member.to_owned());
        self.push(Event::Current { group: group.clone(), member: member.clone(), current: None });
        self.push(Event::Target { group: group.clone(), member: member.clone(), partitions: None });
        self.push(Event::Member { group, member, details: None });
    }

    /// The group is in another epoch.
    pub(super) fn raise(&mut self) {
        let epoch = Some(self.roster.epoch().unwrap_or_default().next());
        self.push(Event::Group { group: self.group(), epoch });
    }

    /// Computes the target, where it is not that of the group's epoch.
    pub(super) fn retarget(&mut self, catalogue: &mut Catalogue) {
        if self.roster.is_assigned() {
            return;
        }
        let wishes: Vec<_> = self
            .roster
            .members()
            .map(|(member, seat, details)| wish(member, seat.target(), details, catalogue))
            .collect();
        let targets = assign::assign(self.roster.assignor(), &wishes, catalogue);
        for (wish, target) in wishes.into_iter().zip(targets) {
            if target != wish.owned {
                let (member, partitions) = (wish.member, Some(target));
                self.push(Event::Target { group: self.group(), member, partitions });
            }
        }
        self.push(Event::TargetEpoch { group: self.group(), epoch: self.roster.epoch() });
    }

    /// Leads the member a step on.
    pub(super) fn lead(&mut self, member: &str, owned: Option<&Partitions>) {
        if let Some(current) = self.roster.step(member, owned) {
            self.push(Event::Current { group: self.group(), member: member.to_owned(), current: Some(current) });
        }
    }
}

fn wish(member: &str, owned: Partitions, details: &Arc<Details>, catalogue: &mut Catalogue) -> Wish {
    Wish {
        member: member.to_owned(),
        instance: details.instance.clone(),
        rack: details.rack.clone(),
        topics: catalogue.resolve(&details.subscription),
        owned,
    }
}

/// What is to be forgotten with a group besides its members and positions.
pub(super) fn tombstones(group: &str, roster: &Roster) -> Vec<Event> {
    let group = || group.to_owned();
    if roster.epoch().is_none() && roster.target_epoch().is_none() {
        return vec![Event::Leftover { group: group(), of: Leftover::Classic }];
    }
    vec![
        Event::TargetEpoch { group: group(), epoch: None },
        Event::Leftover { group: group(), of: Leftover::Topics },
        Event::Group { group: group(), epoch: None },
    ]
}

/// The topics that somebody of the group subscribes to, by name.
pub(super) fn subscribed(roster: &Roster, catalogue: Option<&mut Catalogue>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    names.extend(roster.members().flat_map(|(.., details)| details.subscription.topics.iter().cloned()));
    if let Some(catalogue) = catalogue {
        for (.., details) in roster.members() {
            let topics = catalogue.resolve(&details.subscription);
            names.extend(topics.iter().filter_map(|id| catalogue.name(*id)).map(ToOwned::to_owned));
        }
    }
    names
}

pub(super) fn check_name(name: &str, empty: &'static str, long: &'static str) -> Result<()> {
    let invalid = |reason| Err(Error::InvalidName { name: name.to_owned(), reason });
    match name.len() {
        0 => invalid(empty),
        length if length > NAME_BYTES_MAX => invalid(long),
        _ => Ok(()),
    }
}

/// Whether it is a group's name.
pub(crate) fn check_group(group: &str) -> Result<()> {
    check_name(group, "a group's name is not empty", "a group's name has at most 32,767 bytes")
}

/// Those who were not heard of yet have their sessions by these settings.
fn configure(state: &mut Coordinator, settings: Settings) {
    state.soft.settings = settings;
    let pulses = state.soft.pulses.values_mut().flat_map(|pulses| pulses.values_mut());
    let elapsed = state.soft.clock.elapsed();
    for pulse in pulses.filter(|pulse| pulse.number == 0) {
        pulse.timeout = settings.session_timeout;
        pulse.session_end = elapsed + settings.session_timeout;
        pulse.revoke_end = pulse.revoke_end.map(|end| end.max(pulse.session_end));
    }
}

fn describe(state: &Coordinator, group: String) -> Decided {
    let Some(known) = state.group(&group) else { return Err(Error::UnknownGroup { group }) };
    let roster = &known.roster;
    let members = roster.seats().map(|(member, seat)| {
        let current = seat.current.clone();
        MemberDescription {
            member: member.clone(),
            details: seat.details.as_deref().cloned(),
            epoch: current.as_ref().and_then(super::Current::epoch),
            phase: current.as_ref().map(|current| current.phase).unwrap_or_default(),
            is_replaced: roster.is_replaced(member),
            assigned: current.as_ref().map(|current| current.assigned.clone()).unwrap_or_default(),
            revoking: current.map(|current| current.revoking).unwrap_or_default(),
            target: seat.target(),
        }
    });
    let description = Description {
        state: roster.state(),
        epoch: roster.epoch().unwrap_or_default(),
        target_epoch: roster.target_epoch().unwrap_or_default(),
        assignor: roster.assignor(),
        members: members.collect(),
        group,
    };
    Ok((Vec::new(), Reply::Described(Box::new(description))))
}

fn list(state: &Coordinator) -> Reply {
    let listing =
        |(group, known): (&String, &super::state::Group)| Listing { group: group.clone(), state: known.roster.state() };
    Reply::Listed(state.groups().map(listing).collect())
}

/// An epoch, for an error.
pub(super) const fn said(epoch: Epoch) -> u32 {
    epoch.0
}
