//! Up to where it is decided what a reader of committed records sees (SEMANTICS 7.1).
//!
//! ```text
//!   open: first offsets               decided: first offset, marker (until the marker is readable)
//!   first unstable = the least first offset of both        last stable = min(first unstable, high watermark)
//! ```

use std::collections::BTreeSet;

use crate::mutants;
use crate::types::Offset;

/// The open and the recently decided transactions of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transactions {
    /// The first offset of each open transaction: no two begin with the same record.
    open: BTreeSet<Offset>,
    /// Decided, but the marker is not below the high watermark yet: first offset and marker, by marker.
    decided: Vec<(Offset, Offset)>,
}

impl Transactions {
    /// A transaction begins with the record at `first`.
    pub(super) fn open(&mut self, first: Offset) {
        self.open.insert(first);
    }

    /// The marker of the transaction that began at `first` stands at `marker`. Answers where the first one begins that is
    /// open still; where none is, what lies behind the marker.
    pub(super) fn decide(&mut self, first: Offset, marker: Offset) -> Offset {
        self.open.remove(&first);
        self.decided.push((first, marker));
        self.stable_behind(first, marker)
    }

    /// What [`Self::decide`] would answer.
    pub(super) fn stable_behind(&self, first: Offset, marker: Offset) -> Offset {
        self.open.iter().copied().find(|other| *other != first).unwrap_or(marker.plus(1))
    }

    /// The last stable offset under this high watermark. Forgets decided transactions whose marker it passed.
    pub(super) fn last_stable(&mut self, high_watermark: Offset) -> Offset {
        self.decided.retain(|(_, marker)| *marker >= high_watermark);
        let decided = self.decided.iter().map(|(first, _)| *first);
        let open = self.open.first().copied().filter(|_| !mutants::is_in(mutants::STABLE_PAST_OPEN));
        let unstable = open.into_iter().chain(decided).min();
        unstable.map_or(high_watermark, |first| first.min(high_watermark))
    }
}
