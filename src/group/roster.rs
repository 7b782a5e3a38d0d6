//! Who is in a group, what is meant for each, and what each has: as its records say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::partitions::Partitions;
use super::protocol::{Assignor, Details, Epoch, GroupState};
use super::reconcile::{Current, Phase, Standing, Target};
use super::{Event, Leftover};
use crate::types::{Offset, Timestamp};

/// What is replayed of a group, but for its positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    /// `None`: it has never had a member.
    epoch: Option<Epoch>,
    /// When it rose last. Where there are no members: when they left.
    risen: Option<Timestamp>,
    target_epoch: Option<Epoch>,
    seats: BTreeMap<String, Seat>,
    /// Whose an instance id is: whose record stands last, of those who have it.
    instances: BTreeMap<String, String>,
}

/// What is replayed of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat {
    /// `None` only where its record is damaged: nothing is meant for it then.
    pub(super) details: Option<Arc<Details>>,
    /// Where the record of that stands.
    placed: Offset,
    target: Option<Partitions>,
    pub(super) current: Option<Current>,
}

impl Seat {
    fn is_blank(&self) -> bool {
        self.details.is_none() && self.target.is_none() && self.current.is_none()
    }

    pub(super) fn target(&self) -> Partitions {
        self.target.clone().unwrap_or_default()
    }

    pub(super) fn instance(&self) -> Option<&String> {
        self.details.as_ref()?.instance.as_ref()
    }

    pub(super) fn is_away(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.standing == Standing::Away)
    }

    /// As it is behind this step, if there is one.
    pub(super) fn led(&self, step: Option<&Current>) -> Self {
        let mut seat = self.clone();
        if let Some(step) = step {
            seat.current = Some(step.clone());
        }
        seat
    }

    /// Whether it is to give back.
    pub(super) fn is_revoking(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.phase == Phase::Unrevoked)
    }

    /// Whether it holds anything that another may want.
    pub(super) fn holds_something(&self) -> bool {
        self.current.as_ref().is_some_and(|current| !current.assigned.is_empty() || !current.revoking.is_empty())
    }
}

impl Roster {
    pub(super) fn is_blank(&self) -> bool {
        self.epoch.is_none() && self.target_epoch.is_none() && self.seats.is_empty()
    }

    /// Whether it was ever a group of members.
    pub(super) const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    pub(super) const fn risen(&self) -> Option<Timestamp> {
        self.risen
    }

    pub(super) const fn target_epoch(&self) -> Option<Epoch> {
        self.target_epoch
    }

    /// Whether the target is that of the group's epoch.
    pub(super) fn is_assigned(&self) -> bool {
        self.target_epoch == self.epoch
    }

    pub(super) fn seat(&self, member: &str) -> Option<&Seat> {
        self.seats.get(member)
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = (&String, &Seat)> {
        self.seats.iter()
    }

    /// Whoever has the instance id.
    pub(super) fn holder(&self, instance: &str) -> Option<&String> {
        self.instances.get(instance)
    }

    /// Whether another has the member's instance id.
    pub(super) fn is_replaced(&self, member: &str) -> bool {
        let instance = self.seats.get(member).and_then(Seat::instance);
        instance.and_then(|instance| self.holder(instance)).is_some_and(|holder| holder != member)
    }

    /// Those that something is meant for.
    pub(super) fn members(&self) -> impl Iterator<Item = (&String, &Seat, &Arc<Details>)> {
        let seats = self.seats.iter().filter(|(member, _)| !self.is_replaced(member));
        seats.filter_map(|(member, seat)| Some((member, seat, seat.details.as_ref()?)))
    }

    pub(super) fn has_members(&self) -> bool {
        !self.seats.is_empty()
    }

    /// The assignor that most members want; of those that as many want, the default.
    pub(super) fn assignor(&self) -> Assignor {
        let votes = |assignor| self.members().filter(|(.., details)| details.assignor == Some(assignor)).count();
        if votes(Assignor::Range) > votes(Assignor::Uniform) { Assignor::Range } else { Assignor::Uniform }
    }

    pub(super) fn state(&self) -> GroupState {
        let Some(target) = self.target_epoch.filter(|_| self.has_members()) else {
            return if self.has_members() { GroupState::Assigning } else { GroupState::Empty };
        };
        if !self.is_assigned() {
            return GroupState::Assigning;
        }
        let is_settled = |seat: &Seat| seat.is_away() || seat.current.as_ref().is_some_and(|one| one.is_at(target));
        if self.seats.values().all(is_settled) { GroupState::Stable } else { GroupState::Reconciling }
    }

    /// The next step of a member towards its target.
    pub(super) fn step(&self, member: &str, owned: Option<&Partitions>) -> Option<Current> {
        let seat = self.seats.get(member)?;
        let current = seat.current.as_ref()?;
        let partitions = seat.target();
        let target = Target { epoch: self.target_epoch.unwrap_or_default(), partitions: &partitions };
        current.step(target, owned, |wanted| self.free(member, wanted))
    }

    /// Those of `wanted` that nobody but the member holds.
    fn free(&self, member: &str, wanted: &Partitions) -> Partitions {
        let others = self.seats.iter().filter(|(other, _)| *other != member);
        let held = others.filter_map(|(_, seat)| seat.current.as_ref()).filter(|current| current.holds(wanted));
        held.fold(wanted.clone(), |free, current| free.without(&current.assigned).without(&current.revoking))
    }

    /// Takes in what is not a position.
    pub(super) fn take(&mut self, offset: Offset, timestamp: Option<Timestamp>, event: &Event) {
        match event {
            Event::Group { epoch, .. } => {
                self.epoch = *epoch;
                self.risen = timestamp.filter(|_| epoch.is_some());
            }
            Event::TargetEpoch { epoch, .. } => self.target_epoch = *epoch,
            Event::Member { member, details, .. } => self.take_details(offset, member, details.as_ref()),
            Event::Target { member, partitions, .. } => {
                self.change(member, |seat| seat.target.clone_from(partitions));
            }
            Event::Current { member, current, .. } => self.change(member, |seat| seat.current.clone_from(current)),
            Event::Committed { .. } | Event::Leftover { of: Leftover::Classic | Leftover::Topics, .. } => {}
        }
    }

    fn take_details(&mut self, offset: Offset, member: &str, details: Option<&Arc<Details>>) {
        let before = self.seats.get(member).and_then(Seat::instance).cloned();
        self.change(member, |seat| {
            seat.details = details.cloned();
            seat.placed = if details.is_some() { offset } else { Offset::ZERO };
        });
        let now = details.and_then(|details| details.instance.clone());
        before.into_iter().chain(now).for_each(|instance| self.find_holder(instance));
    }

    fn find_holder(&mut self, instance: String) {
        let seats = self.seats.iter().filter(|(_, seat)| seat.instance() == Some(&instance));
        match seats.max_by_key(|(_, seat)| seat.placed) {
            Some((member, _)) => self.instances.insert(instance, member.clone()),
            None => self.instances.remove(&instance),
        };
    }

    fn change(&mut self, member: &str, change: impl FnOnce(&mut Seat)) {
        let seat = self.seats.entry(member.to_owned()).or_default();
        change(seat);
        if seat.is_blank() {
            self.seats.remove(member);
        }
    }
}
