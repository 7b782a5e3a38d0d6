//! Members are led to their targets one by one, and nothing is two members' on the way.

use super::*;

#[test]
fn a_partition_is_given_out_when_it_is_given_back() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    assert_eq!((b.epoch, b.assigned.count()), (Epoch(2), 0));
    assert_eq!(desk.member("b").unwrap().phase, Phase::Unreleased);
    a.stay(&mut desk).unwrap();
    assert_eq!((a.epoch, a.assigned.count()), (Epoch(1), 2), "its epoch moves when it has given back");
    let told = desk.member("a").unwrap();
    assert_eq!((told.phase, told.revoking.count()), (Phase::Unrevoked, 2));
    for _ in 0..3 {
        a.stay(&mut desk).unwrap();
        b.stay(&mut desk).unwrap();
        assert_eq!(b.assigned.count(), 0);
    }
    a.owned = a.assigned.clone();
    a.stay(&mut desk).unwrap();
    assert_eq!(a.epoch, Epoch(2));
    b.stay(&mut desk).unwrap();
    assert_eq!((b.epoch, b.assigned.count()), (Epoch(2), 2));
    b.owned = b.assigned.clone();
    b.stay(&mut desk).unwrap();
    assert_eq!(desk.describe().state, GroupState::Stable);
}

#[test]
fn what_is_free_is_given_before_the_rest_is() {
    let mut desk = Desk::new(&[("orders", 2), ("bills", 2)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders", "bills"]));
    assert_eq!((b.assigned.clone(), desk.member("b").unwrap().phase), (some("bills", 0..2), Phase::Stable));
    desk.topics(&[("orders", 4), ("bills", 2)]);
    desk.topics(&[("orders", 4), ("bills", 0)]);
    b.follow(&mut desk);
    let waiting = desk.member("b").unwrap();
    assert_eq!((waiting.assigned.clone(), waiting.phase), (some("orders", 2..4), Phase::Stable));
    a.follow(&mut desk);
    assert_eq!(a.owned, some("orders", 0..2), "nothing moved that need not");
}

#[test]
fn what_a_member_never_had_is_taken_back_at_once() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    a.stay(&mut desk).unwrap();
    assert_eq!((a.epoch, a.assigned.count()), (Epoch(2), 2), "it reports nothing");
    b.stay(&mut desk).unwrap();
    assert_eq!(b.assigned.count(), 2);
}

#[test]
fn a_group_has_another_epoch_when_other_partitions_are_meant() {
    let mut desk = Desk::new(&[("orders", 2), ("bills", 1)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders", "soon"]));
    a.follow(&mut desk);
    let mut epoch = desk.describe().epoch;
    let mut rises = |desk: &mut Desk, by: u32| {
        let before = std::mem::replace(&mut epoch, desk.describe().epoch);
        assert_eq!(epoch.0 - before.0, by);
    };
    desk.topics(&[("orders", 2), ("bills", 3)]);
    rises(&mut desk, 0);
    desk.topics(&[("orders", 3), ("bills", 3)]);
    rises(&mut desk, 1);
    desk.topics(&[("orders", 4), ("bills", 3)]);
    rises(&mut desk, 0);
    a.follow(&mut desk);
    assert_eq!(a.owned.count(), 4, "both are in one target");
    desk.topics(&[("orders", 4), ("soon", 1)]);
    rises(&mut desk, 1);
    a.follow(&mut desk);
    desk.restart();
    rises(&mut desk, 0);
    a.details.client_id = "other".to_owned();
    a.follow(&mut desk);
    rises(&mut desk, 0);
    a.details.assignor = Some(Assignor::Range);
    a.follow(&mut desk);
    rises(&mut desk, 1);
    a.details.subscription = named(&["soon"]);
    a.follow(&mut desk);
    rises(&mut desk, 1);
    assert_eq!(a.owned, some("soon", [0]));
    // Nobody minds it in a group without members.
    a.leave(&mut desk, Intent::Leave);
    rises(&mut desk, 1);
    desk.topics(&[("soon", 9)]);
    rises(&mut desk, 0);
}

#[test]
fn the_assignor_is_what_most_want() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let wants = |assignor| Details { assignor, ..details(&["orders"]) };
    Peer::join(&mut desk, "a", wants(None));
    assert_eq!(desk.describe().assignor, Assignor::Uniform);
    Peer::join(&mut desk, "b", wants(Some(Assignor::Range)));
    assert_eq!(desk.describe().assignor, Assignor::Range);
    Peer::join(&mut desk, "c", wants(Some(Assignor::Uniform)));
    assert_eq!(desk.describe().assignor, Assignor::Uniform);
}

/// A member whose record is damaged holds what it has until its session is over.
#[test]
fn damaged_records_leave_nothing_behind() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    for lost in [5, 7, 8] {
        let log: Vec<_> = desk.log.clone();
        let rest = log.iter().filter(|entry| !matches!(entry, Entry::Record(record, _) if record.key[1] == lost));
        let rest: Vec<_> = rest.cloned().collect();
        let mut other = Desk { coordinator: replayed(&rest), now: desk.now, log: rest };
        other.coordinator.loaded(other.now);
        other.topics(&[("orders", 4)]);
        let mut b = Peer::join(&mut other, "b", details(&["orders"]));
        for _ in 0..50 {
            other.pass(SECOND);
            let _ = a.clone().stay(&mut other);
            b.follow(&mut other);
        }
        assert!(other.describe().members.iter().all(|one| one.details.is_some() && one.epoch.is_some() || lost == 7));
        let owned =
            other.describe().members.iter().map(|one| one.assigned.count() + one.revoking.count()).sum::<usize>();
        assert_eq!(owned, 4);
    }
}

/// Two members at their target, a coordinator made of their records, and one that is not so.
fn damaged(event: impl FnOnce(&Peer, &Peer) -> Event) -> (Desk, Peer, Peer) {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    settle(&mut desk, &mut [&mut a, &mut b]);
    let at = Applied { offset: Offset(desk.log.len() as u64), timestamp: None, producer: None };
    desk.log.push(Entry::Record(Coordinator::encode(&event(&a, &b)), at));
    desk.coordinator = replayed(&desk.log);
    desk.coordinator.loaded(desk.now);
    (desk, a, b)
}

/// What a record gives to a second member in the epoch of the target once stayed with both.
#[test]
fn what_damaged_records_give_to_two_is_ones_again() {
    let (mut desk, a, mut b) = damaged(|a, b| {
        let assigned = b.owned.joined_with(&a.owned);
        let current = Current { assigned, ..Current::joining(Partitions::default()) };
        let current = Some(Current { standing: Standing::Here(b.epoch), ..current });
        Event::Current { group: GROUP.to_owned(), member: b.id.to_owned(), current }
    });
    let topics = Arc::new(Topics([("orders".to_owned(), topic("orders", 4))].into()));
    desk.run_on_damage(Command::Topics(topics)).unwrap();
    let before = b.owned.clone();
    for _ in 0..3 {
        let beat = b.heartbeat(Intent::Stay(b.epoch));
        let Ok(Reply::Answer(answer)) = desk.run_on_damage(Command::Heartbeat(Box::new(beat))) else { panic!() };
        (b.epoch, b.seen) = (answer.epoch, Some(answer.incarnation));
        b.owned = answer.assignment.unwrap_or(b.owned);
    }
    check_owners(&desk.coordinator);
    assert_eq!((desk.member("b").unwrap().assigned, desk.member("a").unwrap().assigned), (before, a.owned));
}

/// A target that has a partition twice and another not at all has as many as it should.
#[test]
fn a_target_of_damaged_records_is_computed_again() {
    let (mut desk, mut a, mut b) = damaged(|a, b| {
        let last = b.owned.iter().last();
        let partitions = b.owned.iter().filter(|one| Some(*one) != last).chain(a.owned.iter().take(1)).collect();
        Event::Target { group: GROUP.to_owned(), member: b.id.to_owned(), partitions: Some(partitions) }
    });
    let epoch = a.epoch;
    desk.topics(&[("orders", 4)]);
    assert_eq!(desk.describe().epoch, epoch.next());
    settle(&mut desk, &mut [&mut a, &mut b]);
    assert_eq!((a.owned.count(), b.owned.count()), (2, 2));
}
