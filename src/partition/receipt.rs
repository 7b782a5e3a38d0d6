//! What the doors above need of a partition: to know before an append what it would refuse, to ask after it whether
//! it is stored, when its handle is gone, and to sleep until the partition changes.

use super::{Appended, Partition};
use crate::config::TimestampType;
use crate::error::{Error, Result};
use crate::sync::{Arc, Signal};
use crate::types::{Offset, Timestamp};

/// An append, to be asked after later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    end: Offset,
    generation: u64,
}

impl Appended<'_> {
    /// What to keep of it in order to ask later.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt { end: self.offsets.end, generation: self.generation }
    }
}

impl Partition {
    /// As [`Appended::wait`].
    pub(crate) fn wait_stored(&self, receipt: Receipt) -> Result<()> {
        let inner = &*self.inner;
        if let Some(Ok(())) = self.try_stored(receipt) {
            return Ok(());
        }
        inner.check_readable()?;
        inner.sync_to(receipt.end, receipt.generation)
    }

    /// What [`Self::wait_stored`] would answer at once; `None` where it would have to sync, or to wait.
    pub(crate) fn try_stored(&self, receipt: Receipt) -> Option<Result<()>> {
        let inner = &*self.inner;
        if !inner.is_synced() {
            return Some(Ok(()));
        }
        // What was stored before the partition closed is stored.
        match inner.sync.peek(receipt.end.0, receipt.generation) {
            Some(Ok(())) => Some(Ok(())),
            other => inner.check_readable().err().map(Err).or(other),
        }
    }

    /// Refuses a record that a batch of a client would be refused for: one without a key where the log is compacted,
    /// one whose timestamp is below zero or outside of the configured bounds. Without one it is stamped now.
    #[inline]
    pub(crate) fn check_record(&self, has_key: bool, timestamp: Option<Timestamp>) -> Result<()> {
        let inner = &*self.inner;
        if !has_key && inner.config.cleanup.compacts() {
            return Err(Error::NullKey { index: 0 });
        }
        let Some(timestamp) = timestamp else { return Ok(()) };
        if timestamp.0 < 0 {
            return Err(Error::InvalidTimestamp { timestamp, reason: "timestamps are not negative" });
        }
        if inner.config.timestamp_type == TimestampType::LogAppendTime {
            return Ok(());
        }
        inner.check_timestamps(timestamp, timestamp)
    }

    /// Whether [`Self::check_record`] asks for a key.
    pub(crate) fn needs_keys(&self) -> bool {
        self.inner.config.cleanup.compacts()
    }

    /// The largest batch that it takes, in bytes.
    pub(crate) fn batch_limit(&self) -> u64 {
        self.inner.config.batch_limit()
    }

    /// Has `signal` raised by whatever becomes readable here, and by a change of the partition's health, until the
    /// answer is dropped. Look after this: what was there before raises nothing.
    pub(crate) fn listen(&self, signal: &Arc<Signal>) -> Listening {
        self.inner.changed.listen(|| self.inner.writer.lock(), signal);
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
