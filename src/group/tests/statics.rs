//! Static members: who has an instance id has its partitions.

use super::*;

fn fixed(instance: &str) -> Details {
    Details { instance: Some(instance.to_owned()), ..details(&["orders"]) }
}

fn is_fenced<T: std::fmt::Debug>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::FencedInstance { instance, .. }) if instance == "i")
}

/// Two members at their target, the first one static.
fn two() -> (Desk, Peer, Peer) {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", fixed("i"));
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    settle(&mut desk, &mut [&mut a, &mut b]);
    assert_eq!((a.owned.count(), b.owned.count()), (2, 2));
    (desk, a, b)
}

#[test]
fn whoever_has_left_for_now_finds_its_partitions_again() {
    let (mut desk, mut a, mut b) = two();
    a.leave(&mut desk, Intent::LeaveForNow);
    assert!(matches!(a.stay(&mut desk), Err(Error::FencedMember { .. })));
    desk.pass(40 * SECOND);
    desk.restart();
    b.follow(&mut desk);
    assert_eq!(b.owned.count(), 2, "they are kept for it");
    let epoch = desk.describe().epoch;
    let mut again = Peer::join(&mut desk, "c", fixed("i"));
    assert_eq!((&again.assigned, desk.describe().epoch), (&a.owned, epoch), "nobody else has to move");
    again.follow(&mut desk);
    assert_eq!(desk.describe().state, GroupState::Stable);
    // The one before is told who is in its place.
    assert!(is_fenced(&a.stay(&mut desk)));
    assert!(is_fenced(&desk.commit(Some(a.claim()), "orders", 1)));
    desk.commit(Some(again.claim()), "orders", 1).unwrap();
}

#[test]
fn whoever_does_not_come_back_is_removed_with_its_session() {
    let (mut desk, mut a, mut b) = two();
    desk.pass(30 * SECOND);
    b.stay(&mut desk).unwrap();
    a.leave(&mut desk, Intent::LeaveForNow);
    desk.pass(44 * SECOND);
    assert!(desk.member("a").is_some_and(|member| member.epoch.is_none()), "its session begins with its leave");
    b.stay(&mut desk).unwrap();
    desk.pass(2 * SECOND);
    assert_eq!(desk.member("a"), None);
    b.follow(&mut desk);
    assert_eq!(b.owned.count(), 4);
    // Without an instance id nothing is kept.
    b.leave(&mut desk, Intent::LeaveForNow);
    assert_eq!(desk.describe().state, GroupState::Empty);
}

#[test]
fn whoever_is_replaced_is_fenced_and_holds_until_it_has_left() {
    let (mut desk, mut a, mut b) = two();
    let mut c = Peer::join(&mut desk, "c", fixed("i"));
    assert_eq!(c.assigned.count(), 0, "a may be reading");
    assert!(desk.member("a").unwrap().is_replaced);
    settle(&mut desk, &mut [&mut b, &mut c]);
    assert_eq!((b.owned.count(), c.owned.count()), (2, 0), "they are meant for the instance still");
    assert!(is_fenced(&a.stay(&mut desk)));
    assert!(is_fenced(&a.clone().say(&mut desk, Intent::Join)));
    assert!(is_fenced(&desk.commit(Some(a.claim()), "orders", 1)));
    let epoch = desk.describe().epoch;
    a.leave(&mut desk, Intent::Leave);
    assert_eq!(desk.describe().epoch, epoch, "nothing was meant for it");
    settle(&mut desk, &mut [&mut b, &mut c]);
    assert_eq!((c.owned.clone(), desk.describe().state), (a.owned.clone(), GroupState::Stable));
    assert!(is_fenced(&a.stay(&mut desk)), "it is told so when it is forgotten, too");
}

#[test]
fn whoever_is_replaced_and_silent_goes_with_its_session() {
    let (mut desk, mut a, mut b) = two();
    let mut c = Peer::join(&mut desk, "c", fixed("i"));
    for _ in 0..9 {
        desk.pass(5 * SECOND);
        assert!(is_fenced(&a.stay(&mut desk)), "what is refused keeps no session");
        settle(&mut desk, &mut [&mut b, &mut c]);
    }
    desk.pass(SECOND);
    settle(&mut desk, &mut [&mut b, &mut c]);
    assert_eq!((b.owned.count(), c.owned.count()), (2, 2));
}

#[test]
fn whoever_held_nothing_is_replaced_without_a_trace() {
    let mut desk = Desk::new(&[]);
    Peer::join(&mut desk, "a", fixed("i"));
    Peer::join(&mut desk, "b", fixed("i"));
    let members: Vec<_> = desk.describe().members.into_iter().map(|one| one.member).collect();
    assert_eq!(members, ["b"]);
}

/// Of a chain of members with one instance id, who holds it followed from records that compaction takes.
#[test]
fn who_has_an_instance_id_follows_from_what_is_there() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", fixed("i"));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", fixed("i"));
    assert!(desk.member("a").unwrap().is_replaced);
    b.leave(&mut desk, Intent::Leave);
    assert!(!desk.member("a").unwrap().is_replaced, "nobody else has it");
    assert!(replayed(&compacted(&desk.log)).is_like(&desk.coordinator));
    desk.restart();
    a.follow(&mut desk);
    assert_eq!(a.owned.count(), 4);
}

#[test]
fn whoever_has_come_last_has_the_instance_id() {
    let mut desk = Desk::new(&[("orders", 4)]);
    Peer::join(&mut desk, "z", fixed("i")).follow(&mut desk);
    Peer::join(&mut desk, "a", fixed("i"));
    desk.restart();
    let is_replaced = |desk: &mut Desk, member: &str| desk.member(member).unwrap().is_replaced;
    assert_eq!((is_replaced(&mut desk, "z"), is_replaced(&mut desk, "a")), (true, false));
}
