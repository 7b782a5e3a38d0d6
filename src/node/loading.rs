//! What the records of a coordinator's partition make: its machine, and what of them could not be read.
//!
//! A machine that passes over damage may miss the marker of a transaction. Then it is held to be aborted, so that nobody
//! waits for it, and no later one of its producer takes it along: each transaction has an epoch of its own, and its marker
//! that one or the next. (Those of an earlier protocol, in topics that were adopted, share an epoch: there a later one may.)

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::machine::{Applied, ProducerIdentity, Recorded};
use crate::partition::{Partition, ReadOptions, UpTo};
use crate::record::batches::Batch;
use crate::record::control::{ControlRecord, Outcome};
use crate::types::{Offset, ProducerEpoch, ProducerId};

/// What the records of a partition make.
pub(super) struct Loaded<M> {
    pub(super) machine: M,
    /// Where they end.
    pub(super) end: Offset,
    /// What could not be read, of a machine that goes on without it.
    pub(super) damage: Vec<Error>,
    /// The transactions that no marker has ended yet, by the epochs of their records.
    open: BTreeMap<ProducerId, ProducerEpoch>,
}

pub(super) fn load<M: Recorded + Default>(partition: &Partition) -> Result<Loaded<M>> {
    let (machine, damage, open) = (M::default(), Vec::new(), BTreeMap::new());
    let mut loaded = Loaded { machine, end: partition.end(), damage, open };
    let options = ReadOptions::new().up_to(UpTo::LogEnd);
    let mut offset = partition.start();
    while offset < loaded.end {
        match partition.try_read(offset, options) {
            Ok(fetched) if fetched.next_offset() <= offset => break,
            Ok(fetched) => {
                for batch in fetched.settled_batches() {
                    loaded.take(partition, &batch)?;
                }
                offset = fetched.next_offset();
            }
            Err(error) => {
                let behind = match &error {
                    Error::Corrupt { offsets, .. } if M::PASSES_OVER_DAMAGE => offsets.end,
                    _ => return Err(error),
                };
                loaded.damage.push(error);
                if behind <= offset {
                    break;
                }
                offset = behind;
            }
        }
    }
    if !loaded.damage.is_empty() {
        loaded.end_what_is_not_open(partition);
    }
    Ok(loaded)
}

impl<M: Recorded> Loaded<M> {
    fn take(&mut self, partition: &Partition, batch: &Batch<'_>) -> Result<()> {
        let header = batch.header();
        let identity = header.producer_id().zip(header.producer_epoch());
        let identity = identity.map(|(id, epoch)| ProducerIdentity { id, epoch });
        if header.is_control() {
            let outcome = batch.control().and_then(ControlRecord::outcome);
            if let Some((producer, outcome)) = identity.zip(outcome) {
                self.end(header.base_offset(), producer, outcome);
            }
            return Ok(());
        }
        let producer = identity.filter(|_| header.is_transactional());
        if let Some(producer) = producer {
            self.begin(header.base_offset(), producer);
        }
        for record in batch.records() {
            let at = Applied { offset: record.offset(), timestamp: record.timestamp(), producer };
            match M::decode(record.key().unwrap_or_default(), record.value()) {
                Ok(Some(event)) => self.machine.apply(at, &event),
                Ok(None) => {}
                Err(reason) => {
                    let (path, offset) = (partition.path().to_owned(), record.offset());
                    let error = Error::CorruptState { path, offset, reason };
                    if !M::PASSES_OVER_DAMAGE {
                        return Err(error);
                    }
                    self.damage.push(error);
                }
            }
        }
        Ok(())
    }

    /// Records of a transaction: an earlier one of its producer has ended.
    fn begin(&mut self, at: Offset, producer: ProducerIdentity) {
        if let Some(epoch) = self.open.insert(producer.id, producer.epoch).filter(|epoch| *epoch != producer.epoch) {
            self.machine.end_transaction(at, ProducerIdentity { epoch, ..producer }, Outcome::Aborted);
        }
    }

    /// A marker: it may be that of a later transaction.
    fn end(&mut self, at: Offset, producer: ProducerIdentity, outcome: Outcome) {
        let is_of = |open: ProducerEpoch| producer.epoch == open || producer.epoch.0 == open.0.wrapping_add(1);
        let is_later = self.open.remove(&producer.id).is_some_and(|open| !is_of(open));
        let outcome = if is_later { Outcome::Aborted } else { outcome };
        self.machine.end_transaction(at, producer, outcome);
    }

    /// What the partition knows has ended is not waited for.
    fn end_what_is_not_open(&mut self, partition: &Partition) {
        for (id, epoch) in std::mem::take(&mut self.open) {
            if partition.open_epoch(id) != Some(epoch) {
                self.machine.end_transaction(self.end, ProducerIdentity { id, epoch }, Outcome::Aborted);
            }
        }
    }
}
