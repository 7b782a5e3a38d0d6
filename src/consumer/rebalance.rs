//! Partitions come and go: what a member of a group does at the head of each poll.
//!
//! ```text
//!   upcoming ─▶ to be given back: committed (if that is on) ─▶ revoked ─┐
//!                                                                       ▼
//!                           lost ◀── what is gone already ────────── polled ──▶ dropped ──▶ taken, placed ──▶ assigned
//! ```
//!
//! Invariants: what is given back was named to the listener before; what it was asked for meanwhile waits for the next
//! poll. What stays assigned keeps its position, and stays paused.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::assignment::Slot;
use super::commits::{CommittedOffset, Positions};
use super::core::Core;
use super::handle::Consumer;
use super::position::Position;
use crate::error::Result;
use crate::group::{Changes, Partitions};
use crate::types::TopicPartition;

/// Is told which partitions a [`Consumer`] gets and gives up, within its polls and its close.
///
/// An error that it returns holds up nothing: the change is made all the same, and the poll answers it.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Log, Rebalance, RebalanceListener, Result, TopicConfig, TopicPartition};
///
/// struct Told;
///
/// impl RebalanceListener for Told {
///     fn assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
///         println!("mine from now on: {partitions:?}");
///         Ok(())
///     }
///
///     fn revoked(&mut self, rebalance: &mut Rebalance<'_>, _: &[TopicPartition]) -> Result<()> {
///         // Whoever gets them goes on where this consumer ends.
///         rebalance.commit()
///     }
///
///     fn lost(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
///         println!("another has them already: {partitions:?}");
///         Ok(())
///     }
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// let mut consumer = log.consumer("billing").subscribe(["orders"]).on_rebalance(Told).open()?;
/// consumer.poll(Duration::ZERO)?;
/// consumer.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ConsumerRebalanceListener")]
pub trait RebalanceListener: Send {
    /// These are read from now on, each from the group's position, which can be asked for and moved here. Nothing of them
    /// was handed out yet. What the consumer had besides is not named again.
    ///
    /// Default: nothing.
    #[doc(alias = "onPartitionsAssigned")]
    fn assigned(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let _ = (rebalance, partitions);
        Ok(())
    }

    /// These are given back when this returns: the last occasion to commit what was done of them. Automatic commits were
    /// made before. (Whoever takes longer here than it may between two polls has lost them meanwhile; that is not told.)
    ///
    /// Default: nothing.
    #[doc(alias = "onPartitionsRevoked")]
    fn revoked(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let _ = (rebalance, partitions);
        Ok(())
    }

    /// These were taken away, as the consumer did not poll in time, or was not heard of: another may have read on in them
    /// already, from the position that was committed last. Nothing can be committed here.
    ///
    /// Default: as [`RebalanceListener::revoked`], in which commits are refused then ([`Error::UnknownMember`](crate::Error::UnknownMember)).
    #[doc(alias = "onPartitionsLost")]
    fn lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.revoked(rebalance, partitions)
    }
}

/// What a [`RebalanceListener`] may do with its consumer meanwhile.
pub struct Rebalance<'c> {
    core: &'c mut Core,
    is_lost: bool,
}

impl Rebalance<'_> {
    /// As [`Consumer::commit`].
    pub fn commit(&mut self) -> Result<()> {
        self.check_not_lost()?;
        self.core.commit()
    }

    /// As [`Consumer::commit_offsets`].
    pub fn commit_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (impl Into<TopicPartition>, impl Into<CommittedOffset>)>,
    ) -> Result<()> {
        self.check_not_lost()?;
        self.core.commit_offsets(positions(offsets))
    }

    /// As [`Consumer::position`].
    pub fn position(&mut self, topic: &str, partition: u32) -> Result<Position> {
        self.core.position(topic, partition)
    }

    /// As [`Consumer::seek`].
    pub fn seek(&mut self, topic: &str, partition: u32, position: impl Into<Position>) -> Result<()> {
        self.core.fetcher.seek(topic, partition, position.into())
    }

    /// As [`Consumer::pause`], of one partition.
    pub fn pause(&mut self, topic: &str, partition: u32) -> Result<()> {
        self.core.fetcher.set_paused((topic, partition).into(), true)
    }

    fn check_not_lost(&self) -> Result<()> {
        if self.is_lost { Err(self.core.no_member()) } else { Ok(()) }
    }
}

impl fmt::Debug for Rebalance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rebalance").field("is_lost", &self.is_lost).finish_non_exhaustive()
    }
}

/// As the group has them.
pub(super) fn positions(
    offsets: impl IntoIterator<Item = (impl Into<TopicPartition>, impl Into<CommittedOffset>)>,
) -> Positions {
    offsets.into_iter().map(|(partition, offset)| (partition.into(), offset.into().into())).collect()
}

/// What the listener is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Assigned,
    Revoked,
    Lost,
}

impl Consumer {
    /// Gives back what the group asks for, and takes what it gives.
    pub(super) fn rebalance(&mut self) -> Result<()> {
        let Some(membership) = self.core.join()? else { return Ok(()) };
        let upcoming = membership.upcoming();
        let prepared = self.prepare(&upcoming.revoked);
        match membership.polled(&upcoming.revoked) {
            Ok(changes) if is_nothing(&changes) && !self.core.has_awaited() => prepared,
            Ok(changes) => prepared.and(self.change(&changes, &upcoming.revoked)),
            Err(error) => {
                drop(self.lose_all(&upcoming.revoked));
                Err(error)
            }
        }
    }

    /// These are about to be given back.
    fn prepare(&mut self, revoked: &Partitions) -> Result<()> {
        if revoked.is_empty() {
            return Ok(());
        }
        let names = self.core.fetcher.names(revoked);
        // One that is sent again later could take back what the next owner commits.
        self.core.finish_commits();
        let committed = self.commit_by_itself();
        committed.and(self.tell(News::Revoked, &names))
    }

    /// Makes the changes. What was named to the listener as revoked is not named again, even where it was lost meanwhile.
    fn change(&mut self, changes: &Changes, revoked: &Partitions) -> Result<()> {
        let lost = self.core.fetcher.names(&changes.lost.without(revoked));
        let told = self.tell_loss(&lost, |core| core.give_up(&changes.lost));
        self.core.give_up(&changes.revoked);
        let taken = self.core.take(&changes.assigned);
        if taken.is_empty() {
            return told;
        }
        self.core.placing.begin();
        let placed = self.core.place();
        told.and(placed).and(self.tell(News::Assigned, &taken))
    }

    /// The membership has ended, and with it went everything. What was named as revoked is not named again.
    fn lose_all(&mut self, revoked: &Partitions) -> Result<()> {
        let slots = self.core.fetcher.assignment().slots().iter();
        let names: Vec<_> = slots.filter(|slot| !slot.is_in(revoked)).map(Slot::name).collect();
        self.tell_loss(&names, Core::give_up_all)
    }

    /// Tells of what is another's by now, and gives it up: also where the listener panics, for nobody reads that on.
    fn tell_loss(&mut self, lost: &[TopicPartition], give_up: impl FnOnce(&mut Core)) -> Result<()> {
        let told = catch_unwind(AssertUnwindSafe(|| self.tell(News::Lost, lost)));
        give_up(&mut self.core);
        told.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Gives everything back, and leaves.
    pub(super) fn leave(&mut self) -> Result<()> {
        let membership = self.core.seat.as_ref().and_then(|seat| seat.membership()).cloned();
        let Some(membership) = membership else { return self.commit_by_itself() };
        let is_member = membership.claim().is_some();
        let given = if is_member {
            let committed = self.commit_by_itself();
            committed.and(self.tell(News::Revoked, &self.assignment()))
        } else {
            self.lose_all(&Partitions::default())
        };
        given.and(membership.close())
    }

    fn commit_by_itself(&mut self) -> Result<()> {
        if self.core.commits.interval.is_some() { self.core.commit() } else { Ok(()) }
    }

    fn tell(&mut self, news: News, partitions: &[TopicPartition]) -> Result<()> {
        let Some(listener) = self.listener.as_mut().filter(|_| !partitions.is_empty()) else { return Ok(()) };
        let mut rebalance = Rebalance { core: &mut self.core, is_lost: news == News::Lost };
        match news {
            News::Assigned => listener.assigned(&mut rebalance, partitions),
            News::Revoked => listener.revoked(&mut rebalance, partitions),
            News::Lost => listener.lost(&mut rebalance, partitions),
        }
    }
}

fn is_nothing(changes: &Changes) -> bool {
    changes.lost.is_empty() && changes.revoked.is_empty() && changes.assigned.is_empty()
}
