//! Groups as an operator sees and sets them: described, listed, reset, forgotten.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::time::Duration;

use support::{Place, arrive};
use taffrail::{
    Assignor, CommittedOffset, Error, GroupState, MemberState, Offset, Record, ResetTo, Timestamp, TopicPartition,
    Which,
};

fn at(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition }
}

/// A place with records at known times: record n of a partition at n seconds.
fn place() -> Place {
    let place = Place::with("orders", 2);
    let producer = place.log.producer().open().unwrap();
    for number in 0..10 {
        for partition in 0..2 {
            let record = Record::new("v").partition(partition).timestamp(Timestamp(number * 1000));
            producer.send("orders", record).unwrap().wait().unwrap();
        }
    }
    place
}

#[test]
fn a_group_is_described_as_it_is() {
    let place = place();
    let builder = place.member("orders").instance_id("i").rack("r").client_id("c").assignor(Assignor::Range);
    let mut one = builder.open().unwrap();
    arrive(&mut one);
    one.commit_offsets([(at("orders", 1), CommittedOffset::from(Offset(3)).metadata("note"))]).unwrap();
    let group = place.log.describe_group("g").unwrap();
    assert_eq!((group.name.as_str(), group.state, group.assignor), ("g", GroupState::Stable, Assignor::Range));
    assert_eq!(group.epoch, group.assignment_epoch);
    let [member] = &group.members[..] else { panic!("{group:?}") };
    assert_eq!(Some(&member.id), one.member_id().as_ref());
    assert_eq!(member.instance_id.as_deref(), Some("i"));
    assert_eq!((member.rack.as_deref(), member.client_id.as_str()), (Some("r"), "c"));
    assert_eq!((&member.topics[..], member.pattern.as_deref()), (&["orders".to_owned()][..], None));
    assert_eq!(member.assigned, [at("orders", 0), at("orders", 1)]);
    assert_eq!(member.target, member.assigned);
    assert_eq!((member.revoking.len(), member.state, member.epoch), (0, MemberState::Stable, Some(group.epoch)));
    let [position] = &group.positions[..] else { panic!("{group:?}") };
    assert_eq!((&position.partition, position.committed.offset), (&at("orders", 1), Offset(3)));
    assert_eq!((position.committed.metadata.as_str(), position.timestamp), ("note", Timestamp(1_000_000)));
    // Another one comes: the first is to give something back, the second waits for it.
    let mut two = place.member("orders").open().unwrap();
    two.poll(Duration::ZERO).unwrap();
    place.clock.advance(Duration::from_secs(6));
    place.log.tick();
    let group = place.log.describe_group("g").unwrap();
    let states: Vec<_> = group.members.iter().map(|member| (member.instance_id.is_some(), member.state)).collect();
    assert!(states.contains(&(true, MemberState::Revoking)), "{states:?}");
    assert!(states.contains(&(false, MemberState::Waiting)), "{states:?}");
    assert_eq!(group.state, GroupState::Reconciling);
    place.pass(&mut [&mut one, &mut two], 15);
    one.close().unwrap();
    let group = place.log.describe_group("g").unwrap();
    let away = group.members.iter().find(|member| member.instance_id.is_some()).unwrap();
    assert_eq!((away.state, away.epoch), (MemberState::Away, None));
}

#[test]
fn groups_are_listed_by_name_as_long_as_something_is_known_of_them() {
    let place = place();
    assert_eq!(place.log.groups().unwrap(), []);
    assert!(matches!(place.log.describe_group("g"), Err(Error::UnknownGroup { .. })));
    let mut names: Vec<_> = (0..60).map(|number| format!("group-{number}")).collect();
    for name in &names {
        place.log.reset_group(name, "orders", ResetTo::Earliest).unwrap();
    }
    let mut member = place.member("orders").open().unwrap();
    arrive(&mut member);
    names.push("g".to_owned());
    names.sort();
    let listed = place.log.groups().unwrap();
    assert_eq!(listed.iter().map(|one| one.name.clone()).collect::<Vec<_>>(), names);
    let state = |name: &str| listed.iter().find(|one| one.name == name).map(|one| one.state);
    assert_eq!([state("g"), state("group-7")], [Some(GroupState::Stable), Some(GroupState::Empty)]);
    place.log.delete_group("group-7").unwrap();
    assert!(matches!(place.log.delete_group("group-7"), Err(Error::UnknownGroup { .. })));
    assert!(matches!(place.log.delete_group("g"), Err(Error::GroupNotEmpty { .. })));
    assert_eq!(place.log.groups().unwrap().len(), 60);
    drop(member);
    place.log.tick();
    place.log.delete_group("g").ok();
    assert_eq!(place.log.groups().unwrap().len(), 59);
}

#[test]
fn a_group_is_sent_to_where_it_is_told() {
    let place = place();
    let reset = |which, to| {
        let found = place.log.reset_group("g", which, to).unwrap();
        found.into_iter().map(|(one, offset)| (one.partition, offset.0)).collect::<Vec<_>>()
    };
    let orders = || Which::Topic("orders");
    let unknown = place.log.reset_group("g", Which::All, ResetTo::Earliest);
    assert!(matches!(unknown, Err(Error::UnknownGroup { group }) if group == "g"), "it has no position anywhere");
    assert_eq!(reset(orders(), ResetTo::Latest), [(0, 10), (1, 10)]);
    assert_eq!(reset(Which::Partition("orders", 1), ResetTo::Shift(-4)), [(1, 6)]);
    assert_eq!(reset(Which::All, ResetTo::Shift(-2)), [(0, 8), (1, 4)]);
    assert_eq!(reset(Which::All, ResetTo::Shift(5)), [(0, 10), (1, 9)], "no further than the end");
    assert_eq!(reset(Which::All, ResetTo::Shift(i64::MIN)), [(0, 0), (1, 0)]);
    assert_eq!(reset(orders(), ResetTo::Time(Timestamp(3500))), [(0, 4), (1, 4)]);
    assert_eq!(reset(orders(), ResetTo::Time(Timestamp(3000))), [(0, 3), (1, 3)]);
    assert_eq!(reset(orders(), ResetTo::Time(Timestamp(9001))), [(0, 10), (1, 10)]);
    assert_eq!(reset(orders(), ResetTo::Offset(Offset(7))), [(0, 7), (1, 7)]);
    assert_eq!(reset(orders(), ResetTo::Offset(Offset(70))), [(0, 10), (1, 10)]);
    place.log.partition("orders", 0).unwrap().trim_before(Offset(5)).unwrap();
    assert_eq!(reset(orders(), ResetTo::Earliest), [(0, 5), (1, 0)]);
    assert_eq!(reset(orders(), ResetTo::Offset(Offset(2))), [(0, 5), (1, 2)]);
    // Whoever comes goes on from there.
    let mut consumer = place.member("orders").open().unwrap();
    let seen = arrive(&mut consumer);
    let first = |name: &str| seen.iter().find(|(one, _)| one == name).map(|(_, offset)| *offset);
    assert_eq!([first("orders-0"), first("orders-1")], [Some(5), Some(2)]);
    // While it has members nothing is moved.
    let live = place.log.reset_group("g", Which::All, ResetTo::Earliest);
    assert!(matches!(live, Err(Error::GroupNotEmpty { .. })), "{live:?}");
    let unknown = [Which::Topic("nothing"), Which::Partition("orders", 2)].map(|which| {
        drop(place.log.delete_group("h"));
        place.log.reset_group("h", which, ResetTo::Earliest)
    });
    assert!(matches!(&unknown[0], Err(Error::UnknownTopic { .. })), "{unknown:?}");
    assert!(matches!(&unknown[1], Err(Error::UnknownPartition { .. })), "{unknown:?}");
    let shifted = place.log.reset_group("h", "orders", ResetTo::Shift(1));
    assert!(matches!(shifted, Err(Error::NoPosition { .. })), "{shifted:?}");
    let nameless = place.log.reset_group("", "orders", ResetTo::Latest);
    assert!(matches!(nameless, Err(Error::InvalidName { .. })), "{nameless:?}");
}

#[test]
fn positions_are_forgotten_one_by_one() {
    let place = place();
    place.topic("visits", 1);
    for topic in ["orders", "visits"] {
        place.log.reset_group("g", topic, ResetTo::Latest).unwrap();
    }
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    let subscribed = place.log.delete_group_positions("g", [("orders", 0)]);
    assert!(matches!(subscribed, Err(Error::TopicSubscribed { .. })), "{subscribed:?}");
    place.log.delete_group_positions("g", [("visits", 0), ("visits", 9)]).unwrap();
    consumer.close().unwrap();
    let left = || place.log.describe_group("g").map(|group| group.positions.len()).ok();
    assert_eq!(left(), Some(2));
    place.log.delete_group_positions("g", [("orders", 0)]).unwrap();
    assert_eq!(left(), Some(1));
    let unknown = place.log.delete_group_positions("nobody", [("orders", 0)]);
    assert!(matches!(unknown, Err(Error::UnknownGroup { .. })), "{unknown:?}");
}

/// Positions of a group that nobody uses are kept for a week, those of a topic that is deleted are not.
#[test]
fn positions_expire_and_go_with_their_topic() {
    let place = place();
    place.topic("visits", 1);
    for (group, topic) in [("g", "orders"), ("g", "visits"), ("h", "visits")] {
        place.log.reset_group(group, topic, ResetTo::Latest).unwrap();
    }
    place.log.delete_topic("visits").unwrap();
    place.log.tick();
    let listed = || place.log.groups().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    let positions = place.log.describe_group("g").unwrap().positions;
    assert!(positions.iter().all(|one| one.partition.topic == "orders"), "{positions:?}");
    let left = place.log.describe_group("h").map(|group| group.positions.len());
    assert!(matches!(left, Ok(0) | Err(Error::UnknownGroup { .. })), "{left:?}");
    // A live group that subscribes to the topic keeps its positions, however old they are.
    let mut consumer = place.log.consumer("live").subscribe(["orders"]).open().unwrap();
    arrive(&mut consumer);
    consumer.commit().unwrap();
    for _ in 0..7 * 24 {
        place.clock.advance(Duration::from_secs(3600));
        place.log.tick();
        consumer.try_poll().unwrap();
    }
    for _ in 0..30 {
        place.clock.advance(Duration::from_secs(60));
        place.log.tick();
        consumer.try_poll().unwrap();
    }
    assert_eq!(listed(), ["live"]);
    assert_eq!(place.log.describe_group("live").unwrap().positions.len(), 2);
}
