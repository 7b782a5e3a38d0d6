//! Which positions expire, rule by rule.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is found at `wall`, whenever it is looked for.
fn expire(desk: &mut Desk) -> usize {
    desk.records_of(Command::Expire)
}

#[test]
fn positions_of_nobody_expire_from_when_they_were_committed() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1)]);
    desk.commit(None, "orders", 1).unwrap();
    desk.skip(MINUTE);
    desk.commit(None, "bills", 1).unwrap();
    desk.skip(WEEK.saturating_sub(MINUTE + SECOND));
    assert_eq!(expire(&mut desk), 0);
    desk.skip(SECOND);
    assert_eq!((expire(&mut desk), desk.position("orders"), desk.position("bills")), (1, None, Some(1)));
    desk.skip(MINUTE);
    assert_eq!(expire(&mut desk), 2, "and the group");
    assert_eq!(desk.run(Command::List).unwrap(), Reply::Listed(Vec::new()));
}

#[test]
fn positions_of_a_group_expire_from_when_it_became_empty() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    desk.commit(Some(a.claim()), "orders", 1).unwrap();
    desk.skip(2 * WEEK);
    assert_eq!(expire(&mut desk), 0, "it is subscribed to");
    a.leave(&mut desk, Intent::Leave);
    desk.skip(WEEK.saturating_sub(SECOND));
    desk.commit(None, "bills", 1).unwrap();
    desk.restart();
    assert_eq!(expire(&mut desk), 0);
    desk.skip(SECOND);
    assert_eq!((expire(&mut desk), desk.position("orders"), desk.position("bills")), (1, None, Some(1)));
    desk.skip(WEEK);
    expire(&mut desk);
    assert!(compacted(&desk.log).is_empty());
}

#[test]
fn of_a_group_with_members_only_what_nobody_subscribes_to_expires() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1), ("parcels", 1)]);
    for topic in ["orders", "bills", "parcels"] {
        desk.commit(None, topic, 1).unwrap();
    }
    let pattern = Subscription { pattern: Some("b.*".to_owned()), ..named(&["orders"]) };
    let mut a = Peer::join(&mut desk, "a", Details { subscription: pattern, ..details(&[]) });
    a.follow(&mut desk);
    desk.skip(WEEK);
    assert_eq!(expire(&mut desk), 1);
    assert_eq!((desk.position("orders"), desk.position("bills"), desk.position("parcels")), (Some(1), Some(1), None));
}

#[test]
fn nothing_expires_while_members_are_led_or_a_transaction_is_open() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1)]);
    desk.commit(None, "bills", 1).unwrap();
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    desk.skip(WEEK);
    assert_eq!((desk.describe().state, expire(&mut desk)), (GroupState::Reconciling, 0));
    settle(&mut desk, &mut [&mut a, &mut b]);
    desk.topics(&[("orders", 5), ("bills", 1)]);
    assert_eq!((desk.describe().state, expire(&mut desk)), (GroupState::Assigning, 0));
    settle(&mut desk, &mut [&mut a, &mut b]);
    desk.run(commit_of(Some(a.claim()), "orders", 7, Some(producer(1)))).unwrap();
    assert_eq!((desk.describe().state, expire(&mut desk)), (GroupState::Stable, 0));
    desk.end(producer(1), Outcome::Aborted);
    assert_eq!(expire(&mut desk), 1);
    // A group that has nothing but an open transaction is not forgotten.
    let mut desk = Desk::new(&[]);
    desk.run(commit_of(None, "orders", 7, Some(producer(1)))).unwrap();
    desk.skip(2 * WEEK);
    assert_eq!(expire(&mut desk), 0);
}

#[test]
fn a_position_may_say_itself_when_it_expires() {
    let mut desk = Desk::new(&[]);
    let expires = Some(Timestamp(desk.now.wall.0 + 60_000));
    let position = Position { leader_epoch: None, ..position(1) };
    let committed = Some(Committed { position, committed: desk.now.wall, expires });
    let event = Event::Committed { group: GROUP.to_owned(), partition: partition("orders"), committed };
    desk.coordinator.apply(Applied { offset: Offset(0), timestamp: None, producer: None }, &event);
    desk.skip(MINUTE.saturating_sub(SECOND));
    assert_eq!(expire(&mut desk), 0);
    desk.skip(SECOND);
    assert_eq!(expire(&mut desk), 2);
}

#[test]
fn it_is_looked_for_every_ten_minutes_and_a_thousand_at_a_time() {
    let mut desk = Desk::new(&[]);
    desk.run(Command::Settings(GroupConfig::new().offsets_retention(MINUTE))).unwrap();
    let of = |number| (TopicPartition { topic: "orders".to_owned(), partition: number }, position(1));
    let positions = (0..2500).map(of).collect();
    desk.run(Command::Commit { group: GROUP.to_owned(), member: None, positions, producer: None }).unwrap();
    desk.work();
    assert_eq!(desk.coordinator.deadline(), Some(desk.now.monotonic.after(10 * MINUTE)));
    desk.skip((10 * MINUTE).saturating_sub(SECOND));
    assert_eq!(desk.coordinator.actions(desk.now), []);
    desk.skip(SECOND);
    let mut left = Vec::new();
    while let [Action::Expire] = desk.coordinator.actions(desk.now)[..] {
        desk.work();
        left.push(desk.coordinator.positions().count());
    }
    assert_eq!(left, [1500, 500, 0]);
    assert_eq!(desk.coordinator.deadline(), None);
}

#[test]
fn a_group_without_members_and_positions_is_forgotten() {
    let mut desk = Desk::new(&[]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    assert_eq!(expire(&mut desk), 0);
    a.leave(&mut desk, Intent::Leave);
    assert_eq!(expire(&mut desk), 3);
    assert_eq!(desk.run(Command::List).unwrap(), Reply::Listed(Vec::new()));
    assert!(compacted(&desk.log).is_empty());
}
