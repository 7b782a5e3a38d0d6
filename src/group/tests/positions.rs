//! Positions: who may commit, transactions, and what may be reset and deleted.

use super::*;

fn fetch(desk: &mut Desk, topics: &[&str], require_stable: bool) -> Result<Vec<u64>> {
    let partitions = Some(topics.iter().map(|topic| partition(topic)).collect());
    match desk.run(Command::Fetch { group: GROUP.to_owned(), partitions, require_stable })? {
        Reply::Fetched(found) => Ok(found.into_iter().map(|(_, one)| one.position.offset.0).collect()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_has_the_partition_that_kafka_gives_it() {
    let partition = crate::machine::home::partition_of(GROUP, OFFSETS_PARTITIONS);
    assert_eq!((OFFSETS_TOPIC, partition), ("__consumer_offsets", 9));
}

#[test]
fn a_position_is_kept_as_it_was_committed() {
    let mut desk = Desk::new(&[("orders", 4)]);
    assert_eq!(fetch(&mut desk, &["orders"], true).unwrap(), [0; 0], "there is no such group");
    desk.commit(None, "orders", 5).unwrap();
    desk.commit(None, "orders", 3).unwrap();
    desk.restart();
    assert_eq!(fetch(&mut desk, &["orders", "bills"], true).unwrap(), [3], "it may go back");
    let all = Command::Fetch { group: GROUP.to_owned(), partitions: None, require_stable: false };
    let committed = Committed { position: position(3), committed: desk.now.wall, expires: None };
    let Ok(Reply::Fetched(found)) = desk.run(all) else { panic!() };
    assert_eq!(found[0].1.position, committed.position);
    let listed = desk.run(Command::List).unwrap();
    let billing = Listing { group: GROUP.to_owned(), state: GroupState::Empty };
    assert_eq!(listed, Reply::Listed(vec![billing]));
    assert_eq!(desk.coordinator.positions().count(), 1);
}

#[test]
fn only_a_member_in_its_epoch_commits_where_there_are_members() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    a.follow(&mut desk);
    let stale = a.claim();
    assert!(matches!(desk.commit(None, "orders", 1), Err(Error::UnknownMember { member, .. }) if member.is_empty()));
    let positions = vec![(partition("orders"), position(1))];
    let (group, member) = (GROUP.to_owned(), Some(a.claim()));
    desk.run(Command::Commit { group, member, positions, producer: None }).unwrap();
    desk.topics(&[("orders", 5)]);
    desk.commit(Some(a.claim()), "orders", 2).unwrap();
    a.follow(&mut desk);
    let refused = desk.commit(Some(stale.clone()), "orders", 3).unwrap_err();
    assert!(matches!(refused, Error::StaleMember { epoch: 1, .. }), "{refused:?}");
    assert_eq!(refused.kind(), crate::error::ErrorKind::Retry);
    let ahead = Claim { epoch: a.epoch.next(), ..a.claim() };
    assert!(matches!(desk.commit(Some(ahead), "orders", 3), Err(Error::FencedMember { .. })));
    let other = Claim { member: "b".to_owned(), ..a.claim() };
    assert!(matches!(desk.commit(Some(other), "orders", 3), Err(Error::UnknownMember { .. })));
    assert_eq!(desk.position("orders"), Some(2));
    // In a transaction too.
    let refused = desk.run(commit_of(Some(stale), "orders", 3, Some(producer(1))));
    assert!(matches!(refused, Err(Error::StaleMember { .. })));
    a.leave(&mut desk, Intent::Leave);
    assert!(matches!(desk.commit(Some(a.claim()), "orders", 3), Err(Error::UnknownMember { .. })));
    desk.commit(None, "orders", 4).unwrap();
    // Who has left for now commits nothing, nor does anybody else.
    let mut b = Peer::join(&mut desk, "b", Details { instance: Some("i".to_owned()), ..details(&["orders"]) });
    b.leave(&mut desk, Intent::LeaveForNow);
    assert!(matches!(desk.commit(Some(b.claim()), "orders", 5), Err(Error::UnknownMember { .. })));
    assert!(matches!(desk.commit(None, "orders", 5), Err(Error::UnknownMember { .. })));
}

#[test]
fn a_position_of_a_transaction_waits_for_its_end() {
    for (outcome, expected) in [(Outcome::Committed, 7), (Outcome::Aborted, 1)] {
        let mut desk = Desk::new(&[("orders", 4), ("bills", 1)]);
        desk.commit(None, "orders", 1).unwrap();
        desk.run(commit_of(None, "orders", 7, Some(producer(1)))).unwrap();
        assert_eq!(fetch(&mut desk, &["orders"], false).unwrap(), [1]);
        let unstable = fetch(&mut desk, &["orders"], true).unwrap_err();
        assert!(matches!(&unstable, Error::UnstableOffset { partition, .. } if partition.topic == "orders"));
        assert_eq!(unstable.kind(), crate::error::ErrorKind::Retry);
        assert_eq!(fetch(&mut desk, &["bills"], true).unwrap(), [0; 0]);
        desk.end(producer(2), Outcome::Committed);
        assert_eq!(fetch(&mut desk, &["orders"], false).unwrap(), [1], "it is another's transaction");
        desk.restart();
        desk.end(producer(1), outcome);
        assert_eq!(fetch(&mut desk, &["orders"], true).unwrap(), [expected]);
        desk.restart();
        assert_eq!(fetch(&mut desk, &["orders"], true).unwrap(), [expected]);
    }
}

#[test]
fn what_stands_later_in_the_log_wins() {
    let mut desk = Desk::new(&[("orders", 4)]);
    desk.run(commit_of(None, "orders", 7, Some(producer(1)))).unwrap();
    desk.commit(None, "orders", 1).unwrap();
    desk.run(commit_of(None, "orders", 8, Some(producer(2)))).unwrap();
    desk.end(producer(2), Outcome::Committed);
    desk.end(producer(1), Outcome::Committed);
    assert_eq!(desk.position("orders"), Some(8));
    // What is decided behind the marker, though it comes before it, is of the next transaction.
    desk.run(commit_of(None, "orders", 9, Some(producer(1)))).unwrap();
    let at = Offset(desk.log.len() as u64 - 1);
    desk.coordinator.end_transaction(at, producer(1), Outcome::Committed);
    assert_eq!(desk.position("orders"), Some(8));
    desk.end(producer(1), Outcome::Committed);
    assert_eq!(desk.position("orders"), Some(9));
    // What was only in an aborted transaction leaves no group behind.
    let mut desk = Desk::new(&[]);
    desk.run(commit_of(None, "orders", 7, Some(producer(1)))).unwrap();
    desk.end(producer(1), Outcome::Aborted);
    assert_eq!(desk.run(Command::List).unwrap(), Reply::Listed(Vec::new()));
}

#[test]
fn a_commit_is_checked_as_a_whole() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let mut refused = |change: &dyn Fn(&mut TopicPartition, &mut Position)| {
        let (mut partition, mut position) = (partition("orders"), position(1));
        change(&mut partition, &mut position);
        let positions = vec![(super::partition("bills"), super::position(1)), (partition, position)];
        let command = Command::Commit { group: GROUP.to_owned(), member: None, positions, producer: None };
        desk.run(command).unwrap_err()
    };
    let long = refused(&|_, position| position.metadata = "m".repeat(4097));
    assert!(matches!(long, Error::OffsetMetadataTooLarge { size: 4097, limit: 4096, .. }));
    assert!(matches!(refused(&|partition, _| partition.topic = "a/b".to_owned()), Error::InvalidName { .. }));
    assert!(matches!(refused(&|_, position| position.offset = Offset(1 << 63)), Error::InvalidRecord(_)));
    assert!(matches!(refused(&|partition, _| partition.partition = 1 << 31), Error::InvalidRecord(_)));
    let of = |partition| {
        let position = Position { metadata: "m".repeat(4096), ..position(1) };
        (TopicPartition { topic: "orders".to_owned(), partition }, position)
    };
    let commit = |count| Command::Commit {
        group: GROUP.to_owned(),
        member: None,
        positions: (0..count).map(of).collect(),
        producer: None,
    };
    assert!(matches!(desk.run(commit(200)), Err(Error::RecordTooLarge { .. })));
    assert_eq!(desk.log.len(), 0);
    desk.run(commit(100)).unwrap();
    let nameless = Command::Commit { group: String::new(), member: None, positions: Vec::new(), producer: None };
    assert!(matches!(desk.run(nameless), Err(Error::InvalidName { .. })));
}

#[test]
fn positions_are_reset_and_groups_deleted_only_without_members() {
    let mut desk = Desk::new(&[("orders", 4)]);
    let reset =
        || Command::ResetOffsets { group: GROUP.to_owned(), positions: vec![(partition("orders"), position(2))] };
    let delete = || Command::DeleteGroup { group: GROUP.to_owned() };
    assert!(matches!(desk.run(delete()), Err(Error::UnknownGroup { .. })));
    desk.run(reset()).unwrap();
    let mut a = Peer::join(&mut desk, "a", details(&["orders"]));
    assert!(matches!(desk.run(reset()), Err(Error::GroupNotEmpty { .. })));
    assert!(matches!(desk.run(delete()), Err(Error::GroupNotEmpty { .. })));
    a.leave(&mut desk, Intent::Leave);
    desk.run(commit_of(None, "orders", 7, Some(producer(1)))).unwrap();
    assert!(matches!(desk.run(delete()), Err(Error::UnstableOffset { .. })));
    desk.end(producer(1), Outcome::Aborted);
    desk.run(delete()).unwrap();
    assert_eq!(desk.run(Command::List).unwrap(), Reply::Listed(Vec::new()));
    assert!(compacted(&desk.log).iter().all(|entry| matches!(entry, Entry::Marker(..))), "nothing is left of it");
    desk.restart();
    assert_eq!(desk.position("orders"), None);
}

#[test]
fn positions_of_topics_that_are_subscribed_to_are_not_deleted() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1), ("parcels", 1)]);
    for topic in ["orders", "bills", "parcels"] {
        desk.commit(None, topic, 1).unwrap();
    }
    let delete = |topic: &str| Command::DeleteOffsets {
        group: GROUP.to_owned(),
        partitions: vec![partition(topic), partition("x")],
    };
    let pattern = Subscription { pattern: Some("b.*".to_owned()), ..named(&["orders"]) };
    Peer::join(&mut desk, "a", Details { subscription: pattern, ..details(&[]) });
    for topic in ["orders", "bills"] {
        assert!(matches!(desk.run(delete(topic)), Err(Error::TopicSubscribed { topic: found, .. }) if found == topic));
    }
    assert_eq!(desk.records_of(delete("parcels")), 1);
    assert_eq!((desk.position("parcels"), desk.position("bills")), (None, Some(1)));
    let unknown = Command::DeleteOffsets { group: "no".to_owned(), partitions: Vec::new() };
    assert!(matches!(desk.run(unknown), Err(Error::UnknownGroup { .. })));
}

#[test]
fn a_topic_that_is_gone_takes_its_positions_with_it() {
    let mut desk = Desk::new(&[("orders", 4), ("bills", 1)]);
    for topic in ["orders", "bills", "unheard-of"] {
        desk.commit(None, topic, 1).unwrap();
    }
    desk.run(commit_of(None, "orders", 2, Some(producer(1)))).unwrap();
    desk.topics(&[("bills", 1)]);
    assert_eq!((desk.position("orders"), desk.position("bills")), (None, Some(1)));
    assert_eq!(desk.position("unheard-of"), Some(1), "it may be on its way");
    desk.end(producer(1), Outcome::Committed);
    assert_eq!(desk.position("orders"), None);
    // Made again under its name it is another.
    let mut other = topic("bills", 1);
    other.id = id("another");
    let topics = Arc::new(Topics([("bills".to_owned(), other)].into()));
    desk.run(Command::Topics(topics)).unwrap();
    assert_eq!(desk.position("bills"), None);
    // What was deleted while the machine was not there is found behind a load.
    desk.commit(None, "bills", 1).unwrap();
    desk.coordinator = replayed(&desk.log);
    desk.coordinator.loaded(desk.now);
    desk.topics(&[]);
    assert_eq!((desk.position("bills"), desk.position("unheard-of")), (None, None));
}

#[test]
fn what_is_to_be_forgotten_goes_before_it_is_said_which_topics_there_are() {
    let mut desk = Desk::new(&[("orders", 4)]);
    desk.commit(None, "orders", 1).unwrap();
    desk.coordinator = replayed(&desk.log);
    desk.coordinator.loaded(desk.now);
    assert_eq!(desk.run(Command::ForgetTopic { topic: "orders".to_owned() }).unwrap(), Reply::Done);
    assert_eq!(desk.position("orders"), None);
}
