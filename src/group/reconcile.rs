//! How a member is led to its target, one step at a time: pure.
//!
//! ```text
//!  assigned = what it keeps          pending = what it is to give back          wanted = what it lacks
//!   pending, and still owned ──► Unrevoked, epoch as before: nothing is given until all of it is back
//!   wanted, some not free    ──► Unreleased, epoch of the target: what is free is given
//!   else                     ──► Stable, epoch of the target
//! ```

use super::partitions::Partitions;
use super::protocol::Epoch;
use crate::mutants;

/// What a member has, as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) standing: Standing,
    /// The epoch before, for a member that has not heard of the step to this one.
    pub(crate) previous: Epoch,
    pub(crate) phase: Phase,
    pub(crate) assigned: Partitions,
    /// What it is to give back. It is its own until then.
    pub(crate) revoking: Partitions,
}

/// Whether a member is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In this epoch.
    Here(Epoch),
    /// It has left for now, and its instance comes back (Kafka: epoch −2).
    Away,
}

/// How far a member has been led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Stable,
    /// It has to give back first.
    Unrevoked,
    /// It lacks what others have still.
    Unreleased,
}

/// A target, and for which epoch it was computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) epoch: Epoch,
    pub(super) partitions: &'a Partitions,
}

impl Current {
    /// A member that has just come, and has nothing or what its instance had before.
    pub(super) fn joining(assigned: Partitions) -> Self {
        Self {
            standing: Standing::Here(Epoch(0)),
            previous: Epoch(0),
            phase: Phase::Stable,
            assigned,
            revoking: Partitions::default(),
        }
    }

    /// The epoch that its heartbeats carry.
    pub(super) const fn epoch(&self) -> Option<Epoch> {
        match self.standing {
            Standing::Here(epoch) => Some(epoch),
            Standing::Away => None,
        }
    }

    /// Whether nobody else may have it.
    pub(super) fn holds(&self, partitions: &Partitions) -> bool {
        partitions.meets(&self.assigned) || partitions.meets(&self.revoking)
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_at(&self, target: Epoch) -> bool {
        self.phase == Phase::Stable && self.standing == Standing::Here(target)
    }

    /// The next step, where there is one. `owned` is what the member owns, where that is known: what it does not know to be
    /// gone it has. `is_free` says whether nobody else holds a partition.
    pub(super) fn step(
        &self,
        target: Target<'_>,
        owned: Option<&Partitions>,
        is_free: impl Fn(&Partitions) -> Partitions,
    ) -> Option<Self> {
        let Standing::Here(epoch) = self.standing else { return None };
        let owns = |some: &Partitions| !some.is_empty() && owned.is_none_or(|owned| owned.meets(some));
        // Only damaged records have it elsewhere in the target's epoch than at the target.
        if self.is_at(target.epoch) && self.assigned == *target.partitions || owns(&self.revoking) {
            return None;
        }
        let kept = self.assigned.shared_with(target.partitions);
        let revoking = self.assigned.without(target.partitions);
        let next = if owns(&revoking) {
            Self { standing: self.standing, previous: epoch, phase: Phase::Unrevoked, assigned: kept, revoking }
        } else {
            let wanted = target.partitions.without(&kept);
            let given = if mutants::is_in(mutants::GIVEN_BEFORE_RELEASED) { wanted.clone() } else { is_free(&wanted) };
            let phase = if given.count() < wanted.count() { Phase::Unreleased } else { Phase::Stable };
            let standing = Standing::Here(target.epoch);
            let revoking = Partitions::default();
            Self { standing, previous: epoch, phase, assigned: kept.joined_with(&given), revoking }
        };
        let is_same = next.standing == self.standing
            && next.phase == self.phase
            && next.assigned == self.assigned
            && next.revoking == self.revoking;
        (!is_same).then_some(next)
    }
}
