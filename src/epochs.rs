//! Leader epochs and where each began: what a replica compares to find where its log and another's part.
//!
//! ```text
//!  epochs   2@6        3@8                 5@20              log end 30
//!  offsets  6 7        8 … 19              20 … 29
//! ```
//!
//! Invariants: epochs and start offsets both rise strictly; no epoch is negative. An epoch ends where the next
//! one begins, the latest at the log's end. What lies below the first entry belongs to no known epoch.

use crate::error::Corruption;
use crate::types::{LeaderEpoch, Offset};

/// The leader epochs of a partition, each with the offset that its first record has (Kafka:
/// `leader-epoch-checkpoint`).
///
/// ```
/// use taffrail::{Epochs, LeaderEpoch, Offset};
/// let mut epochs = Epochs::new();
/// epochs.assign(LeaderEpoch(2), Offset(6));
/// epochs.assign(LeaderEpoch(5), Offset(20));
/// assert_eq!(epochs.at(Offset(19)), Some(LeaderEpoch(2)));
/// assert_eq!(epochs.end_offset_for(LeaderEpoch(4), Offset(30)), Some((LeaderEpoch(2), Offset(20))));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl Epochs {
    /// No epoch is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a checkpoint holds.
    ///
    /// # Errors
    /// [`Corruption::Form`] where an epoch is negative, or epochs or start offsets do not rise strictly.
    pub fn from_entries(entries: Vec<(LeaderEpoch, Offset)>) -> Result<Self, Corruption> {
        if let Some((epoch, _)) = entries.iter().find(|(epoch, _)| epoch.0 < 0) {
            return Err(Corruption::Form(format!("leader epoch {epoch} is negative")));
        }
        for pair in entries.windows(2) {
            let [(epoch, start), (next, next_start)] = pair else { continue };
            if next <= epoch || next_start <= start {
                let reason = format!("leader epoch {next} from offset {next_start} on follows {epoch} from {start} on");
                return Err(Corruption::Form(reason));
            }
        }
        Ok(Self { entries })
    }

    /// Each epoch and its start offset, rising.
    #[must_use]
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The latest epoch.
    #[must_use]
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|(epoch, _)| *epoch)
    }

    /// The epoch that the record at `offset` was appended in; `None` below the first that is known.
    #[must_use]
    pub fn at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|(_, start)| *start <= offset);
        Some(self.entries.get(after.checked_sub(1)?)?.0)
    }

    /// `epoch` begins at `start`. Returns whether anything changed.
    ///
    /// The latest epoch at its own start or later changes nothing. Anything else is believed: entries at the
    /// tail that are not below it in both epoch and start offset go. A negative epoch is none and changes nothing.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        let known = self.entries.last().is_some_and(|(latest, since)| *latest == epoch && start >= *since);
        if known || epoch.0 < 0 {
            return false;
        }
        let kept = self.entries.partition_point(|(other, since)| *other < epoch && *since < start);
        self.entries.truncate(kept);
        self.entries.push((epoch, start));
        true
    }

    /// The log ends at `end`: epochs that begin there or behind it go. Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let kept = self.entries.partition_point(|(_, start)| *start < end);
        let changes = kept < self.entries.len();
        self.entries.truncate(kept);
        changes
    }

    /// The log begins at `start`: epochs that ended there or before go, and the one that `start` lies in begins
    /// there. Returns whether anything changed.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let begun = self.entries.partition_point(|(_, since)| *since <= start);
        let Some(last) = begun.checked_sub(1) else { return false };
        let changes = last > 0 || self.entries[last].1 < start;
        self.entries.drain(..last);
        self.entries[0].1 = start;
        changes
    }

    /// The greatest known epoch that is not above `requested`, and where it ends in a log that ends at `log_end`.
    ///
    /// Below the first known epoch the answer is `requested` itself, ending where the first begins. `None` where
    /// `requested` is above the latest epoch, or negative, or no epoch is known.
    #[must_use]
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        end_offset_for(&self.entries, requested, log_end)
    }
}

/// [`Epochs::end_offset_for`] over entries that rise as theirs do.
pub(crate) fn end_offset_for(
    entries: &[(LeaderEpoch, Offset)],
    requested: LeaderEpoch,
    log_end: Offset,
) -> Option<(LeaderEpoch, Offset)> {
    if requested.0 < 0 {
        return None;
    }
    if entries.last().is_some_and(|(latest, _)| *latest == requested) {
        return Some((requested, log_end));
    }
    let above = entries.partition_point(|(epoch, _)| *epoch <= requested);
    let end = entries.get(above)?.1;
    let known = above.checked_sub(1).and_then(|at| entries.get(at)).map_or(requested, |(epoch, _)| *epoch);
    Some((known, end))
}
