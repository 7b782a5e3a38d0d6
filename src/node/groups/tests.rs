//! The coordinators of groups on a node: members, positions, transactions, crashes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::config::{Durability, TopicConfig};
use crate::controller::Command as Administration;
use crate::group::{Details, MemberSettings, OFFSETS_PARTITIONS, Partitions, Subscription};
use crate::machine::home::partition_of;
use crate::node::Membership;
use crate::record::builder::{BatchBuilder, Record};
use crate::record::control::Outcome;
use crate::storage::{Fault, MemoryStorage, Operation, OperationKind};
use crate::sync::{Arc as Pointer, Signal};
use crate::txn::{Command as TransactionCommand, Reply as TransactionReply};
use crate::types::{LeaderEpoch, Timestamp};

struct Place {
    node: Arc<Node>,
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
}

impl Place {
    fn new() -> Self {
        Self::at(MemoryStorage::new(1))
    }

    fn at(storage: MemoryStorage) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        Self { node: Node::on(&storage, Arc::clone(&clock) as _), clock, storage }
    }

    fn topic(&self, name: &str, partitions: u32) {
        let config = TopicConfig::new().partitions(partitions);
        let id = self.node.new_topic_id();
        self.node.administer(name, Administration::Create { name: name.to_owned(), id, config }).unwrap();
    }

    fn member(&self, group: &str, topic: &str, instance: Option<&str>) -> Arc<Membership> {
        let subscription = Subscription { topics: BTreeSet::from([topic.to_owned()]), pattern: None };
        let instance = instance.map(str::to_owned);
        let details = Details { instance, subscription, ..Details::default() };
        let settings = MemberSettings::new(group.to_owned(), details);
        Membership::join(&self.node, settings, &Pointer::new(Signal::new())).unwrap()
    }

    /// Time passes, and everybody polls; nobody owns what another does.
    fn pass(&self, members: &mut [Owner], time: Duration) {
        let step = Duration::from_millis(500);
        for _ in 0..time.as_millis().div_ceil(step.as_millis()) {
            self.clock.advance(step);
            self.node.tick();
            members.iter_mut().for_each(Owner::poll);
            let owned = members.iter().map(|member| member.owned.len()).sum::<usize>();
            let all: BTreeSet<_> = members.iter().flat_map(|member| &member.owned).collect();
            assert_eq!(all.len(), owned, "owned twice");
        }
    }

    fn partition_of(&self, group: &str) -> Partition {
        let topic = self.node.topic(OFFSETS_TOPIC).unwrap();
        topic.partitions[partition_of(group, OFFSETS_PARTITIONS) as usize].clone()
    }
}

struct Owner {
    membership: Arc<Membership>,
    owned: BTreeSet<u32>,
}

impl Owner {
    fn of(membership: Arc<Membership>) -> Self {
        Self { membership, owned: BTreeSet::new() }
    }

    fn poll(&mut self) {
        self.membership.settle();
        let upcoming = self.membership.upcoming();
        let changes = self.membership.polled(&upcoming.revoked).unwrap();
        for (_, number) in changes.lost.iter().chain(changes.revoked.iter()) {
            assert!(self.owned.remove(&number));
        }
        self.owned.extend(changes.assigned.iter().map(|(_, number)| number));
        self.membership.settle();
    }
}

fn at(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition }
}

fn position(offset: u64) -> Position {
    Position { offset: Offset(offset), leader_epoch: Some(LeaderEpoch(0)), metadata: "here".to_owned() }
}

#[test]
fn members_share_and_take_over() {
    let place = Place::new();
    place.topic("orders", 6);
    let mut members = vec![Owner::of(place.member("g", "orders", None))];
    members[0].poll();
    assert_eq!(members[0].owned.len(), 6, "the first poll gets everything");
    members.push(Owner::of(place.member("g", "orders", None)));
    place.pass(&mut members, Duration::from_secs(15));
    assert_eq!([members[0].owned.len(), members[1].owned.len()], [3, 3]);
    // Dropped, it leaves; the other one hears of it with its next heartbeat.
    drop(members.pop());
    place.pass(&mut members, Duration::from_secs(6));
    assert_eq!(members[0].owned.len(), 6);
    // One that is not polled any more is out after its time, and nobody is before it.
    members.push(Owner::of(place.member("g", "orders", None)));
    place.pass(&mut members, Duration::from_secs(15));
    let lost = members.pop().unwrap();
    place.pass(&mut members, Duration::from_secs(270));
    assert_eq!(members[0].owned.len(), 3);
    place.pass(&mut members, Duration::from_secs(40));
    assert_eq!(members[0].owned.len(), 6);
    drop(lost);
    place.topic("more", 1);
    place.node.administer("orders", Administration::AddPartitions { name: "orders".to_owned(), total: 9 }).unwrap();
    place.pass(&mut members, Duration::from_secs(6));
    assert_eq!(members[0].owned.len(), 9);
}

#[test]
fn after_a_crash_nobody_waits_for_the_members_of_before() {
    let place = Place::new();
    place.topic("orders", 6);
    let mut members = vec![Owner::of(place.member("g", "orders", None))];
    place.pass(&mut members, Duration::from_secs(1));
    let place = Place::at(place.storage.crash(3));
    let mut member = Owner::of(place.member("g", "orders", None));
    member.poll();
    assert_eq!(member.owned.len(), 6);
    // One with an instance id has its partitions again, and nobody else has them meanwhile.
    let mut fixed = Owner::of(place.member("h", "orders", Some("a")));
    let other = Owner::of(place.member("h", "orders", None));
    fixed.poll();
    let mut both = [fixed, other];
    place.pass(&mut both, Duration::from_secs(15));
    let kept = both[0].owned.clone();
    assert_eq!(kept.len(), 3);
    let place = Place::at(place.storage.crash(5));
    let mut other = Owner::of(place.member("h", "orders", None));
    other.poll();
    assert!(other.owned.is_disjoint(&kept), "{:?}", other.owned);
    let mut fixed = Owner::of(place.member("h", "orders", Some("a")));
    fixed.poll();
    assert_eq!(fixed.owned, kept);
}

#[test]
fn a_closed_log_leaves_no_members() {
    let place = Place::new();
    place.topic("orders", 6);
    let mut member = Owner::of(place.member("g", "orders", None));
    member.poll();
    place.node.close().unwrap();
    assert!(matches!(member.membership.polled(&Partitions::default()), Err(Error::Closed)));
    let place = Place::at(place.storage.crash(1));
    let described = place.node.ask_group("g", Command::Describe { group: "g".to_owned() }).unwrap();
    let Reply::Described(described) = described else { panic!() };
    assert_eq!(described.members, []);
}

#[test]
fn what_is_committed_is_there_after_a_crash() {
    let place = Place::new();
    place.topic("orders", 2);
    for offset in 1..=20 {
        place.node.commit_positions("g", None, (vec![(at("orders", 0), position(offset))], &[]), None).unwrap();
    }
    place.node.commit_positions("g", None, (vec![(at("orders", 1), position(5))], &[]), None).unwrap();
    let begun = place.node.begin_commit("g", None, (vec![(at("orders", 1), position(6))], &[])).unwrap();
    assert!(begun.try_take().is_none(), "it is not synced yet");
    let place = Place::at(place.storage.crash(1));
    let found = place.node.committed("g", None, true).unwrap();
    let found: Vec<_> = found.into_iter().map(|(one, committed)| (one.partition, committed.position)).collect();
    let last = &found[1].1.offset;
    assert_eq!(found[0], (0, position(20)));
    assert!([Offset(5), Offset(6)].contains(last), "{last:?}");
    assert_eq!(place.node.positions_of("nobody").unwrap(), BTreeMap::new());
}

#[test]
fn a_commit_that_nobody_waits_for_is_stored_by_ticks() {
    let place = Place::new();
    place.topic("orders", 2);
    let begun = place.node.begin_commit("g", None, (vec![(at("orders", 1), position(6))], &[])).unwrap();
    for _ in 0..3 {
        place.clock.advance(Duration::from_millis(6));
        place.node.tick();
    }
    assert!(matches!(begun.try_take(), Some(Ok(()))));
    let begun = place.node.begin_commit("g", None, (vec![(at("orders", 1), position(7))], &[])).unwrap();
    begun.wait().unwrap();
}

/// Members hear of what has changed in their group long before they would report by themselves.
#[test]
fn partitions_change_hands_at_once() {
    let place = Place::new();
    place.topic("orders", 6);
    let mut members = vec![Owner::of(place.member("g", "orders", None))];
    members[0].poll();
    let pass = |members: &mut [Owner]| {
        for _ in 0..10 {
            place.clock.advance(Duration::from_millis(50));
            place.node.tick();
            members.iter_mut().for_each(Owner::poll);
        }
        members.iter().map(|member| member.owned.len()).collect::<Vec<_>>()
    };
    members.push(Owner::of(place.member("g", "orders", None)));
    assert_eq!(pass(&mut members), [3, 3], "another came");
    place.node.administer("orders", Administration::AddPartitions { name: "orders".to_owned(), total: 8 }).unwrap();
    assert_eq!(pass(&mut members), [4, 4], "partitions came");
    drop(members.pop());
    assert_eq!(pass(&mut members), [8], "the other went");
    // Then it is quiet.
    let end = place.partition_of("g").end();
    pass(&mut members);
    assert_eq!(place.partition_of("g").end(), end);
}

/// A transactional producer, by hand.
fn identity(place: &Place, id: &str) -> ProducerIdentity {
    let timeout = Duration::from_secs(60);
    let init = |fresh| TransactionCommand::Init { id: id.to_owned(), timeout, expected: None, fresh };
    loop {
        match place.node.transact(id, init).unwrap() {
            TransactionReply::Identity(identity) => return identity,
            _ => place.node.settle(id).unwrap(),
        }
    }
}

fn commit_in_transaction(place: &Place, id: &str, producer: ProducerIdentity, group: &str, offset: u64) {
    let number = partition_of(group, OFFSETS_PARTITIONS);
    let partitions = vec![at(OFFSETS_TOPIC, number)];
    place
        .node
        .transact(id, |_| TransactionCommand::Add { id: id.to_owned(), producer, partitions: partitions.clone() })
        .unwrap();
    place.node.commit_positions(group, None, (vec![(at("orders", 0), position(offset))], &[]), Some(producer)).unwrap();
}

fn end(place: &Place, id: &str, producer: ProducerIdentity, outcome: Outcome) -> ProducerIdentity {
    let end = |fresh| TransactionCommand::End { id: id.to_owned(), producer, outcome, fresh };
    let TransactionReply::Identity(next) = place.node.transact(id, end).unwrap() else { panic!() };
    place.node.settle(id).unwrap();
    next
}

fn offset_of(place: &Place, group: &str) -> Option<u64> {
    let found = place.node.committed(group, None, false).unwrap();
    found.first().map(|(_, committed)| committed.position.offset.0)
}

#[test]
fn positions_of_a_transaction_count_when_it_is_committed() {
    let place = Place::new();
    place.topic("orders", 1);
    place.node.ensure_groups().unwrap();
    place.node.commit_positions("g", None, (vec![(at("orders", 0), position(1))], &[]), None).unwrap();
    let producer = identity(&place, "t");
    commit_in_transaction(&place, "t", producer, "g", 10);
    assert_eq!(offset_of(&place, "g"), Some(1));
    let unstable = place.node.committed("g", None, true).unwrap_err();
    assert!(matches!(unstable, Error::UnstableOffset { .. }), "{unstable:?}");
    // Also over another coordinator, which reads it anew.
    let place = Place::at(place.storage.kill());
    let unstable = place.node.committed("g", None, true).unwrap_err();
    assert!(matches!(unstable, Error::UnstableOffset { .. }), "{unstable:?}");
    let producer = end(&place, "t", producer, Outcome::Committed);
    assert_eq!(offset_of(&place, "g"), Some(10));
    commit_in_transaction(&place, "t", producer, "g", 20);
    let producer = end(&place, "t", producer, Outcome::Aborted);
    assert_eq!(offset_of(&place, "g"), Some(10));
    // Commands and markers in turns: the offsets that the machine goes by are those of the log.
    let mut producer = producer;
    for offset in 30..60 {
        commit_in_transaction(&place, "t", producer, "g", offset);
        let begun: Vec<_> = (0..3)
            .map(|_| place.node.begin_commit("h", None, (vec![(at("orders", 0), position(offset))], &[])).unwrap())
            .collect();
        producer = end(&place, "t", producer, Outcome::Committed);
        assert_eq!(offset_of(&place, "g"), Some(offset));
        for begun in begun {
            begun.wait().unwrap();
        }
        place.node.commit_positions("g", None, (vec![(at("orders", 0), position(offset - 1))], &[]), None).unwrap();
        assert_eq!(offset_of(&place, "g"), Some(offset - 1));
    }
    commit_in_transaction(&place, "t", producer, "i", 7);
    end(&place, "t", producer, Outcome::Committed);
    let place = Place::at(place.storage.crash(9));
    assert_eq!(offset_of(&place, "g"), Some(58));
    assert_eq!(offset_of(&place, "h"), Some(59));
    assert_eq!(offset_of(&place, "i"), Some(7));
    let stable = place.node.committed("i", None, true).unwrap();
    assert_eq!(stable.len(), 1, "no transaction is open");
}

/// A marker that comes while a commit waits for the one before it: what is answered then is stored.
#[test]
fn what_is_answered_beside_a_marker_is_stored() {
    for seed in 0..20 {
        let place = Place::new();
        place.topic("orders", 3);
        place.node.ensure_groups().unwrap();
        let producer = identity(&place, "t");
        commit_in_transaction(&place, "t", producer, "g", 10);
        let begun = [1, 2].map(|number| {
            place.node.begin_commit("g", None, (vec![(at("orders", number), position(5))], &[])).unwrap()
        });
        end(&place, "t", producer, Outcome::Committed);
        let [first, second] = begun;
        first.wait().unwrap();
        let is_answered = matches!(second.try_take(), Some(Ok(())));
        let place = Place::at(place.storage.crash(seed));
        let found = place.node.positions_of("g").unwrap();
        assert!(found.contains_key(&at("orders", 1)));
        assert!(!is_answered || found.contains_key(&at("orders", 2)), "it was answered, and is lost");
    }
}

/// The seat of an instance that has left for now is kept for a session, and not for longer.
#[test]
fn a_session_ends_also_where_nobody_reports() {
    let place = Place::new();
    place.topic("orders", 4);
    let fixed = Owner::of(place.member("g", "orders", Some("a")));
    let mut members = vec![fixed, Owner::of(place.member("g", "orders", None))];
    place.pass(&mut members, Duration::from_secs(15));
    let fixed = members.remove(0);
    fixed.membership.close().unwrap();
    place.pass(&mut members, Duration::from_secs(40));
    assert_eq!(members[0].owned.len(), 2);
    place.pass(&mut members, Duration::from_secs(15));
    assert_eq!(members[0].owned.len(), 4);
}

#[test]
fn a_producer_that_is_fenced_changes_no_position_and_fails_nobody_else() {
    let place = Place::new();
    place.topic("orders", 1);
    place.node.ensure_groups().unwrap();
    let producer = identity(&place, "t");
    commit_in_transaction(&place, "t", producer, "g", 10);
    let later = identity(&place, "t");
    let begun = place.node.begin_commit("g", None, (vec![(at("orders", 0), position(3))], &[])).unwrap();
    let late = place.node.commit_positions("g", None, (vec![(at("orders", 0), position(11))], &[]), Some(producer));
    assert!(matches!(late, Err(Error::ProducerFenced { .. })), "{late:?}");
    begun.wait().unwrap();
    assert_eq!(offset_of(&place, "g"), Some(3));
    commit_in_transaction(&place, "t", later, "g", 12);
    end(&place, "t", later, Outcome::Committed);
    assert_eq!(offset_of(&place, "g"), Some(12));
}

#[test]
fn a_damaged_record_is_named_and_the_rest_is_read() {
    let place = Place::new();
    place.topic("orders", 3);
    for number in 0..3 {
        place.node.commit_positions("g", None, (vec![(at("orders", number), position(7))], &[]), None).unwrap();
    }
    let partition = place.partition_of("g");
    // One that says of itself that it is a position, and is none.
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(b"no position").key(b"\0\x01\0\x01g\0\x06orders\0\0\0\x09")).unwrap();
    let damaged = partition.append_coordinator(&mut batch).unwrap().offsets.start;
    place.node.close().unwrap();
    let log = partition.path().join("00000000000000000000.log");
    // And a flipped bit in the second batch.
    let second = starts(&place.storage.bytes_of(&log).unwrap())[1];
    place.storage.flip_bit(&log, second as u64 + 70, 3).unwrap();
    let place = Place::at(place.storage.kill());
    let found = place.node.positions_of("g").unwrap();
    assert_eq!(found.keys().map(|one| one.partition).collect::<Vec<_>>(), [0, 2]);
    let damage = place.node.group_damage();
    let names = |error: &Error| match error {
        Error::Corrupt { offsets, .. } => Some(offsets.start),
        Error::CorruptState { offset, .. } => Some(*offset),
        _ => None,
    };
    assert_eq!(damage.iter().map(names).collect::<Vec<_>>(), [Some(Offset(1)), Some(damaged)]);
    place.node.commit_positions("g", None, (vec![(at("orders", 1), position(8))], &[]), None).unwrap();
}

/// Where in a file the batches begin.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let length = |at: usize| u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let (mut starts, mut at) = (Vec::new(), 0);
    while at + 12 < bytes.len() && length(at) > 0 {
        starts.push(at);
        at += 12 + length(at);
    }
    starts
}

/// Nobody waits for the transaction, nobody reads on from where it was to go, and no later one takes it along.
#[test]
fn a_transaction_whose_marker_is_damaged_counts_as_aborted() {
    use Outcome::{Aborted, Committed};
    // Whether its producer has another transaction behind it, and whether the position in that is damaged, too.
    let cases = [(Aborted, true, false), (Committed, true, false), (Committed, true, true), (Committed, false, false)];
    for (outcome, goes_on, also_damaged) in cases {
        let place = Place::new();
        place.topic("orders", 2);
        place.node.ensure_groups().unwrap();
        place.node.commit_positions("g", None, (vec![(at("orders", 0), position(3))], &[]), None).unwrap();
        let producer = identity(&place, "t");
        commit_in_transaction(&place, "t", producer, "g", 10);
        let next = end(&place, "t", producer, outcome);
        let partition = place.partition_of("g");
        let log = partition.path().join("00000000000000000000.log");
        let marker = starts(&place.storage.bytes_of(&log).unwrap()).pop().unwrap();
        if goes_on {
            let positions = (vec![(at("orders", 1), position(7))], &[][..]);
            let partitions = vec![at(OFFSETS_TOPIC, partition_of("g", OFFSETS_PARTITIONS))];
            let add =
                |_| TransactionCommand::Add { id: "t".to_owned(), producer: next, partitions: partitions.clone() };
            place.node.transact("t", add).unwrap();
            place.node.commit_positions("g", None, positions, Some(next)).unwrap();
            end(&place, "t", next, Outcome::Committed);
        } else {
            // What is last would be cut.
            place.node.commit_positions("h", None, (vec![(at("orders", 0), position(1))], &[]), None).unwrap();
            place.node.commit_positions("g", None, (vec![(at("orders", 1), position(7))], &[]), None).unwrap();
        }
        place.node.close().unwrap();
        place.storage.flip_bit(&log, marker as u64 + 70, 3).unwrap();
        if also_damaged {
            let behind = starts(&place.storage.bytes_of(&log).unwrap()).into_iter().find(|at| *at > marker).unwrap();
            place.storage.flip_bit(&log, behind as u64 + 70, 3).unwrap();
        }
        let place = Place::at(place.storage.kill());
        assert_eq!(place.node.group_damage().len(), 1, "{outcome:?}");
        let found = place.node.committed("g", None, true).unwrap();
        let found: Vec<_> = found.into_iter().map(|(one, found)| (one.partition, found.position.offset.0)).collect();
        let expected = [(0, 3), (1, 7)];
        assert_eq!(found, expected[..2 - usize::from(also_damaged)], "{outcome:?} {goes_on} {also_damaged}");
    }
}

#[test]
fn a_failed_sync_fails_who_waits_and_the_next_goes_on() {
    let place = Place::new();
    place.topic("orders", 1);
    let mut members = vec![Owner::of(place.member("g", "orders", None))];
    place.pass(&mut members, Duration::from_secs(1));
    let claim = members[0].membership.claim();
    let path = place.partition_of("g").path().to_owned();
    let fails = move |operation: &Operation| {
        let is_meant = operation.kind == OperationKind::Sync && operation.path.starts_with(&path);
        is_meant.then_some(Fault::Io)
    };
    place.storage.fail_when(fails);
    let failed = place.node.commit_positions("g", claim.clone(), (vec![(at("orders", 0), position(9))], &[]), None);
    assert!(matches!(failed, Err(Error::Io { .. } | Error::Poisoned { .. } | Error::Superseded { .. })), "{failed:?}");
    place.storage.clear_faults();
    // Nothing is owned by two, nobody is thrown out, and the next commit counts.
    place.pass(&mut members, Duration::from_secs(10));
    assert_eq!(members[0].owned.len(), 1);
    let claim = members[0].membership.claim();
    place.node.commit_positions("g", claim, (vec![(at("orders", 0), position(10))], &[]), None).unwrap();
    // The machine that was made anew has been told of the topics: it takes heartbeats.
    place.pass(&mut members, Duration::from_secs(60));
    assert!(members[0].membership.may_read());
    assert_eq!(offset_of(&place, "g"), Some(10));
}

#[test]
fn durability_of_the_positions_can_be_set() {
    let place = Place::new();
    place.topic("orders", 1);
    place.node.ensure_groups().unwrap();
    let config = place.node.topic(OFFSETS_TOPIC).unwrap().config.clone().durability(Durability::Os);
    place.node.administer(OFFSETS_TOPIC, Administration::Configure { name: OFFSETS_TOPIC.to_owned(), config }).unwrap();
    let begun = place.node.begin_commit("g", None, (vec![(at("orders", 0), position(6))], &[])).unwrap();
    assert!(matches!(begun.try_take(), Some(Ok(()))), "what is written is stored");
}

/// Whoever has its answer goes, and wakes another of those that wait: without a thread in the background nobody else would.
#[test]
fn whoever_has_its_answer_wakes_the_next() {
    let place = Place::new();
    place.topic("orders", 2);
    place.node.ensure_groups().unwrap();
    place.node.commit_positions("g", None, (vec![(at("orders", 0), position(1))], &[]), None).unwrap();
    let (path, node) = (place.partition_of("g").path().to_owned(), Arc::clone(&place.node));
    let is_first = std::sync::atomic::AtomicBool::new(true);
    // The first sync ends when a second commit waits behind it.
    place.storage.fail_when(move |operation| {
        let is_meant = operation.kind == OperationKind::Sync && operation.path.starts_with(&path);
        while is_meant && is_first.load(std::sync::atomic::Ordering::SeqCst) {
            let desk = node.groups.desks.of("g").unwrap().lock();
            if desk.desk.coordinator.waiting() == 2 {
                is_first.store(false, std::sync::atomic::Ordering::SeqCst);
            }
            drop(desk);
            std::thread::yield_now();
        }
        None
    });
    let (done, all) = std::sync::mpsc::channel();
    for number in 0..2 {
        let (node, done) = (Arc::clone(&place.node), done.clone());
        std::thread::spawn(move || {
            node.commit_positions("g", None, (vec![(at("orders", number), position(2))], &[]), None).unwrap();
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        all.recv_timeout(Duration::from_secs(60)).expect("nobody does what the second one waits for");
    }
    place.storage.clear_faults();
}

/// A clock that goes on whenever somebody looks.
#[derive(Debug, Default)]
struct Restless(AtomicU64);

impl Clock for Restless {
    fn wall(&self) -> Timestamp {
        Timestamp(1_000_000)
    }

    fn monotonic(&self) -> Moment {
        Moment(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// The timed thread used to take what is to be done at once for later than its turn, and went round until something else
/// was due.
#[test]
fn the_leave_of_a_consumer_that_was_dropped_is_said_at_once_while_time_goes_on() {
    let storage = MemoryStorage::new(1);
    let place = Place { node: Node::on(&storage, Arc::new(Restless::default())), clock: Arc::default(), storage };
    place.topic("orders", 1);
    let member = place.member("g", "orders", None);
    (0..3).for_each(|_| place.node.tick());
    assert!(!place.node.run_groups(place.node.now()), "nothing is due");
    drop(member);
    assert!(place.node.run_groups(place.node.now()));
    assert!(place.node.groups.leaving.lock().is_empty());
}
