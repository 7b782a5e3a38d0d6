//! What an engine has kept, rebuilt from the records of the metadata partition.
//!
//! ```text
//!  records   H1  e0 e1 e2  H2  e1' e2'  H2 S1 e2'  e3'      H hard state, e entry, e' of a later epoch,
//!                  └──┴── overwritten                       S1 a snapshot up to entry 1
//!  journal   hard state 2, snapshot 1, entries 2' 3'
//! ```
//!
//! Once a snapshot is durable, the whole journal is appended once more ([`Journal::records`]) and the partition trimmed
//! before it. A crash may undo the trim as far as a segment's begin, so a replay may start anywhere: what its first
//! records miss, a later snapshot marker has to cover, and [`Replay::finish`] says where none does.
//!
//! Invariants: entries follow one another without gap, behind the snapshot; their epochs do not fall and none is above
//! that of the hard state; the hard state's epoch does not go back, and in one epoch there is one vote. An entry that
//! is there already changes nothing; one that differs from what stands at its index must be of a later epoch, and takes
//! the place of everything from there on.

use super::record::Record;
use super::{Entry, EntryId, HardState, Persist};
use crate::types::Offset;

/// What an engine is restored from: its hard state, the position of the latest snapshot, and the entries behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    hard_state: HardState,
    snapshot: Option<EntryId>,
    /// The index of the first entry, or of the next one where there is none.
    start: Offset,
    entries: Vec<Entry>,
}

impl Journal {
    /// What a voter may never forget.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// The last entry that the latest snapshot has; `None` where there is no snapshot.
    #[must_use]
    pub const fn snapshot(&self) -> Option<EntryId> {
        self.snapshot
    }

    /// The entries behind the snapshot, without gap.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry at `index`; `None` where there is none, or a snapshot has taken it in.
    #[must_use]
    pub fn entry(&self, index: Offset) -> Option<&Entry> {
        let at = index.0.checked_sub(self.start.0)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The index of the first entry that is not in the snapshot.
    #[must_use]
    pub const fn start(&self) -> Offset {
        self.start
    }

    /// The index that the next entry gets.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.start.plus(self.entries.len() as u64)
    }

    /// The last entry, be it one that only the snapshot has.
    #[must_use]
    pub fn last(&self) -> Option<EntryId> {
        self.entries.last().map(Entry::id).or(self.snapshot)
    }

    /// The whole journal as records: what is appended before the partition is trimmed. If it takes several batches, a
    /// crash between them loses nothing.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let entries = self.entries.iter().cloned().map(Record::Entry);
        let snapshot = self.snapshot.map(Record::Snapshot);
        std::iter::once(Record::HardState(self.hard_state)).chain(snapshot).chain(entries)
    }

    /// Takes in what an engine gave out. After an error the engine has failed.
    pub(crate) fn persist(&mut self, persist: &Persist) -> Result<(), String> {
        if let Some(first) = persist.entries.first().filter(|first| first.index > self.end()) {
            return Err(format!("entry {} leaves a gap behind {}", first.id(), self.end()));
        }
        Record::of(persist).try_for_each(|record| self.apply(record))
    }

    /// Takes in one record. One that is refused changes nothing.
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Entry(entry) => self.put(entry),
            Record::HardState(state) => self.promise(state),
            Record::Snapshot(at) => self.mark(at),
        }
    }

    fn promise(&mut self, state: HardState) -> Result<(), String> {
        let HardState { epoch, vote } = self.hard_state;
        if state.epoch < epoch {
            return Err(format!("the hard state goes back from epoch {epoch} to {}", state.epoch));
        }
        if state.epoch == epoch && vote.is_some() && vote != state.vote {
            return Err(format!("there are two votes in epoch {epoch}"));
        }
        self.hard_state = state;
        Ok(())
    }

    fn put(&mut self, entry: Entry) -> Result<(), String> {
        self.check_place(entry.id())?;
        match self.entry(entry.index) {
            Some(same) if *same == entry => return Ok(()),
            Some(other) if entry.epoch <= other.epoch => {
                return Err(format!("entry {} would take the place of {}", entry.id(), other.id()));
            }
            _ => {}
        }
        self.cut(entry.index);
        self.entries.push(entry);
        Ok(())
    }

    /// Whether an entry may stand where it wants to, whatever stands there.
    fn check_place(&self, id: EntryId) -> Result<(), String> {
        let EntryId { index, epoch } = id;
        if index >= Offset::MAX {
            return Err(format!("entry {id} leaves no index behind it"));
        }
        if let Some(snapshot) = self.snapshot.filter(|snapshot| index <= snapshot.index) {
            return Err(format!("entry {id} is in the snapshot up to {snapshot}"));
        }
        if index > self.end() && !self.entries.is_empty() {
            return Err(format!("entry {id} leaves a gap behind {}", self.end()));
        }
        match self.before(index).filter(|before| epoch < before.epoch) {
            Some(before) => Err(format!("entry {id} follows {before}")),
            None => Ok(()),
        }
    }

    /// The entry before `index`, where it is known which one that is.
    fn before(&self, index: Offset) -> Option<EntryId> {
        let before = Offset(index.0.checked_sub(1)?);
        let in_snapshot = self.snapshot.filter(|snapshot| snapshot.index == before);
        self.entry(before).map(Entry::id).or(in_snapshot)
    }

    /// Drops everything from `index` on; the next entry has that index.
    fn cut(&mut self, index: Offset) {
        let kept = index.0.checked_sub(self.start.0).and_then(|kept| usize::try_from(kept).ok());
        self.entries.truncate(kept.unwrap_or(0));
        if self.entries.is_empty() {
            self.start = index;
        }
    }

    /// A snapshot has everything up to `at`. Entries behind it stay, if they continue it.
    fn mark(&mut self, at: EntryId) -> Result<(), String> {
        if at.index >= Offset::MAX {
            return Err(format!("the snapshot up to {at} leaves no index behind it"));
        }
        if let Some(known) = self.snapshot.filter(|known| at.index < known.index || at.epoch < known.epoch) {
            return Err(format!("the snapshot goes back from {known} to {at}"));
        }
        let next = at.index.plus(1);
        if self.entry(at.index).is_some_and(|entry| entry.epoch == at.epoch) {
            let taken_in = usize::try_from(next.0 - self.start.0).unwrap_or(usize::MAX).min(self.entries.len());
            self.entries.drain(..taken_in);
            self.start = next;
        } else if at.index >= self.start {
            self.entries.clear();
            self.start = next;
        }
        self.snapshot = Some(at);
        Ok(())
    }

    /// Whether everything is there.
    fn check(&self) -> Result<(), String> {
        let due = self.snapshot.map_or(Offset::ZERO, |snapshot| snapshot.index.plus(1));
        if self.start > due {
            return Err(format!("the entries begin at {}, {due} is due", self.start));
        }
        let first = self.entries.first().map(Entry::id);
        if let Some((first, snapshot)) = first.zip(self.snapshot).filter(|(first, last)| first.epoch < last.epoch) {
            return Err(format!("entry {first} follows a snapshot up to {snapshot}"));
        }
        match self.last().filter(|last| last.epoch > self.hard_state.epoch) {
            Some(last) => Err(format!("entry {last} is later than the hard state, epoch {}", self.hard_state.epoch)),
            None => Ok(()),
        }
    }
}

/// The records of the metadata partition, taken in in their order.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    journal: Journal,
}

impl Replay {
    /// Takes in the value of the next record; the error says what is wrong with it.
    pub(crate) fn take(&mut self, value: &[u8]) -> Result<(), String> {
        Record::decode(value).and_then(|record| self.journal.apply(record))
    }

    /// The journal; the error says what is missing.
    pub(crate) fn finish(self) -> Result<Journal, String> {
        self.journal.check().map(|()| self.journal)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::types::{LeaderEpoch, NodeId};

    fn id(index: u64, epoch: i32) -> EntryId {
        EntryId { index: Offset(index), epoch: LeaderEpoch(epoch) }
    }

    fn entry(index: u64, epoch: i32) -> Record {
        let payload = Bytes::from(format!("{index} of {epoch}"));
        Record::Entry(Entry { index: Offset(index), epoch: LeaderEpoch(epoch), payload })
    }

    fn state(epoch: i32) -> Record {
        Record::HardState(HardState { epoch: LeaderEpoch(epoch), vote: Some(NodeId(1)) })
    }

    fn marker(index: u64, epoch: i32) -> Record {
        Record::Snapshot(id(index, epoch))
    }

    fn replay(records: &[Record]) -> Result<Journal, String> {
        let mut replay = Replay::default();
        records.iter().try_for_each(|record| replay.take(&record.encode()))?;
        replay.finish()
    }

    fn ids(journal: &Journal) -> Vec<EntryId> {
        journal.entries().iter().map(Entry::id).collect()
    }

    /// The example at the top.
    fn drawn() -> Vec<Record> {
        let before = [state(1), entry(0, 1), entry(1, 1), entry(2, 1), state(2), entry(1, 2), entry(2, 2)];
        before.into_iter().chain([state(2), marker(1, 2), entry(2, 2), entry(3, 2)]).collect()
    }

    #[test]
    fn overwritten_suffixes_are_gone_and_a_snapshot_takes_in_what_it_has() {
        let journal = replay(&drawn()).unwrap();
        assert_eq!((journal.hard_state().epoch, journal.snapshot()), (LeaderEpoch(2), Some(id(1, 2))));
        assert_eq!(ids(&journal), [id(2, 2), id(3, 2)]);
        assert_eq!((journal.start(), journal.end(), journal.last()), (Offset(2), Offset(4), Some(id(3, 2))));
        assert_eq!((journal.entry(Offset(1)), journal.entry(Offset(4))), (None, None));
    }

    #[test]
    fn a_replay_may_start_anywhere_before_the_journal_was_written_again() {
        let records = drawn();
        let whole = replay(&records).unwrap();
        for from in 0..=7 {
            assert_eq!(replay(&records[from..]).as_ref(), Ok(&whole), "from record {from}");
        }
        assert_eq!(replay(&records[8..]), Err("entry 3 of epoch 2 is later than the hard state, epoch 0".to_owned()));
        let short = replay(&[state(2), entry(1, 2), entry(2, 2)]);
        assert_eq!(short, Err("the entries begin at 1, 0 is due".to_owned()));
        let uncovered = replay(&[state(2), marker(4, 2), entry(6, 2)]);
        assert_eq!(uncovered, Err("the entries begin at 6, 5 is due".to_owned()));
    }

    #[test]
    fn a_replay_may_start_behind_what_was_written_again() {
        let entries = [entry(0, 1), entry(1, 1), entry(2, 1), entry(3, 1)];
        let mut journal = replay(&[&[state(1)], &entries[..]].concat()).unwrap();
        assert_eq!(journal.apply(marker(0, 1)), Ok(()));
        let again: Vec<_> = journal.records().collect();
        for from in 0..entries.len() {
            let records = [&entries[from..], &again].concat();
            assert_eq!(replay(&records).as_ref(), Ok(&journal), "from entry {from}");
        }
    }

    #[test]
    fn written_again_it_reads_the_same_and_what_is_there_already_changes_nothing() {
        let journal = replay(&drawn()).unwrap();
        let again: Vec<_> = journal.records().collect();
        assert_eq!(replay(&again).as_ref(), Ok(&journal));
        for part in 0..again.len() {
            let torn: Vec<_> = drawn().into_iter().chain(again[..part].iter().cloned()).collect();
            assert_eq!(replay(&torn).as_ref(), Ok(&journal), "{part} of its records were written again");
        }
    }

    #[test]
    fn a_snapshot_that_contradicts_the_entries_replaces_them() {
        let old = [state(5), entry(0, 1), entry(1, 1), entry(2, 1)];
        let with = |at: Record| replay(&[&old[..], &[at]].concat()).unwrap();
        assert_eq!(ids(&with(marker(1, 1))), [id(2, 1)]);
        assert_eq!(ids(&with(marker(1, 3))), []);
        assert_eq!(ids(&with(marker(0, 3))), []);
        assert_eq!((with(marker(1, 3)).end(), with(marker(9, 3)).end()), (Offset(2), Offset(10)));
    }

    #[test]
    fn what_no_engine_writes_is_refused_and_changes_nothing() {
        let base = [state(4), marker(1, 2), entry(2, 2), entry(3, 3)];
        let max = i64::MAX.cast_unsigned();
        let refused = [
            (entry(5, 3), "entry 5 of epoch 3 leaves a gap behind 4"),
            (entry(1, 4), "entry 1 of epoch 4 is in the snapshot up to 1 of epoch 2"),
            (entry(4, 2), "entry 4 of epoch 2 follows 3 of epoch 3"),
            (entry(2, 1), "entry 2 of epoch 1 follows 1 of epoch 2"),
            (entry(3, 2), "entry 3 of epoch 2 would take the place of 3 of epoch 3"),
            (entry(max, 4), "entry 9223372036854775807 of epoch 4 leaves no index behind it"),
            (marker(0, 2), "the snapshot goes back from 1 of epoch 2 to 0 of epoch 2"),
            (marker(1, 1), "the snapshot goes back from 1 of epoch 2 to 1 of epoch 1"),
            (marker(max, 4), "the snapshot up to 9223372036854775807 of epoch 4 leaves no index behind it"),
            (state(3), "the hard state goes back from epoch 4 to 3"),
        ];
        for (record, reason) in refused {
            let mut journal = replay(&base).unwrap();
            assert_eq!(journal.apply(record), Err(reason.to_owned()));
            assert_eq!(Ok(journal), replay(&base));
        }
    }

    #[test]
    fn one_epoch_has_one_vote_and_one_payload_an_index() {
        let vote = |node| Record::HardState(HardState { epoch: LeaderEpoch(4), vote: node });
        let mut journal = Journal::default();
        assert_eq!(journal.apply(vote(None)), Ok(()));
        assert_eq!(journal.apply(vote(Some(NodeId(1)))), Ok(()));
        assert_eq!(journal.apply(vote(Some(NodeId(2)))), Err("there are two votes in epoch 4".to_owned()));
        assert_eq!(journal.apply(vote(None)), Err("there are two votes in epoch 4".to_owned()));
        assert_eq!(journal.apply(entry(0, 4)), Ok(()));
        let other = Entry { index: Offset(0), epoch: LeaderEpoch(4), payload: Bytes::from_static(b"other") };
        assert!(journal.apply(Record::Entry(other)).is_err());
    }

    #[test]
    fn while_it_runs_nothing_may_be_missing() {
        let persist = |index| {
            let entry = Entry { index: Offset(index), epoch: LeaderEpoch(0), payload: Bytes::from_static(b"x") };
            Persist { seq: super::super::PersistSeq(1), hard_state: None, entries: vec![entry] }
        };
        let mut journal = Journal::default();
        assert_eq!(journal.persist(&persist(1)), Err("entry 1 of epoch 0 leaves a gap behind 0".to_owned()));
        assert_eq!(journal.persist(&persist(0)), Ok(()));
        assert_eq!(journal.persist(&persist(1)), Ok(()));
    }
}
