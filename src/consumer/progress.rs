//! How far a consumer has come, handed to a transaction: what that has committed is not committed once more.
//!
//! Invariant: of what was handed on, the last is remembered. Nobody gets a partition while a transaction is about to move its
//! position: what is confirmed is noted before anything is given up, found out anew, or committed otherwise.

use super::assignment::Slot;
use super::commits::{CommittedOffset, Placed, Positions};
use super::core::Core;
use super::handle::Consumer;
use super::position::Position;
use crate::group::{Confirmation, Progress};

/// What a transaction may commit.
pub(super) struct Handed {
    confirmation: Confirmation,
    /// In the order of the slots.
    positions: Positions,
}

impl Handed {
    /// Whether it has come so far in this partition.
    fn covers(&self, slot: &Slot, position: Position) -> bool {
        let found = self.positions.binary_search_by(|(name, _)| (&*name.topic, name.partition).cmp(&slot.key()));
        found.is_ok_and(|at| self.positions[at].1.offset == position.offset)
    }
}

impl Core {
    /// Notes what a transaction has committed meanwhile. Whatever says more of what the group has comes behind this.
    pub(super) fn look_at_progress(&mut self) {
        if let Some(handed) = self.commits.handed.take_if(|handed| handed.confirmation.is_confirmed()) {
            self.note(&handed.positions, true);
        }
        // Whoever was to commit them is told: results of what was given up go with that transaction.
        if self.commits.handed.take_if(|handed| handed.confirmation.is_refused()).is_some() {
            self.commits.given_up = None;
        }
    }

    /// These are about to be given up: no transaction may have results of what was read of them, and not their positions.
    pub(super) fn note_given_up(&mut self, is_given_up: impl Fn(&Slot) -> bool) {
        self.look_at_progress();
        if self.commits.given_up.is_some() {
            return;
        }
        let handed = self.commits.handed.as_ref().filter(|handed| handed.confirmation.is_taken());
        let is_open = |slot: &&Slot| {
            let position = slot.to_commit().filter(|_| slot.has_handed_out && is_given_up(slot));
            position.is_some_and(|position| !handed.is_some_and(|handed| handed.covers(slot, position)))
        };
        self.commits.given_up = self.fetcher.assignment().slots().iter().find(is_open).map(Slot::name);
    }

    /// Where partitions go on, of those whose position the group does not have, and which topic each of them is of.
    pub(super) fn moved(&mut self) -> Placed {
        self.look_at_progress();
        let slots = self.fetcher.assignment().slots().iter();
        let moved = |slot: &Slot| {
            let position = CommittedOffset::from(slot.to_commit()?).into();
            Some(((slot.name(), position), slot.id()))
        };
        slots.filter_map(moved).unzip()
    }
}

impl Consumer {
    /// What [`Consumer::commit`] would store, to be handed to a transaction, which stores it with its records or not at all.
    /// It is refused there if the consumer has left its group meanwhile, or was replaced; and if it commits by itself
    /// ([`auto_commit`](crate::ConsumerBuilder::auto_commit)), since that would be done outside of the transaction.
    ///
    /// It is refused as well where the consumer has given up a partition of which it had polled what nobody has committed
    /// ([`Error::GivenUp`](crate::Error::GivenUp)): a poll may give partitions back, and others go on there from what is
    /// committed. So a transaction that has the results of several polls may have to be aborted; one poll's never are twice.
    ///
    /// Commits that are under way are waited for. Of what was handed on, the last is known to the consumer as committed once its
    /// transaction is: what was handed on before is committed once more.
    ///
    /// Where the transaction is aborted, records that were polled are not polled again by themselves:
    /// [`Consumer::seek_to_committed`], or drop the consumer.
    #[doc(alias = "sendOffsetsToTransaction")]
    pub fn progress(&mut self) -> Progress {
        // One that is sent again would count behind the transaction. In a closed log nothing is committed.
        self.core.finish_commits();
        drop(self.core.fetcher.update());
        let member = self.core.claim_to_hand_on();
        let commits_itself = self.core.commits.interval.is_some();
        let (positions, topics) = self.core.moved();
        let confirmation = Confirmation::default();
        let given_up = self.core.commits.given_up.clone();
        self.core.commits.handed = Some(Handed { confirmation: confirmation.clone(), positions: positions.clone() });
        Progress { group: self.core.group.clone(), member, positions, topics, commits_itself, given_up, confirmation }
    }
}
