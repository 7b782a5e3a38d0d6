//! How far a consumer has come, handed to a transaction: what that has committed is not committed once more.
//!
//! Invariant: of what was handed on, the last is remembered. Nobody gets a partition while a transaction is about to move its
//! position: what is confirmed is noted before anything is given up, found out anew, or committed otherwise.

use super::assignment::Slot;
use super::commits::{CommittedOffset, Placed, Positions};
use super::core::Core;
use super::handle::Consumer;
use crate::group::{Confirmation, Progress};

/// What a transaction may commit.
pub(super) struct Handed {
    confirmation: Confirmation,
    positions: Positions,
}

impl Core {
    /// Notes what a transaction has committed meanwhile. Whatever says more of what the group has comes behind this.
    pub(super) fn look_at_progress(&mut self) {
        if let Some(handed) = self.commits.handed.take_if(|handed| handed.confirmation.is_confirmed()) {
            self.note(&handed.positions, true);
        }
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
        self.core.commits.handed = Some(Handed { confirmation: confirmation.clone(), positions: positions.clone() });
        Progress { group: self.core.group.clone(), member, positions, topics, commits_itself, confirmation }
    }
}
