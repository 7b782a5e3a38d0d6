//! What a consumer does beside the coordinators of its log: positions that are not settled, progress, and large commits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::append;
use crate::clock::ManualClock;
use crate::config::{Durability, TopicConfig};
use crate::consumer::{Consumer, ConsumerBuilder, Rebalance, RebalanceListener, StartAt};
use crate::controller::Command as Administration;
use crate::error::{Error, Result};
use crate::group::{Command as Group, Details, Heartbeat, Intent, Reply, Report};
use crate::group::{OFFSETS_PARTITIONS, OFFSETS_TOPIC, Position};
use crate::machine::ProducerIdentity;
use crate::machine::home::partition_of;
use crate::node::Node;
use crate::record::control::Outcome;
use crate::storage::MemoryStorage;
use crate::sync::Mutex;
use crate::txn::{Command, Reply as Transactions};
use crate::types::{LeaderEpoch, Offset, Timestamp, TopicPartition};

/// A log with a topic of two partitions, of ten records each.
pub(super) struct Place {
    pub(super) node: Arc<Node>,
    pub(super) clock: Arc<ManualClock>,
}

impl Place {
    pub(super) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let place = Self { node: Node::on(&MemoryStorage::new(1), Arc::clone(&clock) as _), clock };
        place.topic("t", 2);
        for number in 0..2 {
            append(place.node.topic("t").expect("made").partition(number).expect("made"), 10);
        }
        place
    }

    pub(super) fn topic(&self, name: &str, partitions: u32) {
        let config = TopicConfig::new().partitions(partitions).durability(Durability::Os);
        let id = self.node.new_topic_id();
        self.node.administer(name, Administration::Create { name: name.to_owned(), id, config }).expect("made");
    }

    pub(super) fn consumer(&self) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::clone(&self.node), "g".to_owned()).subscribe(["t"])
    }

    /// Begins a transaction that is to move the group's position in `t-0`.
    fn begin(&self, offset: u64) -> ProducerIdentity {
        let timeout = Duration::from_secs(60);
        let init = |fresh| Command::Init { id: "x".to_owned(), timeout, expected: None, fresh };
        let Transactions::Identity(producer) = self.node.transact("x", init).expect("taken") else {
            panic!("no identity")
        };
        let number = partition_of("g", OFFSETS_PARTITIONS);
        let partitions = vec![TopicPartition::from((OFFSETS_TOPIC, number))];
        let add = |_| Command::Add { id: "x".to_owned(), producer, partitions: partitions.clone() };
        self.node.ensure_groups().expect("made");
        self.node.transact("x", add).expect("added");
        self.commit(offset, Some(producer));
        producer
    }

    fn commit(&self, offset: u64, producer: Option<ProducerIdentity>) {
        let position = Position { offset: Offset(offset), leader_epoch: Some(LeaderEpoch(0)), metadata: String::new() };
        self.node.commit_positions("g", None, (vec![(("t", 0).into(), position)], &[]), producer).expect("stored");
    }

    /// The group has this member no more, which does not know.
    pub(super) fn remove(&self, member: String) {
        let (group, intent) = ("g".to_owned(), Intent::Leave);
        let leave = Heartbeat { group, member, intent, details: Details::default(), report: Report::default() };
        self.node.ask_group("g", Group::Heartbeat(Box::new(leave))).expect("left");
    }

    pub(super) fn describe(&self) -> Reply {
        self.node.ask_group("g", Group::Describe { group: "g".to_owned() }).expect("there is one")
    }

    fn end(&self, producer: ProducerIdentity, outcome: Outcome) {
        let end = |fresh| Command::End { id: "x".to_owned(), producer, outcome, fresh };
        self.node.transact("x", end).expect("ended");
        self.node.settle("x").expect("settled");
    }
}

/// Polls until nothing comes: the first offset that each partition gives.
fn firsts(consumer: &mut Consumer) -> Vec<(u32, u64)> {
    let mut firsts = Vec::new();
    let mut polled = consumer.poll(Duration::ZERO).expect("readable");
    while !polled.is_empty() {
        let first = polled.records().next().expect("not empty").offset().0;
        firsts.push((polled.partition(), first));
        polled = consumer.try_poll().expect("readable");
    }
    firsts.sort_unstable();
    firsts
}

/// Where a transaction is about to move the group's position, nothing is read before it has ended; all else is.
#[test]
fn a_position_that_is_not_settled_is_waited_for() {
    for (outcome, first) in [(Outcome::Committed, 6), (Outcome::Aborted, 4)] {
        let place = Place::new();
        place.commit(4, None);
        let producer = place.begin(6);
        let mut consumer = place.consumer().start_at(StartAt::Earliest).open().expect("opened");
        assert_eq!(firsts(&mut consumer), [(1, 0)]);
        assert_eq!(consumer.assignment().len(), 2);
        let unstable = consumer.position("t", 0).expect_err("not known");
        assert!(matches!(&unstable, Error::UnstableOffset { partition, .. } if partition.partition == 0), "{unstable}");
        // It is not committed at, or told as progress, from anywhere else.
        let moved: Vec<_> = consumer.progress().positions.into_iter().map(|(name, _)| name.partition).collect();
        assert_eq!(moved, [1]);
        place.end(producer, outcome);
        assert_eq!(firsts(&mut consumer), [], "it is asked for again after a while");
        place.clock.advance(Duration::from_millis(100));
        assert_eq!(firsts(&mut consumer), [(0, first)]);
    }
}

#[test]
fn a_seek_need_not_wait_for_a_position() {
    let place = Place::new();
    let producer = place.begin(6);
    let mut consumer = place.consumer().open().expect("opened");
    assert_eq!(firsts(&mut consumer), [(1, 0)]);
    consumer.seek("t", 0, Offset(2)).expect("assigned");
    assert_eq!(firsts(&mut consumer), [(0, 2)]);
    place.end(producer, Outcome::Committed);
    place.clock.advance(Duration::from_secs(1));
    assert_eq!(firsts(&mut consumer), []);
}

#[test]
fn progress_says_who_has_come_how_far() {
    let place = Place::new();
    let mut consumer = place.consumer().auto_commit(Duration::from_secs(60)).open().expect("opened");
    assert!(consumer.progress().commits_itself);
    let refused = |progress: crate::group::Progress| {
        place
            .node
            .commit_positions(&progress.group, progress.member, (progress.positions, &progress.topics), None)
            .err()
    };
    // Not joined yet, it is nobody, also where there are no members.
    let early = refused(consumer.progress());
    assert!(matches!(early, Some(Error::UnknownMember { .. })), "{early:?}");
    assert_eq!(firsts(&mut consumer).len(), 2);
    let progress = consumer.progress();
    assert_eq!(progress.member.as_ref().map(|claim| claim.member.clone()), consumer.member_id());
    let ends: Vec<_> = progress.positions.iter().map(|(one, at)| (one.partition, at.offset, at.leader_epoch)).collect();
    assert_eq!(ends, [(0, Offset(10), Some(LeaderEpoch(0))), (1, Offset(10), Some(LeaderEpoch(0)))]);
    assert!(refused(progress).is_none());
    let late = consumer.progress();
    consumer.close().expect("left");
    assert!(matches!(refused(late), Some(Error::UnknownMember { .. })));
}

/// How many partitions are lost, and what a commit of them is answered.
type Refusals = Vec<(usize, Option<Error>)>;

/// Notes what is lost.
#[derive(Clone, Default)]
struct Lost(Arc<Mutex<Refusals>>);

impl RebalanceListener for Lost {
    fn lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let answers = [rebalance.commit(), rebalance.commit_offsets([(("t", 0), Offset(1))])];
        self.0.lock().extend(answers.map(|answer| (partitions.len(), answer.err())));
        Ok(())
    }
}

/// The group has removed it, and the node's thread has joined anew, before it polls: it is a member, and owns nothing of what
/// it had.
#[test]
fn whoever_was_removed_and_is_a_member_again_commits_nothing_of_before() {
    let place = Place::new();
    let lost = Lost::default();
    let mut consumer = place.consumer().max_bytes(1).on_rebalance(lost.clone()).open().expect("opened");
    assert!(!consumer.poll(Duration::ZERO).expect("readable").is_empty());
    let member = consumer.member_id().expect("joined");
    place.remove(member);
    for _ in 0..20 {
        place.clock.advance(Duration::from_millis(500));
        place.node.tick();
    }
    let Reply::Described(described) = place.describe() else { panic!("no description") };
    assert_eq!(described.members.len(), 1, "it has come again by itself");
    let refused = consumer.commit().expect_err("it is another's");
    assert!(matches!(refused, Error::UnknownMember { .. }), "{refused}");
    let progress = consumer.progress();
    let refused = place.node.commit_positions("g", progress.member, (progress.positions, &progress.topics), None);
    assert!(matches!(refused, Err(Error::UnknownMember { .. })), "{refused:?}");
    let first = consumer.try_poll().expect("readable");
    let told = std::mem::take(&mut *lost.0.lock());
    assert_eq!(told.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [2, 2]);
    assert!(told.iter().all(|(_, error)| matches!(error, Some(Error::UnknownMember { .. }))), "{told:?}");
    assert_eq!(first.records().next().map(|record| record.offset()), Some(Offset(0)), "nothing was committed");
    consumer.commit().expect("a member again");
    // A close is answered when it has left.
    consumer.close().expect("left");
    let Reply::Described(described) = place.describe() else { panic!("no description") };
    assert_eq!(described.members.len(), 0);
}

/// More positions than a coordinator takes at once.
#[test]
fn a_commit_of_thousands_of_partitions_is_stored_whole() {
    let place = Place::new();
    let name = "n".repeat(249);
    place.topic(&name, 1_000);
    let builder = ConsumerBuilder::new(Arc::clone(&place.node), "g".repeat(2_000)).subscribe(["t"]);
    let mut consumer = builder.open().expect("opened");
    consumer.poll(Duration::ZERO).expect("joined");
    let all: BTreeSet<u32> = (0..1_000).collect();
    let note = |number: &u32| ((name.as_str(), *number), Offset(u64::from(*number)));
    consumer.commit_offsets(all.iter().map(note)).expect("stored");
    let found = consumer.committed(all.iter().map(|number| (name.as_str(), *number))).expect("known");
    assert_eq!(found.len(), 1_000);
    assert!(found.iter().all(|(one, at)| at.offset == Offset(u64::from(one.partition))));
}
