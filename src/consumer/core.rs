//! What a consumer consists of, its listener excepted, which is lent all of it.

use std::sync::Arc;

use super::assignment::Slot;
use super::commits::Commits;
use super::fetcher::Fetcher;
use super::placing::Placing;
use super::position::Position;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::group::{Claim, Epoch, MemberSettings, Partitions};
use crate::node::Membership;
use crate::types::TopicPartition;

/// What reads, commits, and belongs to a group.
pub(super) struct Core {
    pub(super) fetcher: Fetcher,
    pub(super) group: String,
    /// `None` where the partitions were assigned by hand.
    pub(super) seat: Option<Seat>,
    pub(super) commits: Commits,
    pub(super) placing: Placing,
}

/// A place among the members of a group. The first poll takes it.
pub(super) struct Seat {
    pub(super) settings: MemberSettings,
    membership: Option<Arc<Membership>>,
    /// Under which id something was assigned last; empty before.
    member: String,
    /// What is assigned, and not open here yet.
    awaited: Partitions,
    /// Up to which change of the topics it was looked for.
    version: u64,
}

impl Seat {
    pub(super) fn new(settings: MemberSettings) -> Self {
        Self { settings, membership: None, member: String::new(), awaited: Partitions::default(), version: 0 }
    }

    pub(super) fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }
}

impl Core {
    pub(super) fn now(&self) -> Moment {
        self.fetcher.now()
    }

    /// By which it belongs to its group: joins where it has not yet. `None` where the partitions were assigned by hand.
    pub(super) fn join(&mut self) -> Result<Option<Arc<Membership>>> {
        let Some(seat) = &mut self.seat else { return Ok(None) };
        if let Some(membership) = &seat.membership {
            return Ok(Some(Arc::clone(membership)));
        }
        let membership = Membership::join(self.fetcher.node(), seat.settings.clone(), self.fetcher.signal())?;
        self.fetcher.read_by(Arc::clone(&membership));
        seat.membership = Some(Arc::clone(&membership));
        Ok(Some(membership))
    }

    /// Who commits: `None` where the partitions were assigned by hand. Whoever is no member at present, or does not know
    /// yet what it has lost, commits nothing.
    pub(super) fn claim(&self) -> Result<Option<Claim>> {
        let Some(seat) = &self.seat else { return Ok(None) };
        let claim = seat.membership().and_then(|membership| membership.claim());
        claim.map(Some).ok_or_else(|| self.no_member())
    }

    /// The same, or a claim that no coordinator takes.
    pub(super) fn claim_to_hand_on(&self) -> Option<Claim> {
        let nobody = |seat: &Seat| {
            let instance = seat.settings.details.instance.clone();
            Claim { member: String::new(), instance, epoch: Epoch::default() }
        };
        self.claim().unwrap_or_else(|_| self.seat.as_ref().map(nobody))
    }

    /// That it is no member any more, or not yet.
    pub(super) fn no_member(&self) -> Error {
        let seat = self.seat.as_ref();
        let failure = seat.and_then(Seat::membership).and_then(|membership| membership.failure());
        failure.unwrap_or_else(|| {
            let member = seat.map(|seat| seat.member.clone()).unwrap_or_default();
            Error::UnknownMember { group: self.group.clone(), member }
        })
    }

    /// Where a partition is read next.
    pub(super) fn position(&mut self, topic: &str, number: u32) -> Result<Position> {
        if let Some(position) = self.fetcher.position(topic, number)? {
            return Ok(position);
        }
        self.place_now()?;
        self.fetcher.position(topic, number)?.ok_or_else(|| {
            let partition = TopicPartition { topic: topic.to_owned(), partition: number };
            Error::UnstableOffset { group: self.group.clone(), partition }
        })
    }

    /// Whether something is assigned that may be open here by now.
    pub(super) fn has_awaited(&self) -> bool {
        let version = self.fetcher.node().version();
        self.seat.as_ref().is_some_and(|seat| !seat.awaited.is_empty() && seat.version != version)
    }

    /// Reads these no more.
    pub(super) fn give_up(&mut self, partitions: &Partitions) {
        self.note_given_up(|slot| slot.is_in(partitions));
        if let Some(seat) = self.seat.as_mut().filter(|_| !partitions.is_empty()) {
            seat.awaited = seat.awaited.without(partitions);
            self.commits.withdraw(&self.fetcher.names(partitions));
            self.fetcher.assignment_mut().remove(partitions);
        }
    }

    /// Reads nothing any more.
    pub(super) fn give_up_all(&mut self) {
        self.note_given_up(|_| true);
        if let Some(seat) = &mut self.seat {
            seat.awaited = Partitions::default();
        }
        self.commits.withdraw(&self.fetcher.assignment().slots().iter().map(Slot::name).collect::<Vec<_>>());
        self.fetcher.assignment_mut().clear();
    }

    /// Reads these, as far as they are open here, and what is open meanwhile of what was assigned before. Answers what has
    /// come; where each goes on is not known yet.
    pub(super) fn take(&mut self, partitions: &Partitions) -> Vec<TopicPartition> {
        let Some(seat) = &mut self.seat else { return Vec::new() };
        let claim = seat.membership.as_ref().and_then(|membership| membership.claim());
        seat.member = claim.map_or_else(|| std::mem::take(&mut seat.member), |claim| claim.member);
        // The version first: topics that are exchanged in between are looked at once more.
        seat.version = self.fetcher.node().version();
        let topics = self.fetcher.node().topics();
        let mut taken = Vec::new();
        for (id, numbers) in std::mem::take(&mut seat.awaited).joined_with(partitions).topics() {
            let topic = topics.values().find(|topic| topic.id == id);
            for &number in numbers {
                match topic.map(|topic| self.fetcher.assignment_mut().put(topic, number)) {
                    Some(Ok(name)) => taken.push(name),
                    Some(Err(_)) | None => drop(seat.awaited.insert(id, number)),
                }
            }
        }
        taken.sort();
        taken
    }
}
