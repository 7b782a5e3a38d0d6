//! What producers add to an append: their batches are checked before, and taken in after; and the markers that end
//! transactions.
//!
//! ```text
//!   client        duplicate? epoch, sequence, transaction            coordinator   epoch, transaction
//!   marker        epoch, coordinator's epoch, by its version          replica       nothing
//!   member        as a client; and what opens a transaction is to be expected
//! ```
//!
//! What is answered here is answered before anything rolls, is written, or is made durable.

use std::collections::BTreeMap;

use super::append::control_of;
use super::producers::{Duplicate, LastRecord, Origin};
use super::{Appended, Inner, Partition, Writer};
use crate::error::{Error, Result};
use crate::record::batch::BatchHeader;
use crate::record::builder::BatchBuilder;
use crate::record::control::{Marker, TransactionVersion, marker_batch};
use crate::segment::AbortedTransaction;
use crate::types::{ProducerEpoch, ProducerId};

/// What a sealed batch is checked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check<'a> {
    Batch(Origin),
    Marker(&'a Marker, TransactionVersion),
}

impl Partition {
    /// Ends the transaction of a producer here: its records become visible, or are skipped by readers of committed
    /// records. The marker takes an offset of its own. Without an open transaction it leaves the producer's epoch and the
    /// coordinator's all the same, and ends nothing.
    ///
    /// By [`TransactionVersion::V2`] a marker that is there already is answered as a duplicate, and nothing is written; the
    /// offsets are empty then.
    ///
    /// A log of several partitions does this itself, for its transactions. A host that decides on transactions of its own
    /// does it here. In a partition of a log it has producer ids of its own, which the log never gives out: where it opens, a
    /// log with transactions ends what is open under an id that it has given out and that none of its coordinators knows of.
    /// (Topics that were found in its directory are left alone, until somebody sets their settings.)
    ///
    /// # Errors
    /// Nothing is written on: [`Error::ProducerFenced`] where the epoch is earlier than the
    /// known one, or (V2) is that of the open transaction's records; [`Error::CoordinatorFenced`]
    /// where a later coordinator has written a marker; besides, what [`Partition::append`] answers about the partition.
    #[doc(alias = "WriteTxnMarkers")]
    pub fn append_marker(&self, marker: &Marker, version: TransactionVersion) -> Result<Appended<'_>> {
        self.inner.check_writable()?;
        let mut bytes = marker_batch(marker);
        let header = BatchHeader::parse(&bytes).map_err(|_| NOT_A_PRODUCER)?;
        self.append_bytes(Check::Marker(marker, version), None, header, &mut bytes)
    }

    /// Appends a batch of a producer whose transactions a coordinator of this log decides on.
    ///
    /// # Errors
    /// [`Error::TransactionAborted`] where it would open a transaction that is not expected, and nothing is written; else as
    /// [`Partition::append`].
    pub(crate) fn append_member(&self, batch: &mut BatchBuilder) -> Result<Appended<'_>> {
        self.append_builder(Check::Batch(Origin::Member), None, batch)
    }

    /// This transaction may be opened here until a marker of its producer comes. Ask its coordinator whether it goes on, and
    /// has the partition, after this and before the first batch: whoever ends it then does so behind the answer, and its
    /// marker comes behind this.
    pub(crate) fn expect_transaction(&self, id: ProducerId, epoch: ProducerEpoch) {
        self.inner.producers.lock().expect(id, epoch);
    }

    /// What [`Self::expect_transaction`] said is not so.
    pub(crate) fn expect_no_transaction(&self, id: ProducerId, epoch: ProducerEpoch) {
        self.inner.producers.lock().expect_no_more(id, epoch);
    }

    /// Refuses a producer of which a later epoch is known here.
    pub(crate) fn check_producer(&self, id: ProducerId, epoch: ProducerEpoch) -> Result<()> {
        self.inner.producers.lock().check_epoch(id, epoch)
    }

    /// Appends a batch of a coordinator, which is asked for the epoch of its producer alone, where it has one.
    ///
    /// # Errors
    /// As [`Partition::append`].
    pub(crate) fn append_coordinator(&self, batch: &mut BatchBuilder) -> Result<Appended<'_>> {
        self.append_builder(Check::Batch(Origin::Coordinator), None, batch)
    }
}

const NOT_A_PRODUCER: Error = Error::InvalidRecord("the producer id and epoch of a marker are not negative");

impl Inner {
    /// Answers where a batch need not be written, because it is there.
    pub(super) fn check_producer(&self, check: Check<'_>, header: &BatchHeader) -> Result<Option<Duplicate>> {
        match check {
            Check::Batch(_) if header.producer_id().is_none() => Ok(None),
            Check::Batch(origin) => self.producers.lock().check(header, origin),
            Check::Marker(marker, version) => {
                let mut producers = self.producers.lock();
                // Whatever becomes of it: what its coordinator has said before does not hold any more.
                producers.expect_no_more(marker.producer_id, version.ends(marker.producer_epoch));
                let is_due = producers.check_marker(marker, version)?;
                drop(producers);
                let end = self.picture.end();
                Ok((!is_due).then_some(Duplicate { offsets: end..end, timestamp: None }))
            }
        }
    }

    /// Before the marker of an abort is written its index entry is, so that neither is there where one cannot be.
    pub(super) fn index_abort(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        headers: &[BatchHeader],
    ) -> Result<Option<AbortedTransaction>> {
        let [header] = headers else { return Ok(None) };
        if !header.is_control() {
            return Ok(None);
        }
        let aborted = self.producers.lock().abort_of(header, control_of(header, bytes));
        if let Some(aborted) = aborted
            && let Err(error) = writer.active.append_aborted(aborted)
        {
            let settled = writer.active.settle_transactions();
            return Err(if settled.is_ok() { error } else { self.poison(error) });
        }
        Ok(aborted)
    }

    /// Takes in batches that are written; an abort's index entry stands before any mark passes it, one of them already.
    pub(super) fn observe(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        headers: &[BatchHeader],
        indexed: Option<AbortedTransaction>,
    ) -> Result<()> {
        let now = self.clock.wall();
        let mut position = 0_usize;
        let mut producers = self.producers.lock();
        for header in headers {
            let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
            let batch = bytes.get(position..position.saturating_add(size)).unwrap_or_default();
            position = position.saturating_add(size);
            let aborted = producers.observe(header, control_of(header, batch), now);
            if let Some(aborted) = aborted.filter(|aborted| Some(*aborted) != indexed) {
                writer.active.append_aborted(aborted).map_err(|error| self.poison(error))?;
            }
        }
        Ok(())
    }

    /// The last record of each producer that is known: what compaction has to leave so that it stays known.
    pub(super) fn active_producers(&self) -> BTreeMap<ProducerId, LastRecord> {
        self.producers.lock().last_records()
    }
}
