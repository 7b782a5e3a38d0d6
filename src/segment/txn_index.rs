//! The transaction index.

use crate::types::{Offset, ProducerId};

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: ProducerId,
    /// The offset of the transaction's first record in this partition.
    pub first_offset: Offset,
    /// The offset of its abort marker.
    pub last_offset: Offset,
    /// The last stable offset after the abort.
    pub last_stable_offset: Offset,
}
