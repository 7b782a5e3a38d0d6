//! What becomes of a record that was sent.
//!
//! ```text
//!   open in its lane ──(filled, waited on, flushed, due)──▶ sealed, being appended ──▶ placed, or failed
//!                                                            under the lane's send lock
//! ```
//!
//! Invariants: the outcome of a batch is set once, under the send lock of its lane, before the lock is released. So
//! whoever holds that lock finds a batch either open or with its outcome: nothing else has to be waited for. A batch is
//! never forgotten: what drops it unfinished sets an error.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::agenda::Key;
use super::lane::{Lane, is_too_large};
use crate::error::{Error, Result};
use crate::partition::Receipt;
use crate::types::{Acks, Offset, Timestamp};

/// Where a record was stored.
#[doc(alias = "RecordMetadata")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The partition of the topic, from 0.
    pub partition: u32,
    /// The record's offset in that partition.
    pub offset: Offset,
    /// The record's timestamp: its own, else when it was sent; when it was appended, where the topic stamps records
    /// itself.
    pub timestamp: Timestamp,
}

/// A record that was sent, and may not be stored yet (Kafka: the future that `send` returns).
///
/// Dropping it changes nothing: the record is stored all the same.
///
/// It ends in [`Stored`] or in an error, whatever happens to the producer, the log and the topic meanwhile.
pub struct Delivery {
    batch: Arc<Batch>,
    /// Which record of its batch.
    index: u32,
    timestamp: Timestamp,
}

impl Delivery {
    pub(super) fn new(batch: &Arc<Batch>, index: u32, timestamp: Timestamp) -> Self {
        Self { batch: Arc::clone(batch), index, timestamp }
    }

    /// The partition of the topic that the record was sent to, from 0.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.batch.lane.number()
    }

    /// Returns when the record is stored as the producer's [`Acks`] say; with [`Acks::All`] that is as the topic's
    /// durability says, and one sync serves all who wait. It does not wait for `linger`: a batch that is still open is
    /// appended now, by this call.
    ///
    /// # Errors
    /// What the append or the sync failed with; a batch is taken or refused as a whole, so that may be about a record
    /// beside this one. [`Error::UnknownTopic`] where the topic was deleted meanwhile, [`Error::Closed`] where the log was
    /// closed before the record was stored, [`Error::Superseded`] where the partition was cut or reopened while the record
    /// was not stored yet: whether it is, is not known.
    pub fn wait(self) -> Result<Stored> {
        let placed = self.batch.placed()?;
        if self.batch.lane.acks() == Acks::All {
            self.batch.lane.wait_stored(placed.receipt)?;
        }
        Ok(self.stored(placed))
    }

    /// What [`Self::wait`] would answer at once; `None` where it would have to append, to sync or to wait.
    #[must_use]
    pub fn try_wait(&self) -> Option<Result<Stored>> {
        let placed = match self.batch.outcome.get()? {
            Ok(placed) => *placed,
            Err(error) => return Some(Err(error.clone())),
        };
        if self.batch.lane.acks() == Acks::All
            && let Err(error) = self.batch.lane.try_stored(placed.receipt)?
        {
            return Some(Err(error));
        }
        Some(Ok(self.stored(placed)))
    }

    fn stored(&self, placed: Placed) -> Stored {
        Stored {
            partition: self.partition(),
            offset: placed.first.plus(self.index.into()),
            timestamp: placed.append_time.unwrap_or(self.timestamp),
        }
    }

    /// Why its whole batch was refused as too large, where it was.
    pub(super) fn too_large(&self) -> Option<Error> {
        let outcome = self.batch.outcome.get()?;
        outcome.as_ref().err().filter(|error| is_too_large(error)).cloned()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("partition", &self.partition())
            .field("index", &self.index)
            .field("outcome", &self.batch.outcome.get())
            .finish_non_exhaustive()
    }
}

/// Where a batch was appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// The offset of its first record.
    pub(super) first: Offset,
    /// The timestamp of all its records, where the log stamps them.
    pub(super) append_time: Option<Timestamp>,
    pub(super) receipt: Receipt,
}

/// What the deliveries of one batch share.
pub(super) struct Batch {
    lane: Arc<Lane>,
    key: Key,
    outcome: OnceLock<Result<Placed>>,
}

impl Batch {
    pub(super) fn new(lane: &Arc<Lane>, key: Key) -> Arc<Self> {
        Arc::new(Self { lane: Arc::clone(lane), key, outcome: OnceLock::new() })
    }

    /// Which one it is.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Sets the outcome, unless there is one.
    pub(super) fn end(&self, outcome: Result<Placed>) {
        // The first one holds.
        drop(self.outcome.set(outcome));
    }

    /// Where it was appended; appends it where it is open.
    fn placed(&self) -> Result<Placed> {
        if self.outcome.get().is_none() {
            // What fails is the outcome.
            drop(self.lane.hand_over(Some(self.key)));
            #[cfg(mutants)]
            drop(self.lane.hand_over(Some(self.key)));
        }
        self.outcome.get_or_init(|| Err(Error::Closed)).clone()
    }
}
