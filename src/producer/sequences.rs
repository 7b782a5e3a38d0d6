//! The sequences of one producer in one partition: what makes it idempotent (Kafka: `enable.idempotence`).
//!
//! A batch gets its sequence under the send lock of its lane, right before it is appended. So batches have their sequences
//! in the order in which they are appended, and the partition refuses what would come twice or out of order.
//!
//! What an append has failed with says what is due next:
//!
//! ```text
//!   an error that leaves the log as it was      the same sequence again: nothing was written
//!   Poisoned                                    the one behind: whether the batch is there is not known
//!   OutOfOrderSequence and the like             another id, from 0: the partition does not know what this one has sent
//! ```
//!
//! The last comes of a reopen or a truncation that has taken batches away whose deliveries were answered with errors, or
//! have not been asked for; or of an id that somebody else has used, in a partition that was copied from another log. The
//! batch has not been written then, and is appended as the first of an id that the partition has never seen. So records are
//! lost only where an error says so, none is written twice, and those that are written stand in the order in which they were
//! sent. No error has to be mended but what made the partition refuse writes: that is what
//! [`Log::reopen`](crate::Log::reopen) is for.

use crate::error::{Error, Result};
use crate::node::Node;
use crate::partition::{Appended, Partition};
use crate::record::builder::BatchBuilder;
use crate::types::{ProducerEpoch, ProducerId, Sequence};

/// Whose batches these are, and the sequence that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequences {
    id: ProducerId,
    next: Sequence,
}

/// The partition has it from somebody who has used the same id since: a copy of this very producer.
const TAKEN: &str = "its producer id and sequences are those of a batch that somebody else has written";

/// The first epoch. An idempotent producer without transactions has no other.
const EPOCH: ProducerEpoch = ProducerEpoch(0);

impl Sequences {
    /// From 0, as the producer `id`; as another one where the partition knows that.
    pub(super) fn begin(id: ProducerId, node: &Node, partition: &Partition) -> Result<Self> {
        let mut id = id;
        while partition.knows_producer(id) {
            id = node.producer_id()?;
        }
        Ok(Self { id, next: Sequence(0) })
    }

    /// Appends a batch by `append`, behind the ones before.
    pub(super) fn append<'p>(
        &mut self,
        node: &Node,
        partition: &'p Partition,
        builder: &mut BatchBuilder,
        append: impl Fn(&mut BatchBuilder) -> Result<Appended<'p>>,
    ) -> Result<Appended<'p>> {
        let first = self.number(builder);
        let appended = match append(builder) {
            Err(error) if is_unknown(&error) => {
                *self = Self::begin(node.producer_id()?, node, partition)?;
                return self.append(node, partition, builder, append);
            }
            Ok(appended) if appended.duplicate => Err(Error::InvalidRecord(TAKEN)),
            other => other,
        };
        if appended.as_ref().is_err_and(leaves_the_log) {
            self.next = first;
        }
        appended
    }

    /// Gives the batch its sequence, which is passed now: an append that panics leaves it in doubt.
    fn number(&mut self, builder: &mut BatchBuilder) -> Sequence {
        let first = self.next;
        builder.producer(self.id, EPOCH, first);
        // A batch has less than 2^31 records.
        self.next = first.plus(u32::try_from(builder.len()).unwrap_or(u32::MAX));
        first
    }
}

/// Whether the partition has it otherwise than this producer.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::OutOfOrderSequence { .. } | Error::ProducerFenced { .. } | Error::InvalidTransactionState(_))
}

/// Whether it is certain that nothing was written.
fn leaves_the_log(error: &Error) -> bool {
    !matches!(error, Error::Poisoned { .. })
}
