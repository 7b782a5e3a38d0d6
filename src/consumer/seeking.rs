//! Where a consumer reads on, and where it does not for now.

use super::assignment::Which;
use super::handle::Consumer;
use super::position::{Position, StartAt};
use crate::error::Result;
use crate::types::{Timestamp, TopicPartition};

impl Consumer {
    /// Where a partition is read next: behind the last record that a poll has handed out, or where the group has come to.
    ///
    /// # Errors
    /// As [`Consumer::seek`]; [`Error::UnstableOffset`](crate::Error::UnstableOffset) where an open transaction is about to change where the partition
    /// begins, so that nothing is read of it yet.
    pub fn position(&mut self, topic: &str, partition: u32) -> Result<Position> {
        self.core.position(topic, partition)
    }

    /// Reads a partition from `position` on: an [`Offset`](crate::Offset), or a [`Position`] that was kept with its
    /// leader epoch. Whether it is in the log, the next poll says. It holds as long as the partition stays assigned; the
    /// next commit stores it.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`](crate::Error::UnknownTopic), [`Error::UnknownPartition`](crate::Error::UnknownPartition), [`Error::NotAssigned`](crate::Error::NotAssigned) where it is none of this consumer's now,
    /// [`Error::OffsetOutOfRange`](crate::Error::OffsetOutOfRange) for 2^63 and above, which no log has,
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn seek(&mut self, topic: &str, partition: u32, position: impl Into<Position>) -> Result<()> {
        self.core.fetcher.seek(topic, partition, position.into())
    }

    /// As [`Reader::seek_to_beginning`](crate::Reader::seek_to_beginning).
    #[doc(alias = "seekToBeginning")]
    pub fn seek_to_beginning<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.core.fetcher.seek_to(which.into(), StartAt::Earliest)
    }

    /// As [`Reader::seek_to_end`](crate::Reader::seek_to_end).
    #[doc(alias = "seekToEnd")]
    pub fn seek_to_end<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.core.fetcher.seek_to(which.into(), StartAt::Latest)
    }

    /// As [`Reader::seek_to_time`](crate::Reader::seek_to_time).
    #[doc(alias = "offsetsForTimes")]
    pub fn seek_to_time<'a>(&mut self, which: impl Into<Which<'a>>, timestamp: Timestamp) -> Result<()> {
        self.core.fetcher.seek_to(which.into(), StartAt::Time(timestamp))
    }

    /// Reads on where the group has come to, as if the partitions had just been assigned: behind what was committed last, or
    /// where the consumer begins ([`ConsumerBuilder::start_at`](crate::ConsumerBuilder::start_at)). So what was read since is read again: after a transaction that was
    /// aborted, for example. Where a transaction is open that moves the position, it is waited for.
    ///
    /// # Errors
    /// As [`Consumer::seek`].
    pub fn seek_to_committed<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.core.seek_to_committed(which.into())
    }

    /// Reads these no more until [`Consumer::resume`]; they stay assigned, with their positions. A partition that is given
    /// back and comes again is not paused.
    ///
    /// # Errors
    /// As [`Consumer::seek`].
    pub fn pause<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.core.fetcher.set_paused(which.into(), true)
    }

    /// Reads these again.
    ///
    /// # Errors
    /// As [`Consumer::pause`].
    pub fn resume<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.core.fetcher.set_paused(which.into(), false)
    }

    /// Those that are paused, by topic and number.
    #[must_use]
    pub fn paused(&self) -> Vec<TopicPartition> {
        self.core.fetcher.paused()
    }
}
