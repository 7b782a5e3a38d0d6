//! Which transactions are open, and so up to where what a reader sees is decided.
//!
//! ```text
//!   open: producer → first offset          decided: first offset, marker (until the marker is readable)
//!   first unstable = the least first offset of both        last stable = min(first unstable, high watermark)
//! ```
//!
//! The rules are those of SEMANTICS 7.1. Nothing here does I/O: recovery, append and truncation feed it the
//! batches they see, in order.

use std::collections::BTreeMap;

use crate::record::batch::BatchHeader;
use crate::record::control::ControlRecord;
use crate::segment::AbortedTransaction;
use crate::types::{Offset, ProducerId};

/// The open and the recently decided transactions of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transactions {
    /// The first offset of each open transaction.
    open: BTreeMap<ProducerId, Offset>,
    /// Decided, but the marker is not below the high watermark yet: first offset and marker, by marker.
    decided: Vec<(Offset, Offset)>,
}

impl Transactions {
    /// Takes in a batch that is appended. A marker that aborts records yields the entry for the index.
    pub(super) fn observe(
        &mut self,
        header: &BatchHeader,
        control: Option<ControlRecord>,
    ) -> Option<AbortedTransaction> {
        let producer = header.producer_id()?;
        match control {
            _ if !header.is_transactional() => None,
            Some(ControlRecord::Commit { .. }) => {
                self.decide(producer, header.last_offset());
                None
            }
            Some(ControlRecord::Abort { .. }) => self.abort(producer, header.last_offset()),
            Some(_) => None,
            None if header.is_control() => None,
            None => {
                self.open.entry(producer).or_insert(header.base_offset());
                None
            }
        }
    }

    /// An open transaction that a snapshot of the producers tells of.
    pub(super) fn open_at(&mut self, producer: ProducerId, first: Offset) {
        self.open.insert(producer, first);
    }

    fn decide(&mut self, producer: ProducerId, marker: Offset) -> Option<Offset> {
        let first = self.open.remove(&producer)?;
        self.decided.push((first, marker));
        Some(first)
    }

    fn abort(&mut self, producer: ProducerId, marker: Offset) -> Option<AbortedTransaction> {
        let first_offset = self.decide(producer, marker)?;
        let last_stable_offset = self.open.values().min().copied().unwrap_or(marker.plus(1));
        Some(AbortedTransaction { producer_id: producer, first_offset, last_offset: marker, last_stable_offset })
    }

    /// The last stable offset under this high watermark. Forgets decided transactions whose marker it passed.
    pub(super) fn last_stable(&mut self, high_watermark: Offset) -> Offset {
        self.decided.retain(|(_, marker)| *marker >= high_watermark);
        let decided = self.decided.iter().map(|(first, _)| *first);
        let unstable = self.open.values().copied().chain(decided).min();
        unstable.map_or(high_watermark, |first| first.min(high_watermark))
    }
}
