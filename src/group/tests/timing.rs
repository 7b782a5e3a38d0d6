//! Time: sessions, the time for giving back, and processes that are suspended.

use super::*;
use crate::random::Random;

const ORDERS: &[(&str, u32)] = &[("orders", 4)];

#[test]
fn whoever_is_silent_for_its_session_is_removed() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    let short = Details { session_timeout: Some(10 * SECOND), ..details(&["orders"]) };
    let mut b = Peer::join(&mut desk, "b", short);
    let long = Details { session_timeout: Some(100 * SECOND), ..details(&["orders"]) };
    let mut c = Peer::join(&mut desk, "c", long);
    assert_eq!(c.stay(&mut desk).unwrap().session_timeout, SESSION, "a member may ask for less, not for more");
    assert_eq!(b.stay(&mut desk).unwrap().heartbeat_interval, 10 * SECOND / 3, "it is to be in time");
    let members = |desk: &mut Desk| desk.describe().members.into_iter().map(|one| one.member).collect::<Vec<_>>();
    desk.pass(9 * SECOND);
    assert_eq!(members(&mut desk), ["a", "b", "c"]);
    let epoch = desk.describe().epoch;
    desk.pass(2 * SECOND);
    assert_eq!((members(&mut desk), desk.describe().epoch), (vec!["a".to_owned(), "c".to_owned()], epoch.next()));
    desk.pass(30 * SECOND);
    a.stay(&mut desk).unwrap();
    desk.pass(5 * SECOND);
    assert_eq!(members(&mut desk), ["a"], "c was heard of 46 s ago");
    // A machine that is made anew has heard of nobody.
    desk.restart();
    desk.pass(44 * SECOND);
    assert_eq!(members(&mut desk), ["a"]);
    desk.pass(2 * SECOND);
    assert_eq!(members(&mut desk), Vec::<String>::new());
}

#[test]
fn whoever_does_not_give_back_in_time_is_removed() {
    for (timeout, removed_after) in [(60, 60), (5, 45)] {
        let mut desk = Desk::new(ORDERS);
        let slow = Details { rebalance_timeout: timeout * SECOND, ..details(&["orders"]) };
        let mut a = Peer::join(&mut desk, "a", slow);
        a.follow(&mut desk);
        let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
        a.stay(&mut desk).unwrap();
        // Never before it has ceased to read what it was not told to give back.
        assert_eq!(a.within, Some(removed_after * SECOND));
        for second in 0..removed_after {
            assert_eq!(a.within, Some((removed_after - second) * SECOND));
            desk.pass(SECOND);
            if second < removed_after - 1 {
                a.stay(&mut desk).unwrap();
                b.stay(&mut desk).unwrap();
            }
        }
        desk.pass(SECOND);
        assert!(matches!(a.stay(&mut desk), Err(Error::UnknownMember { .. })));
        b.follow(&mut desk);
        assert_eq!(b.owned.count(), 4);
    }
}

#[test]
fn the_time_for_giving_back_begins_with_each_step() {
    let mut desk = Desk::new(&[("orders", 6)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    a.stay(&mut desk).unwrap();
    desk.pass(30 * SECOND);
    b.stay(&mut desk).unwrap();
    let mut c = Peer::join(&mut desk, "c", details(&["orders"]));
    a.owned = a.assigned.clone();
    a.stay(&mut desk).unwrap();
    assert_eq!((a.assigned.count(), a.within), (2, Some(POLLS)));
    a.owned = a.assigned.clone();
    a.stay(&mut desk).unwrap();
    assert_eq!(a.within, None);
    settle(&mut desk, &mut [&mut a, &mut b, &mut c]);
    assert_eq!((a.owned.count(), b.owned.count(), c.owned.count()), (2, 2, 2));
}

#[test]
fn a_suspended_process_has_waited_for_a_second() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    for _ in 0..40 {
        desk.skip(3600 * SECOND);
        desk.work();
    }
    assert!(desk.member("a").is_some());
    a.stay(&mut desk).unwrap();
    assert_eq!(a.epoch, Epoch(1));
}

/// Nothing expires by anything but a tick, which comes behind what has arrived.
#[test]
fn what_has_arrived_is_taken_in_before_anything_expires() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    desk.pass(44 * SECOND + SECOND / 2);
    for _ in 0..9 {
        desk.skip(SECOND);
        Peer::join(&mut desk, "b", details(&["orders"])).leave(&mut desk, Intent::Leave);
        desk.coordinator.soft.gone.clear();
    }
    a.stay(&mut desk).unwrap();
    desk.work();
    assert!(desk.member("a").is_some());
}

#[test]
fn there_is_something_to_do_when_it_says_so() {
    let mut desk = Desk::new(ORDERS);
    desk.work();
    assert_eq!(desk.coordinator.deadline(), None, "there is nobody");
    Peer::join(&mut desk, "a", details(&["orders"]));
    desk.work();
    for _ in 0..200 {
        let due = desk.coordinator.deadline().unwrap();
        assert!(due > desk.now.monotonic && due.since(desk.now.monotonic) <= SECOND);
        desk.now.monotonic = Moment(due.0 - 1);
        assert_eq!(desk.coordinator.actions(desk.now), []);
        desk.now.monotonic = due;
        assert_ne!(desk.coordinator.actions(desk.now), []);
        desk.work();
        if desk.describe().members.is_empty() {
            return;
        }
    }
    panic!("nobody is removed");
}

/// Hundreds are removed at once, some by each step.
#[test]
fn a_step_writes_so_many_records() {
    let mut desk = Desk::new(&[]);
    for number in 0..400 {
        let id: &'static str = Box::leak(format!("m{number}").into_boxed_str());
        Peer::join(&mut desk, id, details(&["orders"]));
    }
    desk.pass(44 * SECOND);
    let mut steps = 0;
    for _ in 0..60 {
        desk.skip(SECOND / 4);
        let before = desk.log.len();
        desk.work();
        let records = desk.log.len() - before;
        assert!(records <= RECORDS_MAX + 10, "{records}");
        steps += usize::from(records > 0);
    }
    assert_eq!((desk.describe().members.len(), steps), (0, 2));
}

/// The whole process stands still, members and coordinator: the group goes on as if nothing had been.
#[test]
fn a_suspended_process_finds_its_groups_alive() {
    let mut desk = Desk::new(ORDERS);
    let mut members: Vec<_> = (0..3)
        .map(|seed| {
            let details = Details { subscription: named(&["orders"]), ..Details::default() };
            let settings = MemberSettings { group: GROUP.to_owned(), details, max_poll_interval: POLLS };
            Member::new(desk.now.monotonic, settings, Random::seeded(seed))
        })
        .collect();
    let run = |desk: &mut Desk, members: &mut Vec<Member>| {
        let mut moved = 0;
        for member in &mut *members {
            let now = desk.now.monotonic;
            while let Some(beat) = member.heartbeat(now) {
                let number = beat.report.number;
                match desk.run(Command::Heartbeat(Box::new(beat))) {
                    Ok(Reply::Answer(answer)) => member.answered(now, number, Ok(answer)),
                    Ok(_) => {}
                    Err(error) => member.answered(now, number, Err(error)),
                }
            }
            let changes = member.polled(now).unwrap();
            moved += changes.lost.count() + changes.revoked.count() + changes.assigned.count();
        }
        desk.work();
        moved
    };
    for _ in 0..300 {
        run(&mut desk, &mut members);
        desk.skip(SECOND / 10);
    }
    let owned = |desk: &Desk, members: &[Member]| {
        members.iter().map(|one| one.readable(desk.now.monotonic).cloned()).collect::<Vec<_>>()
    };
    let before = owned(&desk, &members);
    assert_eq!(before.iter().flatten().map(Partitions::count).sum::<usize>(), 4);
    desk.skip(3600 * SECOND);
    assert!(owned(&desk, &members).iter().all(Option::is_none), "until it is told that nobody else has it");
    let records = desk.log.len();
    for _ in 0..100 {
        assert_eq!(run(&mut desk, &mut members), 0);
        desk.skip(SECOND / 10);
    }
    assert_eq!((desk.log.len(), owned(&desk, &members)), (records, before));
}

/// A session that became shorter was over while the member went by an earlier, longer one: its partition was read by two.
/// (Found by the simulation.)
#[test]
fn a_session_is_not_over_before_what_was_promised_is() {
    let mut desk = Desk::new(ORDERS);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let mut b = Peer::join(&mut desk, "b", details(&["orders"]));
    desk.pass(SECOND);
    a.details.session_timeout = Some(10 * SECOND);
    a.details.rebalance_timeout = 5 * SECOND;
    let answer = a.stay(&mut desk).unwrap();
    assert_eq!((answer.session_timeout, answer.revoke_within), (10 * SECOND, Some(44 * SECOND)));
    desk.pass(43 * SECOND);
    b.stay(&mut desk).unwrap();
    assert!(desk.member("a").is_some());
    desk.pass(2 * SECOND);
    assert!(desk.member("a").is_none());
}
