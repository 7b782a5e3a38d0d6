//! The quorum of one node, call by call.

use super::*;
use crate::quorum::record::Record;

const BATCH: Bytes = Bytes::from_static(b"batch");

fn journal(epoch: i32, entries: u64) -> Journal {
    let mut journal = Journal::default();
    let state = HardState { epoch: LeaderEpoch(epoch), vote: Some(NodeId(0)) };
    journal.apply(Record::HardState(state)).unwrap();
    for index in 0..entries {
        let entry = Entry { index: Offset(index), epoch: LeaderEpoch(epoch), payload: BATCH };
        journal.apply(Record::Entry(entry)).unwrap();
    }
    journal
}

fn ballot(solo: &mut Solo) -> Persist {
    let Some(Output::Persist(persist)) = solo.poll() else { panic!("the new epoch is to be kept") };
    assert!(persist.hard_state.is_some());
    persist
}

fn leading(journal: &Journal) -> Solo {
    let mut solo = Solo::restore(NodeId(0), journal).unwrap();
    let seq = ballot(&mut solo).seq;
    solo.synced(seq);
    while solo.poll().is_some() {}
    assert_eq!(solo.view().role, Role::Leader);
    solo
}

#[test]
fn what_was_there_is_given_out_before_it_leads() {
    let mut solo = Solo::restore(NodeId(0), &journal(4, 3)).unwrap();
    let persist = ballot(&mut solo);
    assert_eq!(persist.hard_state, Some(HardState { epoch: LeaderEpoch(5), vote: Some(NodeId(0)) }));
    assert_eq!((solo.poll(), solo.view().epoch), (None, LeaderEpoch(4)));
    assert_eq!(solo.propose(LeaderEpoch(5), BATCH), Err(NotLeader { epoch: LeaderEpoch(4), leader: None }));
    solo.synced(persist.seq);
    assert_eq!(solo.poll(), Some(Output::Committed(Offset(0)..Offset(3))));
    assert_eq!(solo.poll(), Some(Output::Leadership { epoch: LeaderEpoch(5), leader: Some(NodeId(0)) }));
    assert_eq!((solo.poll(), solo.view().commit), (None, Offset(3)));
}

#[test]
fn it_begins_behind_the_snapshot() {
    let mut journal = journal(1, 3);
    let at = EntryId { index: Offset(1), epoch: LeaderEpoch(1) };
    journal.apply(Record::Snapshot(at)).unwrap();
    let mut solo = Solo::restore(NodeId(0), &journal).unwrap();
    let seq = ballot(&mut solo).seq;
    solo.synced(seq);
    assert_eq!(solo.poll(), Some(Output::Committed(Offset(2)..Offset(3))));
}

#[test]
fn proposals_between_two_polls_share_a_persist() {
    let mut solo = leading(&journal(0, 0));
    for index in 0..3 {
        assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(index)));
    }
    let Some(Output::Persist(first)) = solo.poll() else { panic!("three entries are to be kept") };
    assert_eq!((first.entries.len(), first.hard_state), (3, None));
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(3)));
    let Some(Output::Persist(second)) = solo.poll() else { panic!("a second is under way") };
    assert_eq!((solo.poll(), second.seq.0), (None, first.seq.0 + 1));
    solo.synced(first.seq);
    assert_eq!((solo.poll(), solo.poll()), (Some(Output::Committed(Offset(0)..Offset(3))), None));
    solo.synced(second.seq);
    solo.synced(first.seq);
    assert_eq!((solo.poll(), solo.poll()), (Some(Output::Committed(Offset(3)..Offset(4))), None));
}

#[test]
fn a_report_of_what_was_not_given_out_releases_nothing() {
    let mut solo = Solo::restore(NodeId(0), &journal(0, 0)).unwrap();
    solo.synced(PersistSeq(u64::MAX));
    let seq = ballot(&mut solo).seq;
    assert_eq!(solo.poll(), None);
    solo.synced(seq);
    assert!(matches!(solo.poll(), Some(Output::Leadership { .. })));
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(0)));
    solo.synced(PersistSeq(u64::MAX));
    assert!(matches!(solo.poll(), Some(Output::Persist(_))));
    assert_eq!(solo.poll(), None);
}

#[test]
fn proposals_of_another_epoch_are_refused() {
    let mut solo = leading(&journal(6, 0));
    let refused = NotLeader { epoch: LeaderEpoch(7), leader: Some(NodeId(0)) };
    for epoch in [0, 6, 8] {
        assert_eq!(solo.propose(LeaderEpoch(epoch), BATCH), Err(refused));
    }
    assert_eq!(refused.to_string(), "this node does not lead in that epoch; the latest is 7, led by node 0");
    assert_eq!(solo.poll(), None);
}

#[test]
fn it_resigns_in_favour_of_itself() {
    let mut solo = leading(&journal(0, 0));
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(0)));
    solo.resign(LeaderEpoch(0), None);
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(1)));
    solo.resign(LeaderEpoch(1), Some(NodeId(3)));
    assert!(solo.propose(LeaderEpoch(1), BATCH).is_err());
    let persist = ballot(&mut solo);
    assert_eq!((persist.entries.len(), solo.poll()), (2, None));
    let mut kept = journal(1, 0);
    assert_eq!(kept.persist(&persist), Ok(()));
    solo.synced(persist.seq);
    assert_eq!(solo.poll(), Some(Output::Committed(Offset(0)..Offset(2))));
    assert_eq!(solo.poll(), Some(Output::Leadership { epoch: LeaderEpoch(2), leader: Some(NodeId(0)) }));
    assert_eq!(solo.propose(LeaderEpoch(2), BATCH), Ok(Offset(2)));
}

#[test]
fn a_fault_stops_it_for_good() {
    let mut solo = leading(&journal(0, 0));
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Ok(Offset(0)));
    let Some(Output::Persist(persist)) = solo.poll() else { panic!("an entry is to be kept") };
    solo.failed(Error::TimedOut);
    solo.failed(Error::Closed);
    solo.synced(persist.seq);
    assert_eq!(solo.poll(), None);
    assert_eq!(solo.propose(LeaderEpoch(1), BATCH), Err(NotLeader { epoch: LeaderEpoch(1), leader: None }));
    let view = solo.view();
    assert_eq!((view.role, view.leader), (Role::Stopped, None));
    assert!(matches!(view.fault, Some(Error::TimedOut)));
}

#[test]
fn nobody_talks_to_it() {
    let mut solo = leading(&journal(0, 0));
    let fault = solo.step(NodeId(4), b"hello").unwrap_err();
    assert_eq!(fault.to_string(), "a message from node 4 is none of this quorum: node 0 is alone in its quorum");
    assert_eq!((solo.poll(), solo.deadline()), (None, None));
}

#[test]
fn where_no_epoch_or_index_is_left_it_says_so() {
    let reason = Solo::restore(NodeId(0), &journal(i32::MAX, 0)).unwrap_err();
    assert_eq!(reason, "no epoch is left after 2147483647");
    let mut full = journal(1, 0);
    let at = EntryId { index: Offset(Offset::MAX.0 - 2), epoch: LeaderEpoch(1) };
    full.apply(Record::Snapshot(at)).unwrap();
    let mut solo = leading(&full);
    assert_eq!(solo.propose(LeaderEpoch(2), BATCH), Ok(Offset(Offset::MAX.0 - 1)));
    assert!(solo.propose(LeaderEpoch(2), BATCH).is_err());
}
