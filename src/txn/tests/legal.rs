//! Which states follow on which, as Kafka has it.

use super::*;

/// Whether the event takes its id from a state to one that may follow, with the epochs that it may have.
pub(super) fn check(coordinator: &Coordinator, event: &Event) {
    let Event::Changed { id, kept, .. } = event else {
        let Event::Forgotten { id } = event else { unreachable!() };
        let status = coordinator.transaction(id).unwrap().kept.status;
        assert!(matches!(status, Status::Empty | Status::Complete(_)), "{status:?} is not forgotten");
        return;
    };
    let Some(before) = coordinator.transaction(id).map(|one| &one.kept) else {
        assert_eq!((kept.status, kept.producer_epoch), (Status::Empty, ProducerEpoch(0)));
        return;
    };
    assert!(before.status.leads_to(kept.status), "{:?} to {:?}", before.status, kept.status);
    let rises = i32::from(kept.producer_epoch.0) - i32::from(before.producer_epoch.0);
    let is_other = kept.producer_id != before.producer_id;
    match kept.status {
        Status::Empty | Status::Complete(_) if is_other => {
            assert_eq!((kept.producer_epoch, kept.previous_producer_id), (ProducerEpoch(0), Some(before.producer_id)));
        }
        Status::Empty | Status::Prepared(_) => assert_eq!((rises, is_other), (1, false)),
        Status::Ongoing | Status::Complete(_) => assert_eq!((rises, is_other), (0, false)),
    }
    assert_eq!(
        kept.partitions.is_empty(),
        !matches!(kept.status, Status::Ongoing | Status::Prepared(_))
            || before.partitions.is_empty() && kept.status != Status::Ongoing
    );
}

#[test]
fn the_table_of_legal_transitions() {
    use Outcome::{Aborted, Committed};
    use Status::{Complete, Empty, Ongoing, Prepared};
    let all = [Empty, Ongoing, Prepared(Committed), Prepared(Aborted), Complete(Committed), Complete(Aborted)];
    // What each may come from.
    let table = [
        (Empty, vec![Empty, Complete(Committed), Complete(Aborted)]),
        (Ongoing, vec![Empty, Ongoing, Complete(Committed), Complete(Aborted)]),
        (Prepared(Committed), vec![Ongoing]),
        (Prepared(Aborted), vec![Empty, Ongoing, Complete(Committed), Complete(Aborted)]),
        (Complete(Committed), vec![Prepared(Committed)]),
        (Complete(Aborted), vec![Prepared(Aborted)]),
    ];
    for (to, froms) in table {
        for from in all {
            assert_eq!(from.leads_to(to), froms.contains(&from), "{from:?} to {to:?}");
        }
    }
}
