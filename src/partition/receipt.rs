//! What the doors above need of a partition: to know before an append what it would refuse, to ask after it whether
//! it is stored, when its handle is gone, and to sleep until the partition changes.

use std::sync::Weak;

use super::producers::OpenTransaction;
use super::{Appended, Health, Inner, Partition};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::sync::{Arc, Signal};
use crate::types::{Offset, ProducerEpoch, ProducerId, Timestamp};

/// An append, to be asked after later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    end: Offset,
    generation: u64,
}

impl Receipt {
    /// Whether the log was reopened or truncated between the two: what one sync says of `other` says nothing of this one.
    pub(crate) fn is_of_another_log(self, other: Self) -> bool {
        self.generation != other.generation
    }
}

/// A partition that something watches without keeping it open.
#[derive(Clone, Debug)]
pub(crate) struct WeakPartition(Weak<Inner>);

impl WeakPartition {
    /// The partition, where a handle is left.
    pub(crate) fn upgrade(&self) -> Option<Partition> {
        self.0.upgrade().map(|inner| Partition { inner })
    }
}

impl Appended<'_> {
    /// What to keep of it in order to ask later.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt { end: self.offsets.end, generation: self.generation }
    }
}

impl Partition {
    /// Its directory.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.inner.home.directory
    }

    /// To ask after everything that is appended now.
    pub(crate) fn receipt(&self) -> Receipt {
        let generation = self.inner.sync.generation();
        Receipt { end: self.end(), generation }
    }

    /// As [`Appended::wait`].
    pub(crate) fn wait_stored(&self, receipt: Receipt) -> Result<()> {
        self.try_stored(receipt).unwrap_or_else(|| self.inner.sync_to(receipt.end, receipt.generation))
    }

    /// What [`Self::wait_stored`] would answer at once; `None` where it would have to sync, or to wait.
    pub(crate) fn try_stored(&self, receipt: Receipt) -> Option<Result<()>> {
        let inner = &*self.inner;
        if !inner.is_synced() {
            return Some(Ok(()));
        }
        // What the close has stored is stored: it is asked for first, and so has the last word.
        let readable = inner.check_readable();
        match inner.sync.peek(receipt.end.0, receipt.generation) {
            Some(Ok(())) => Some(Ok(())),
            other => readable.err().map(Err).or(other),
        }
    }

    /// Refuses a record that a batch of a client would be refused for: one without a key where the log is compacted,
    /// one whose timestamp is below zero or outside of the configured bounds. Without one it is stamped now.
    #[inline]
    pub(crate) fn check_record(&self, has_key: bool, timestamp: Option<Timestamp>) -> Result<()> {
        let inner = &*self.inner;
        if !has_key && inner.settings.compacts() {
            return Err(Error::NullKey { index: 0 });
        }
        let Some(timestamp) = timestamp else { return Ok(()) };
        if timestamp.0 < 0 {
            return Err(Error::InvalidTimestamp { timestamp, reason: "timestamps are not negative" });
        }
        if inner.settings.stamps() {
            return Ok(());
        }
        inner.check_timestamps(timestamp, timestamp)
    }

    /// Whether [`Self::check_record`] asks for a key.
    pub(crate) fn needs_keys(&self) -> bool {
        self.inner.settings.compacts()
    }

    /// Whether anything is known of this producer.
    pub(crate) fn knows_producer(&self, id: ProducerId) -> bool {
        self.inner.producers.lock().knows(id)
    }

    /// The greatest producer id that is known, among those that `counts` says count.
    pub(crate) fn greatest_producer(&self, counts: impl Fn(ProducerId) -> bool) -> Option<ProducerId> {
        self.inner.producers.lock().greatest(counts)
    }

    /// The transactions that no marker has ended yet.
    pub(crate) fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.inner.producers.lock().open_transactions()
    }

    /// The epoch of the transaction that a producer has open.
    pub(crate) fn open_epoch(&self, id: ProducerId) -> Option<ProducerEpoch> {
        self.inner.producers.lock().open_epoch(id)
    }

    /// The largest batch that it takes, in bytes.
    pub(crate) fn batch_limit(&self) -> u64 {
        self.inner.settings.batch_limit()
    }

    /// How many bytes of records a compressed batch may hold.
    pub(crate) fn decompressed_limit(&self) -> usize {
        self.inner.settings.decompressed_limit()
    }

    /// A handle that does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakPartition {
        WeakPartition(std::sync::Arc::downgrade(&self.inner))
    }

    /// When what nobody waits for has to be synced; `None` where there is nothing.
    pub(crate) fn flush_due(&self) -> Option<Moment> {
        self.inner.flush_due()
    }

    /// Whether it is neither closed nor fenced.
    pub(crate) fn takes_writes(&self) -> bool {
        self.inner.health() == Health::Open
    }

    /// Has `signal` raised by whatever becomes readable here, and by a change of the partition's health, until the
    /// answer is dropped. Look after this: what was there before raises nothing.
    pub(crate) fn listen(&self, signal: &Arc<Signal>) -> Listening {
        let inner = std::sync::Arc::downgrade(&self.inner);
        let begin = move || inner.upgrade().is_none_or(|inner| inner.writer.try_lock().is_some());
        self.inner.changed.listen(begin, signal);
        Listening { partition: self.clone(), signal: Arc::clone(signal) }
    }
}

/// A signal that a partition raises.
#[derive(Debug)]
pub(crate) struct Listening {
    partition: Partition,
    signal: Arc<Signal>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.partition.inner.changed.unlisten(&self.signal);
    }
}
