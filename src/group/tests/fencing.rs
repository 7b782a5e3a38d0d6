//! Who is taken for a member: epochs, late and doubled heartbeats, names and bounds.

use super::*;

const ORDERS: &[(&str, u32)] = &[("orders", 4)];

fn is_fenced(outcome: &Result<Answer>) -> bool {
    matches!(outcome, Err(Error::FencedMember { .. }))
}

#[test]
fn a_member_joins_stays_and_leaves() {
    let mut desk = Desk::new(ORDERS);
    let mut peer = Peer::join(&mut desk, "a", details(&["orders"]));
    assert_eq!((peer.epoch, &peer.assigned), (Epoch(1), &some("orders", 0..4)));
    peer.owned = peer.assigned.clone();
    let answer = peer.stay(&mut desk).unwrap();
    assert_eq!((answer.assignment, answer.revoke_within), (None, None), "it has what it reports");
    assert_eq!((answer.heartbeat_interval, answer.session_timeout), (5 * SECOND, SESSION));
    assert_eq!(desk.describe().state, GroupState::Stable);
    let beat = peer.heartbeat(Intent::Stay(peer.epoch));
    assert_eq!(desk.records_of(Command::Heartbeat(Box::new(beat))), 0, "nothing has changed");
    peer.leave(&mut desk, Intent::Leave);
    assert_eq!((desk.describe().state, desk.describe().members.len()), (GroupState::Empty, 0));
    assert!(matches!(peer.stay(&mut desk), Err(Error::UnknownMember { .. })));
    peer.leave(&mut desk, Intent::Leave);
}

#[test]
fn an_epoch_is_the_current_one_or_the_one_before() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    settle(&mut desk, &mut [&mut a, &mut b]);
    assert_eq!((a.epoch, b.epoch), (Epoch(2), Epoch(2)));
    assert!(is_fenced(&a.clone().say(&mut desk, Intent::Stay(Epoch(3)))));
    assert!(is_fenced(&a.clone().say(&mut desk, Intent::Stay(Epoch(0)))));
    // b's step from 0 to 2 is its last; it says 0 only by joining. a's was from 1 to 2.
    assert!(is_fenced(&b.clone().say(&mut desk, Intent::Stay(Epoch(1)))));
    let mut behind = a.clone();
    let answer = behind.say(&mut desk, Intent::Stay(Epoch(1))).unwrap();
    assert_eq!(answer.epoch, Epoch(2), "the answer was lost");
    let mut behind = a.clone();
    behind.number += 5;
    behind.owned = some("orders", 0..4);
    assert!(is_fenced(&behind.say(&mut desk, Intent::Stay(Epoch(1)))), "it has more than is its own");
    a.number += 9;
    a.stay(&mut desk).unwrap();
}

/// Two answers in a row that were lost would leave a member two epochs behind.
#[test]
fn a_member_that_has_not_heard_of_a_step_is_not_led_on() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 2)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    desk.topics(&[("orders", 5), ("bills", 2)]);
    let unheard = a.clone().stay(&mut desk).unwrap();
    assert_eq!(unheard.epoch, Epoch(2));
    a.number += 1;
    desk.topics(&[("orders", 6), ("bills", 2)]);
    let again = a.clone().stay(&mut desk).unwrap();
    assert_eq!((again.epoch, again.assignment), (Epoch(2), Some(some("orders", 0..5))));
    a.number += 1;
    a.stay(&mut desk).unwrap();
    assert_eq!(a.epoch, Epoch(2));
    a.stay(&mut desk).unwrap();
    assert_eq!((a.epoch, &a.assigned), (Epoch(3), &some("orders", 0..6)));
}

#[test]
fn a_join_that_comes_twice_is_one() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::new("a", details(&["orders"]));
    let beat = a.heartbeat(Intent::Join);
    let first = desk.run(Command::Heartbeat(Box::new(beat.clone()))).unwrap();
    assert_eq!(desk.records_of(Command::Heartbeat(Box::new(beat.clone()))), 0);
    assert_eq!(desk.run(Command::Heartbeat(Box::new(beat.clone()))).unwrap(), first);
    // It was sent again, as no answer came.
    a.say(&mut desk, Intent::Join).unwrap();
    a.follow(&mut desk);
    assert!(is_fenced(&a.clone().say(&mut desk, Intent::Join)), "it says that it has something");
    a.leave(&mut desk, Intent::Leave);
    let late = desk.run(Command::Heartbeat(Box::new(beat)));
    assert!(matches!(late, Err(Error::UnknownMember { .. })), "{late:?}");
}

/// A heartbeat that reported nothing, as nothing was owned yet, once gave back what was owned when it came.
#[test]
fn a_late_heartbeat_gives_nothing_back() {
    for has_restarted in [false, true] {
        let mut desk = Desk::new(ORDERS);
        let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
        let late = a.heartbeat(Intent::Stay(a.epoch));
        a.follow(&mut desk);
        let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
        a.stay(&mut desk).unwrap();
        assert_eq!(a.assigned.count(), 2);
        if has_restarted {
            desk.restart();
        }
        desk.run(Command::Heartbeat(Box::new(late))).unwrap();
        b.stay(&mut desk).unwrap();
        assert_eq!(b.assigned.count(), 0, "a has not given back");
        assert_eq!(desk.member("a").unwrap().phase, Phase::Unrevoked);
        // Behind a restart the first heartbeat only learns who answers.
        a.stay(&mut desk).unwrap();
        a.owned = a.assigned.clone();
        a.stay(&mut desk).unwrap();
        b.stay(&mut desk).unwrap();
        assert_eq!(b.assigned.count(), 2);
    }
}

#[test]
fn no_heartbeat_is_taken_before_the_topics_are_known() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut coordinator = replayed(&desk.log);
    coordinator.loaded(desk.now);
    std::mem::swap(&mut desk.coordinator, &mut coordinator);
    for intent in [Intent::Stay(a.epoch), Intent::Join] {
        let mut other = Peer { id: if intent == Intent::Join { "b" } else { "a" }, ..a.clone() };
        let outcome = other.say(&mut desk, intent);
        assert!(matches!(outcome, Err(Error::CoordinatorLoading { .. })), "{outcome:?}");
    }
    a.leave(&mut desk, Intent::Leave);
}

#[test]
fn a_group_takes_so_many_members() {
    let mut desk = Desk::new(ORDERS);
    desk.run(Command::Settings(GroupConfig::new().members_max(2))).unwrap();
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    Peer::join(&mut desk, "b", details(&["orders"]));
    let mut c = Peer::new("c", details(&["orders"]));
    assert!(matches!(c.say(&mut desk, Intent::Join), Err(Error::GroupFull { limit: 2, .. })));
    a.leave(&mut desk, Intent::Leave);
    c.say(&mut desk, Intent::Join).unwrap();
}

#[test]
fn what_a_member_says_is_checked() {
    let mut desk = Desk::new(ORDERS);
    let mut refused = |details: Details| Peer::new("a", details).say(&mut desk, Intent::Join).unwrap_err();
    let good = details(&["orders"]);
    let pattern = |text: &str| Details {
        subscription: Subscription { pattern: Some(text.to_owned()), ..Subscription::default() },
        ..good.clone()
    };
    for text in ["a(", "a)|(b", "[z-a]"] {
        assert!(matches!(refused(pattern(text)), Error::InvalidPattern { pattern, .. } if pattern == text));
    }
    assert!(matches!(refused(details(&["a/b"])), Error::InvalidName { .. }));
    assert!(matches!(refused(Details { instance: Some(String::new()), ..good.clone() }), Error::InvalidName { .. }));
    assert!(matches!(refused(Details { rack: Some("r".repeat(32_768)), ..good.clone() }), Error::InvalidName { .. }));
    let timeless = Details { rebalance_timeout: Duration::ZERO, ..good.clone() };
    assert!(matches!(refused(timeless), Error::InvalidConfig { setting: "max_poll_interval", .. }));
    let endless = Details { session_timeout: Some(Duration::ZERO), ..good.clone() };
    assert!(matches!(refused(endless), Error::InvalidConfig { setting: "session_timeout", .. }));
    assert!(matches!(refused(pattern(&"a".repeat(300_000))), Error::InvalidConfig { setting: "subscription", .. }));

    let mut beat = Peer::new("a", good).heartbeat(Intent::Join);
    for group in [String::new(), "g".repeat(32_768)] {
        beat.group = group;
        let outcome = desk.run(Command::Heartbeat(Box::new(beat.clone())));
        assert!(matches!(outcome, Err(Error::InvalidName { .. })));
    }
    beat.group = "g".repeat(32_767);
    desk.run(Command::Heartbeat(Box::new(beat.clone()))).unwrap();
    beat.member = String::new();
    assert!(matches!(desk.run(Command::Heartbeat(Box::new(beat))), Err(Error::InvalidName { .. })));
    assert!(matches!(desk.run(Command::Describe { group: "no".to_owned() }), Err(Error::UnknownGroup { .. })));
}

/// A session of nothing was refused only where a member was new: whoever asked for it later was removed by the next tick.
#[test]
fn a_session_is_checked_whenever_it_is_asked_for() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.details.session_timeout = Some(Duration::ZERO);
    for intent in [Intent::Join, Intent::Stay(a.epoch)] {
        let refused = a.say(&mut desk, intent);
        assert!(matches!(refused, Err(Error::InvalidConfig { setting: "session_timeout", .. })), "{refused:?}");
    }
    desk.pass(SECOND);
    assert!(desk.member("a").is_some());
}

/// Members may change their patterns for ever.
#[test]
fn so_many_patterns_are_remembered() {
    let topics = Topics([("orders".to_owned(), topic("orders", 1))].into());
    let mut catalogue = topics::Catalogue::new(Arc::new(topics));
    for number in 0..5000 {
        let pattern = Some(format!("orders|{number}"));
        assert_eq!(catalogue.resolve(&Subscription { pattern, ..Subscription::default() }), [id("orders")].into());
    }
    assert!(catalogue.remembered() <= 1000);
}

#[test]
fn a_pattern_matches_whole_names_that_are_not_internal() {
    let topics = [("order", 1), ("orders", 1), ("reorder", 1), ("__order", 1)];
    let mut desk = Desk::new(&topics);
    let pattern = |text: &str| Details {
        subscription: Subscription { pattern: Some(text.to_owned()), ..named(&["reorder"]) },
        ..details(&[])
    };
    let mut a = Peer::join(&mut desk, "a", pattern(".*order|x"));
    let expected = some("order", [0]).joined_with(&some("reorder", [0]));
    assert_eq!(a.assigned, expected);
    a.follow(&mut desk);
    // A topic that is made, and matches, comes by itself; the subscription may change.
    desk.topics(&[&topics[..], &[("border", 1)]].concat());
    a.follow(&mut desk);
    assert_eq!(a.assigned, expected.joined_with(&some("border", [0])));
    a.details = details(&["orders"]);
    a.follow(&mut desk);
    a.follow(&mut desk);
    assert_eq!(a.owned, some("orders", [0]));
}

/// A group was forgotten, and its epochs began anew. A join that was late brought a member id back that had been removed,
/// and the member went on, in the same epoch, with what was another's by then. (Found by the simulation.)
#[test]
fn whoever_owns_what_is_not_its_own_is_fenced() {
    let mut desk = Desk::new(ORDERS);
    let mut old = Peer::new("old", details(&["orders"]));
    let late = old.heartbeat(Intent::Join);
    old.say(&mut desk, Intent::Join).unwrap();
    old.follow(&mut desk);
    desk.pass(46 * SECOND);
    desk.run(Command::Expire).unwrap();
    desk.restart();
    desk.run(Command::Heartbeat(Box::new(late))).unwrap();
    let mut new = Peer::join(&mut desk, "new", details(&["orders"]));
    let mut again = Peer { owned: Partitions::default(), number: 1, ..old.clone() };
    again.follow(&mut desk);
    new.follow(&mut desk);
    assert_eq!((again.owned.count(), new.owned.count()), (2, 2));
    old.number += 90;
    old.epoch = again.epoch;
    assert!(is_fenced(&old.stay(&mut desk)));
}
